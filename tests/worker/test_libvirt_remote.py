"""libvirt of a worker by SSH, TLS and TCP, through the connection that all drivers use."""

import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from fabric_direct.drivers.libvirt.connection.connections import connect, translated
from fabric_direct.errors import Unreachable
from tests.worker.conftest import Worker

# Emulated as it is, the worker takes seconds for a login.
pytestmark = pytest.mark.timeout(600)
TRANSPORTS = ("uri_ssh", "uri_tcp", "uri_tls")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_transports_lead_to_the_worker(worker: Worker, transport: str) -> None:
    assert connect(getattr(worker, transport)).getHostname() == "worker1"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_connection_is_kept(worker: Worker, transport: str) -> None:
    uri = getattr(worker, transport)

    assert connect(uri) is connect(uri)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_first_call_after_a_restart_of_libvirtd_works(worker: Worker, transport: str) -> None:
    uri = getattr(worker, transport)
    connect(uri).getHostname()

    worker.run("systemctl", "restart", "libvirtd")

    assert connect(uri).getHostname() == "worker1"


def test_a_call_that_a_restart_cuts_off_is_unreachable_and_the_next_works(worker: Worker) -> None:
    connection = connect(worker.uri_tcp)

    worker.run("systemctl", "restart", "libvirtd")

    with pytest.raises(Unreachable), translated("ask", worker.uri_tcp):
        connection.getHostname()
    assert connect(worker.uri_tcp).getHostname() == "worker1"


@pytest.fixture
def by_ssh(worker: Worker) -> Iterator[Callable[[str], str]]:
    """The URI of a connection by SSH that trusts only what the given known_hosts says.

    ssh names the file four times; of more than 1024 bytes libvirt tells nothing.
    """
    with tempfile.TemporaryDirectory(prefix="fd-") as folder:
        yield partial(_uri, worker, Path(folder))


def _uri(worker: Worker, folder: Path, known_hosts: str) -> str:
    known, program = folder / "known_hosts", folder / "ssh"
    known.write_text(known_hosts)
    options = f"-i {worker.key} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=yes"
    trusted = f"-o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null"
    program.write_text(f'#!/bin/sh\nexec ssh -F /dev/null {options} {trusted} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"qemu+ssh://root@127.0.0.1:{worker.ssh_port}/system?command={program}&no_tty=1"


def test_a_known_host_key_lets_us_in(worker: Worker, by_ssh: Callable[[str], str]) -> None:
    known = f"[127.0.0.1]:{worker.ssh_port} {worker.host_key}\n"

    assert connect(by_ssh(known)).getHostname() == "worker1"


def test_an_unknown_host_key_is_refused(by_ssh: Callable[[str], str]) -> None:
    with pytest.raises(Unreachable, match="Host key verification failed"):
        connect(by_ssh(""))


def test_a_changed_host_key_is_refused(
    worker: Worker, by_ssh: Callable[[str], str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    key = " ".join(other.with_suffix(".pub").read_text().split()[:2])

    with pytest.raises(Unreachable, match="Host key verification failed"):
        connect(by_ssh(f"[127.0.0.1]:{worker.ssh_port} {key}\n"))


def test_tls_without_a_certificate_of_the_lab_is_refused(worker: Worker, tmp_path: Path) -> None:
    pki = Path(worker.uri_tls.partition("pkipath=")[2])
    (tmp_path / "cacert.pem").write_bytes((pki / "cacert.pem").read_bytes())
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=stranger"),
            *("-keyout", tmp_path / "clientkey.pem", "-out", tmp_path / "clientcert.pem"),
        ],
        check=True,
        capture_output=True,
    )

    with pytest.raises(Unreachable):
        connect(f"qemu+tls://127.0.0.1:{worker.tls_port}/system?pkipath={tmp_path}")


def test_tls_to_a_server_of_another_authority_is_refused(worker: Worker, tmp_path: Path) -> None:
    pki = Path(worker.uri_tls.partition("pkipath=")[2])
    for name in ("clientcert.pem", "clientkey.pem"):
        (tmp_path / name).write_bytes((pki / name).read_bytes())
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other CA"),
            *("-keyout", tmp_path / "cakey.pem", "-out", tmp_path / "cacert.pem"),
        ],
        check=True,
        capture_output=True,
    )

    with pytest.raises(Unreachable, match="certificate"):
        connect(f"qemu+tls://127.0.0.1:{worker.tls_port}/system?pkipath={tmp_path}")


def test_a_port_where_nobody_listens_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        connect("qemu+tcp://127.0.0.1:9/system")
