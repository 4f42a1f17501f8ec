"""What the guest reads at its first boot."""

import io
import json
import shutil
import subprocess
from collections.abc import Sequence
from email import message_from_string
from email.message import Message
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Any

import pycdlib
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fabric_direct.drivers.cloudinit import nocloud_seed, user_data
from fabric_direct.drivers.contract import Port
from fabric_direct.drivers.guests.ssh import _shown_keys
from fabric_direct.model import NodeSliver

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN ana"
OTHER = KEY.replace("ana", "site")


def sliver(**values: Any) -> NodeSliver:
    given = {
        "id": "s-1",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
    }
    return NodeSliver.model_validate(given | values)


def parts(document: str) -> dict[str, Message]:
    return {part.get_content_type(): part for part in message_from_string(document).walk()}


def payload(document: str, kind: str) -> bytes:
    content = parts(document)[kind].get_payload(decode=True)
    assert isinstance(content, bytes)
    return content


def port(**values: Any) -> Port:
    given = {
        "sliver": "s-1",
        "component": "nic1",
        "network": "red",
        "source": "red",
        "mac": "52:54:00:00:00:01",
    }
    return Port(**(given | values))


def seed_files(image: bytes, by: str = "rr_path") -> dict[str, str]:
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(image))
    files = {}
    for name in ("meta-data", "user-data", "network-config"):
        content = io.BytesIO()
        iso.get_file_from_iso_fp(content, **{by: f"/{name}"})
        files[name] = content.getvalue().decode()
    iso.close()
    return files


def test_the_guest_gets_its_name_and_keys() -> None:
    document = user_data(sliver(ssh_keys=[KEY]), extra_keys=[OTHER])

    config = payload(document, "text/cloud-config")

    assert config.startswith(b"#cloud-config\n")
    assert yaml.safe_load(config)["hostname"] == "node"
    assert yaml.safe_load(config)["ssh_authorized_keys"] == [KEY, OTHER]


def test_a_key_that_is_given_twice_is_let_in_once() -> None:
    document = user_data(sliver(ssh_keys=[KEY]), extra_keys=[KEY])

    assert yaml.safe_load(payload(document, "text/cloud-config"))["ssh_authorized_keys"] == [KEY]


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/bash\necho 'grüße' > /root/x\n",
        "#!/usr/bin/env python3\r\nprint('<>&\"')\r\n",
        "#! /bin/sh\n--==fabric-direct==\nFrom here on.\n.\n",
    ],
)
def test_a_boot_script_that_names_its_interpreter_arrives_byte_for_byte(script: str) -> None:
    document = user_data(sliver(boot_script=script))

    assert payload(document, "text/x-shellscript") == script.encode()


@given(st.text(max_size=200))
def test_any_text_arrives_byte_for_byte_after_what_chooses_its_shell(script: str) -> None:
    arrived = payload(user_data(sliver(boot_script=script)), "text/x-shellscript")

    assert arrived.endswith(script.encode())
    assert arrived.startswith(b"#!")


# What /bin/sh is: Debian's, Rocky's (which is in POSIX mode by its name), that of a tiny guest.
SHELLS = {"dash": ("dash",), "bash as sh": ("bash", "--posix"), "busybox": ("busybox", "sh")}
TELL = 'echo "$# $? $-"; set +o; env | sort; echo "$BASHOPTS"\n'


def run_script(
    script: str, by: Sequence[str], tmp_path: Path, *programs: str
) -> subprocess.CompletedProcess[str]:
    """Run what arrives of a boot script by this ``/bin/sh``; the guest has these programs alone."""
    text = payload(user_data(sliver(boot_script=script)), "text/x-shellscript")
    return run_text(text, by, tmp_path, *programs)


def run_text(
    text: bytes, by: Sequence[str], tmp_path: Path, *programs: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "part-001").write_bytes(text)
    commands = tmp_path / "bin"
    commands.mkdir(exist_ok=True)
    for program in programs:
        (commands / program).symlink_to(found(program))
    argv = (found(by[0]), *by[1:], str(tmp_path / "part-001"))
    environment = {"PATH": str(commands), "HOME": "/root"}
    return subprocess.run(
        argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )


