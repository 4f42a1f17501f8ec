"""The scripts of a P4 switch, on an SSH server of loopback whose commands are scripted."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_direct.drivers.p4switch.driver import P4SwitchService
from fabric_direct.errors import DriverError, NotVerified, Unsupported
from fabric_direct.model.p4_switches import Switch
from fabric_direct.site.config import P4Switch, Site
from tests.functional.ssh_server import (
    USER,
    Server,
    make_host_key,
    new_key,
    start_dropbear,
)
from tests.ports import free_port

_REAL = (
    *("sh", "touch", "rm", "cat", "sed", "head", "grep", "cut", "mkdir", "chmod", "mv", "sleep"),
    *("nohup", "python3", "env", "uname"),
)
_SCRIPTED = {
    "efibootmgr": "exit 1",
    "mountpoint": "exit 1",
    "getent": 'echo "$2:x:1000:1000::{home}:/bin/bash"',
    "id": "exit 0",
    "pkill": "exit 1",
    "pgrep": "exit 1",
    "sshd": "echo port 22; echo pubkeyauthentication yes",
    "reboot": "touch {marker}",
}
_SAYING_YES = (
    *("mount", "umount", "grub-reboot", "onie-boot-mode", "sync", "useradd", "usermod", "chown"),
    *("systemctl", "firewall-cmd"),
)


class Bench:
    """A switch: its SSH server, its commands, what was called, and what an installation does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.log = folder, folder / "bin", folder / "called"
        self.tenant, self.marker = folder / "tenant", folder / "rebooted"
        self.number = 0
        self.server = Server(free_port(), "", folder / "admin", folder / "identity")
        new_key(self.server.identity)
        self._make_commands()
        self._install()
        self._stopped = threading.Event()
        self._installer = threading.Thread(target=self._wait_for_reboots, daemon=True)
        self._installer.start()

    def _make_commands(self) -> None:
        self.bin.mkdir()
        self.log.touch()
        for name in _REAL:
            there = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
            (self.bin / name).symlink_to(str(there))
        for name in (*_SCRIPTED, *_SAYING_YES):
            self.script(name, _SCRIPTED.get(name, "exit 0"))
        enter = self.folder / "enter"
        enter.write_text(f'#!/bin/sh\nexport PATH={self.bin}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
        enter.chmod(0o755)

    def script(self, name: str, text: str) -> None:
        """Write a command, which notes that it was called."""
        path = self.bin / name
        said = text.format(home=self.tenant, marker=self.marker)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.log}\n{said}\n')
        path.chmod(0o755)

    def called(self, name: str) -> list[str]:
        """Return the calls of a command."""
        return [line for line in self.log.read_text().splitlines() if line.split()[0] == name]

    def _install(self) -> None:
        """Begin with an empty disk and a new host key."""
        for home in (self.server.home, self.tenant):
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(0o700)
        self.server.keys.parent.mkdir(0o700)
        self.server.let_in(f'command="{self.folder}/enter"')
        self.number += 1
        key = self.folder / f"host-{self.number}"
        self.host_key = make_host_key(key)
        self._process = start_dropbear(self.server, key)

    def _wait_for_reboots(self) -> None:
        while not self._stopped.wait(0.05):
            if self.marker.exists():
                self.marker.unlink()
                self._end()
                self._install()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait()

    def stop(self) -> None:
        """End its server."""
        self._stopped.set()
        self._installer.join()
        self._end()

    def site(self, state: Path) -> Site:
        """Return a site that has it."""
        switch = {
            "ssh": f"ssh://{USER}@127.0.0.1:{self.server.port}",
            "ssh_key": self.server.identity,
            "host_key": self.host_key,
            "user": "tenant",
        }
        return Site(
            site="TEST", state_dir=state, p4_switches={"p4": P4Switch.model_validate(switch)}
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("dropbear", "dropbearkey", "unshare"))):
        pytest.skip("needs root, unshare, and dropbear (Debian: dropbear-bin)")
    bench = Bench(tmp_path)
    yield bench
    bench.stop()


@pytest.fixture
def driver(bench: Bench, tmp_path: Path) -> P4SwitchService:
    return P4SwitchService(bench.site(tmp_path / "state"), "")


@pytest.fixture
def sliver(tmp_path: Path) -> Switch:
    key = new_key(tmp_path / "user")
    return Switch(id="s1", name="p4", switch="p4", ssh_keys=(key,))


