"""What the doctor finds of workers that we log in to: a real SSH server on a loopback port."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from fabric_direct.doctor import Verdict, daemon, examine, workers
from fabric_direct.doctor.diagnosis import Diagnosis
from fabric_direct.errors import Unreachable
from fabric_direct.site.config import Host, Site
from tests.functional.ssh_server import Server, new_host_key, ssh_server

GPU = {"type": "GPU", "bdf": "0000:25:00.0"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        yield server


def test_a_worker_that_lets_root_in_is_well(server: Server, tmp_path: Path) -> None:
    found = workers.check_login(server.site(tmp_path), "w1")
    assert found.verdict is Verdict.OK
    assert re.search(r"root, Python 3\.\d+\.\d+ \(/\S+/python3[.\d]*\)$", found.found)


def test_the_python_that_site_yaml_names_is_shown(server: Server, tmp_path: Path) -> None:
    python = os.path.realpath(sys.executable)
    found = workers.check_login(server.site(tmp_path, python=python), "w1")
    assert found.verdict is Verdict.OK
    assert found.found.endswith(f"({python})")


def test_a_python_that_is_named_and_missing_fails_with_what_to_do(
    server: Server, tmp_path: Path
) -> None:
    found = workers.check_login(server.site(tmp_path, python="/usr/bin/python3.5"), "w1")
    assert (found.subject, found.verdict) == ("SSH of w1", Verdict.FAIL)
    assert "not found: /usr/bin/python3.5" in found.found
    assert "correct its python in site.yaml" in found.remedy
    assert "dnf install python39" in found.remedy


def test_a_worker_that_nobody_listens_at_fails(server: Server, tmp_path: Path) -> None:
    found = workers.check_login(server.site(tmp_path, ssh="ssh://root@127.0.0.1:9"), "w1")
    assert found.verdict is Verdict.FAIL
    assert "w1 cannot be reached" in found.found
    assert "SSH server" in found.remedy


def test_an_error_of_a_login_names_the_host_once(tmp_path: Path) -> None:
    site = Site(
        site="x", state_dir=tmp_path, hosts={"w1": Host(ssh="ssh://root@127.0.0.1:9", ssh_key=None)}
    )
    with pytest.raises(Unreachable) as caught:
        workers._looked(site, "w1")
    assert str(caught.value).startswith("w1 cannot be reached (ssh://root@127.0.0.1:9): ")


def test_a_key_that_is_refused_fails_with_where_it_belongs(server: Server, tmp_path: Path) -> None:
    kept = server.keys.read_text()
    server.keys.write_text("")
    try:
        found = workers.check_login(server.site(tmp_path), "w1")
    finally:
        server.keys.write_text(kept)
    assert found.verdict is Verdict.FAIL
    assert "rejected the login" in found.found
    assert "authorized_keys" in found.remedy


def test_a_host_key_that_has_changed_fails(server: Server, tmp_path: Path) -> None:
    found = workers.check_login(server.site(tmp_path, host_key=new_host_key()), "w1")
    assert found.verdict is Verdict.FAIL
    assert "SHA256:" in found.found


def test_a_worker_without_python_fails_with_what_to_install(server: Server, tmp_path: Path) -> None:
    server.let_in('command="exec fdtest-no-python"')
    try:
        found = workers.check_login(server.site(tmp_path), "w1")
    finally:
        server.let_in()
    assert found.verdict is Verdict.FAIL
    assert "not found" in found.found
    assert "python3" in found.remedy


@pytest.mark.parametrize(("devices", "verdict"), [([], Verdict.WARN), ([GPU], Verdict.FAIL)])
def test_a_worker_where_we_are_not_root_cannot_serve_devices(
    server: Server, tmp_path: Path, devices: list[object], verdict: Verdict
) -> None:
    # What the server runs for us gives its root away before it does what we asked for.
    script = server.home / "nobody"
    script.write_text('exec setpriv --reuid=65534 sh -c "$SSH_ORIGINAL_COMMAND"\n')
    server.let_in('command="sh nobody"')
    try:
        found = workers.check_login(server.site(tmp_path, devices=devices), "w1")
    finally:
        server.let_in()
    assert found.verdict is verdict
    assert "user 65534" in found.found
    assert "ssh://root@" in found.remedy


def test_no_connection_stays(server: Server, tmp_path: Path) -> None:
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    workers.check_login(server.site(tmp_path), "w1")
    before = files()
    for _ in range(3):
        workers.check_login(server.site(tmp_path), "w1")
    assert files() <= before + 1  # paramiko's thread may still be closing the last one


def test_devices_of_a_host_elsewhere_need_a_login(tmp_path: Path) -> None:
    host = Host(libvirt="qemu+tcp://w1/system", devices=(GPU,))
    found = workers.check_login(Site(site="TEST", state_dir=tmp_path, hosts={"w1": host}), "w1")
    assert found.verdict is Verdict.FAIL
    assert "hosts.w1.ssh" in found.remedy


@pytest.mark.parametrize(
    ("host", "needed"),
    [
        (Host(), False),
        (Host(devices=(GPU,)), False),
        (Host(libvirt="qemu+tcp://w1/system"), False),
        (Host(libvirt="qemu+tcp://w1/system", devices=(GPU,)), True),
        (Host(ssh="ssh://root@w1"), True),
    ],
    ids=["here", "devices here", "elsewhere", "devices elsewhere", "login"],
)
def test_a_login_is_checked_where_it_is_needed(host: Host, needed: bool) -> None:
    assert workers.needs_login(host) is needed


@pytest.mark.parametrize("driver", ["libvirt", "openstack"])
def test_it_is_checked_with_libvirt_of_each_host(
    tmp_path: Path, mocker: MockerFixture, driver: str
) -> None:
    mocker.patch.object(daemon, "check_libvirt", return_value=_found("libvirt"))
    mocker.patch.object(
        workers, "check_login", side_effect=lambda _, name: _found(f"SSH of {name}")
    )
    hosts = {"w1": Host(libvirt="qemu+tcp://w1/system", ssh="ssh://root@w1"), "w2": Host()}
    drivers = {"VM": driver}
    site = Site(site="TEST", state_dir=tmp_path, hosts=hosts, drivers=drivers)
    subjects = [each.subject for each in examine(None, lambda: site)]
    assert subjects.count("SSH of w1") == 1
    assert "SSH of w2" not in subjects


def _found(subject: str) -> Diagnosis:
    return Diagnosis(subject, Verdict.OK, "well")