def found(program: str) -> str:
    return shutil.which(program) or pytest.skip(f"there is no {program}")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_boot_script_that_names_no_interpreter_is_run_by_the_guests_bash(
    shell: str, tmp_path: Path
) -> None:
    (tmp_path / "names").write_text("greeting=hello\n")
    script = (
        "source ./names\nfor i in {1..3}; do echo $greeting $i; done\n[[ $i == 3 ]] && echo end"
    )

    ran = run_script(script, SHELLS[shell], tmp_path, "bash")

    assert (ran.stdout, ran.stderr) == ("hello 1\nhello 2\nhello 3\nend\n", "")


@pytest.mark.parametrize("shell", ["dash", "busybox"])
def test_it_is_run_by_sh_in_a_guest_without_bash(shell: str, tmp_path: Path) -> None:
    ran = run_script('\n[ -z "$BASH_VERSION" ] && echo "$0"', SHELLS[shell], tmp_path)

    assert (ran.stdout, ran.stderr) == (f"{tmp_path}/part-001\n", "")


@pytest.mark.parametrize(("shell", "programs"), [("dash", ["bash"]), ("busybox", [])])
def test_nothing_is_set_that_the_boot_script_has_not_set(
    shell: str, programs: list[str], tmp_path: Path
) -> None:
    """As if that shell had been told to run the script alone."""
    by, tools = SHELLS[shell], ("env", "sort")
    alone = run_text(TELL.encode(), programs or by, tmp_path, *tools, *programs)

    ran = run_script(TELL, by, tmp_path)

    assert ran.stdout.startswith("0 0 ")
    assert (ran.stdout, ran.stderr) == (alone.stdout, alone.stderr)


def test_a_command_that_fails_does_not_end_it_and_what_is_unset_is_empty(tmp_path: Path) -> None:
    ran = run_script('false\necho "${nobody_set_this}on"', SHELLS["dash"], tmp_path, "bash")

    assert (ran.returncode, ran.stdout) == (0, "on\n")


def test_its_exit_status_is_that_of_the_part(tmp_path: Path) -> None:
    assert run_script("exit 7", SHELLS["dash"], tmp_path, "bash").returncode == 7


def test_without_a_boot_script_there_is_no_part_for_it() -> None:
    assert set(parts(user_data(sliver()))) == {"multipart/mixed", "text/cloud-config"}


FREEBSD = """#!/bin/sh
case $(basename "$0"),$* in
uname,) echo FreeBSD ;;
ifconfig,-l*) echo "vtnet0 vtnet1 vtnet2" ;;
sysrc,"-qn ifconfig_vtnet2_ipv6") echo "inet6 2001:db8::7/64" ;;
sysrc,-qn*) exit 1 ;;
service,"sshd onestatus") exit 1 ;;
*) echo "$(basename "$0") $*" >>"$SAID" ;;
esac
"""


def run_commands(tmp_path: Path, *programs: str) -> list[str]:
    """Run what cloud-init would, with these programs as FreeBSD has them; return what they were told."""
    for program in programs:
        (tmp_path / program).write_text(FREEBSD)
        (tmp_path / program).chmod(0o755)
    command, _ = yaml.safe_load(payload(user_data(sliver()), "text/cloud-config"))["runcmd"]
    said = tmp_path / "said"
    said.touch()
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SAID": str(said)}
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    return said.read_text().splitlines()


def test_freebsd_listens_for_routers_and_starts_its_ssh_server(tmp_path: Path) -> None:
    """By programs that stand in for FreeBSD's: a real one is not at hand. What is set stays."""
    assert run_commands(tmp_path, "uname", "sysrc", "ifconfig", "service") == [
        "sysrc ipv6_activate_all_interfaces=YES rtsold_enable=YES sshd_enable=YES",
        "sysrc ifconfig_vtnet0_ipv6=inet6 accept_rtadv",
        "ifconfig vtnet0 inet6 accept_rtadv",
        "sysrc ifconfig_vtnet1_ipv6=inet6 accept_rtadv",
        "ifconfig vtnet1 inet6 accept_rtadv",
        "ifconfig vtnet2 inet6 accept_rtadv",
        "service rtsold restart",
        "service sshd start",
    ]


def test_any_other_guest_passes_that_by(tmp_path: Path) -> None:
    assert run_commands(tmp_path, "sysrc", "ifconfig", "service") == []