def test_a_switch_is_installed_and_its_user_let_in(
    driver: P4SwitchService, bench: Bench, sliver: Switch
) -> None:
    before = bench.host_key
    driver.check(sliver)
    driver.apply(sliver)

    assert bench.host_key != before
    assert bench.called("grub-reboot") == ["grub-reboot ONIE"]
    assert bench.called("onie-boot-mode") == ["onie-boot-mode -o install"]
    keys = bench.tenant / ".ssh" / "authorized_keys"
    assert (keys.read_text().split("\n")[:-1], keys.stat().st_mode & 0o777) == (
        list(sliver.ssh_keys),
        0o600,
    )
    assert driver.differences(sliver) == ()
    driver.apply(sliver)
    assert len(bench.called("reboot")) == 1


def test_the_python_that_site_yaml_names_is_the_switchs(
    bench: Bench, sliver: Switch, tmp_path: Path
) -> None:
    site = bench.site(tmp_path / "state")
    named = site.p4_switches["p4"].model_copy(update={"python": "fdtest-python"})
    driver = P4SwitchService(site.model_copy(update={"p4_switches": {"p4": named}}), "")

    with pytest.raises(Unsupported, match=r"p4, ssh://.* not found: fdtest-python"):
        driver.apply(sliver)


def test_one_with_efi_boots_the_installer_once(
    driver: P4SwitchService, bench: Bench, sliver: Switch
) -> None:
    bench.script("efibootmgr", "echo 'Boot0003* ONIE: Open Network Install Environment'")

    driver.apply(sliver)

    assert bench.called("efibootmgr")[-1] == "efibootmgr --bootnext 0003"
    assert bench.called("grub-reboot") == []


def test_a_user_is_taken_away_with_sessions(
    driver: P4SwitchService, bench: Bench, sliver: Switch
) -> None:
    driver.apply(sliver)

    driver.remove(sliver.id)

    assert not (bench.tenant / ".ssh" / "authorized_keys").exists()
    assert bench.called("usermod")[-1] == "usermod --lock --expiredate 1 tenant"
    assert bench.called("pkill") == ["pkill -KILL -u tenant"]
    assert driver.leftovers(sliver.id) == ()


def test_a_user_whose_processes_stay_is_not_called_gone(
    driver: P4SwitchService, bench: Bench, sliver: Switch
) -> None:
    driver.apply(sliver)
    bench.script("pgrep", "echo 4711")

    with pytest.raises(NotVerified):
        driver.remove(sliver.id)

    assert driver.leftovers(sliver.id) == ("switch p4",)


def test_a_command_that_fails_is_told_in_its_words(
    driver: P4SwitchService, bench: Bench, sliver: Switch
) -> None:
    bench.script("grub-reboot", "echo 'no such entry: ONIE' >&2; exit 1")

    with pytest.raises(DriverError) as caught:
        driver.apply(sliver)

    assert "no such entry: ONIE" in str(caught.value)
    assert bench.called("reboot") == []


def test_an_ssh_server_that_takes_no_keys_differs(
    driver: P4SwitchService, bench: Bench, sliver: Switch
) -> None:
    driver.apply(sliver)
    bench.script("sshd", "echo pubkeyauthentication no")

    assert driver.differences(sliver) == ("its SSH server takes no keys",)


def test_the_firewall_lets_in_what_the_site_names(
    bench: Bench, tmp_path: Path, sliver: Switch
) -> None:
    site = bench.site(tmp_path / "state")
    more = {"ssh_sources": ["192.0.2.0/24", "2001:db8::/32"], "icmp_subnets": ["192.0.2.0/24"]}
    switch = P4Switch.model_validate(site.p4_switches["p4"].model_dump() | more)
    site = site.model_copy(update={"p4_switches": {"p4": switch}})

    P4SwitchService(site, "").apply(sliver)

    rules = [line.partition("--add-rich-rule=")[2] for line in bench.called("firewall-cmd")]
    assert list(filter(None, rules)) == [
        "rule family=ipv4 source address=192.0.2.0/24 service name=ssh accept",
        "rule family=ipv6 source address=2001:db8::/32 service name=ssh accept",
        "rule family=ipv4 source address=192.0.2.0/24 protocol value=icmp accept",
    ]
    assert bench.called("firewall-cmd")[-1] == "firewall-cmd --reload"