def test_the_console_shows_the_host_keys_before_the_boot_script_runs(tmp_path: Path) -> None:
    """cloud-init itself shows them after it; what it runs, it runs in the order of names."""
    document = user_data(sliver(boot_script="x"))
    _, command = yaml.safe_load(payload(document, "text/cloud-config"))["runcmd"]
    script = command[-1].replace("/dev/console", f"{tmp_path}/console")
    (tmp_path / "ssh_host_rsa_key.pub").write_text("ssh-rsa AAAAB3 root@node\n")
    (tmp_path / "ssh_host_ed25519_key.pub").write_text(f"{KEY}\n")

    subprocess.run([*command[:-1], script.replace("/etc/ssh", str(tmp_path))], check=True)

    shown = _shown_keys((tmp_path / "console").read_text())
    assert shown == [KEY, "ssh-rsa AAAAB3 root@node"]
    assert str(parts(document)["text/x-shellscript"].get_filename()) > "runcmd"


def test_a_key_comment_cannot_become_yaml() -> None:
    hostile = f"{KEY}\u2028'\"]}} #: &x *y \U0001f600"

    document = user_data(sliver(ssh_keys=[hostile]))

    config = yaml.safe_load(payload(document, "text/cloud-config"))
    assert config["ssh_authorized_keys"] == [hostile]
    assert set(config) == {"hostname", "manage_etc_hosts", "ssh_authorized_keys", "runcmd"}


def test_the_same_sliver_gives_the_same_user_data() -> None:
    assert user_data(sliver(boot_script="x")) == user_data(sliver(boot_script="x"))


@pytest.mark.parametrize("names", ["rr_path", "joliet_path"])
def test_the_seed_holds_three_files_under_their_full_names(names: str) -> None:
    document = user_data(sliver(boot_script="#!/bin/sh\n"))

    files = seed_files(nocloud_seed(sliver(), document, []), names)

    assert files["user-data"] == document
    assert json.loads(files["meta-data"])["instance-id"] == "s-1"
    assert json.loads(files["network-config"]) == {"version": 2, "ethernets": {}}


def test_the_seed_is_labelled_for_nocloud() -> None:
    image = nocloud_seed(sliver(), "", [])

    assert image[32_808 : 32_808 + 6] == b"cidata"


def test_the_seed_names_the_keys_of_the_sliver_and_of_the_user_data() -> None:
    document = user_data(sliver(), extra_keys=[OTHER])

    files = seed_files(nocloud_seed(sliver(ssh_keys=[KEY]), document, []))

    assert json.loads(files["meta-data"])["public-keys"] == [KEY, OTHER]
    assert json.loads(files["meta-data"])["local-hostname"] == "node"


def ethernet(nic: Port) -> Any:
    files = seed_files(nocloud_seed(sliver(), "", [nic]))
    return json.loads(files["network-config"])["ethernets"][nic.component]


def test_a_nic_of_a_network_with_dhcp_asks_there() -> None:
    nic = port(ipv4=IPv4Interface("10.1.0.5/24"), dhcp=True)

    assert ethernet(nic) == {
        "match": {"macaddress": "52:54:00:00:00:01"},
        "dhcp4": True,
        "dhcp6": False,
    }


def test_a_nic_of_a_network_without_dhcp_is_told_its_addresses() -> None:
    nic = port(
        dhcp=False,
        ipv4=IPv4Interface("10.1.0.5/24"),
        ipv6=IPv6Interface("fd00::5/64"),
        gateway="10.1.0.1",
        dns=("10.1.0.2", "10.1.0.3"),
    )

    assert ethernet(nic) == {
        "match": {"macaddress": "52:54:00:00:00:01"},
        "addresses": ["10.1.0.5/24", "fd00::5/64"],
        "routes": [{"to": "0.0.0.0/0", "via": "10.1.0.1"}],
        "nameservers": {"addresses": ["10.1.0.2", "10.1.0.3"]},
    }


def test_a_nic_of_a_switch_is_told_its_routes_and_its_mtu() -> None:
    routes = (("10.128.0.0/16", "10.128.0.1"),)
    nic = port(dhcp=False, ipv4=IPv4Interface("10.128.0.2/24"), routes=routes, mtu=9000)

    told = ethernet(nic)

    assert told["routes"] == [{"to": "10.128.0.0/16", "via": "10.128.0.1"}]
    assert told["mtu"] == 9000


def test_a_network_without_a_router_gives_no_route() -> None:
    assert "routes" not in ethernet(port(dhcp=False, ipv4=IPv4Interface("10.1.0.5/24")))
