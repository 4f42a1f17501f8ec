"""What sets up a P4 switch after its installation: the script itself, on commands that are scripted."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.hosts.functions import CommandResult
from fabric_direct.drivers.p4switch import switch as p4switch
from fabric_direct.drivers.p4switch.switch import SshSwitch
from fabric_direct.errors import DriverError
from fabric_direct.site.config import Site

_FIREWALL = "firewall-cmd"
_INSTALL = "apt-get -qy -o DPkg::Lock::Timeout=120 install firewalld"


class Image:
    """What a switch has after its installation: its commands, and what was called."""

    def __init__(self, folder: Path) -> None:
        self.home, self._bin, self._log = folder / "home", folder / "bin", folder / "called"
        self.home.mkdir()
        self._bin.mkdir()
        self.limits: list[float] = []
        (self._bin / "sh").symlink_to(str(shutil.which("sh")))
        self.script("systemctl", 'if [ "$1" = show ]; then echo LoadState=not-found; fi')
        self.script("dpkg")

    def script(self, name: str, text: str = "exit 0", *, at: str = "") -> None:
        """Write a command, which notes that it was called."""
        path = self._bin / (at or name)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self._log}\n{text}\n')
        path.chmod(0o755)

    def has_packages(self, *, lists: str = "exit 0") -> None:
        """Have apt-get install firewalld, unless it would ask on a terminal.

        :param lists: what an update of its lists does.
        """
        self.script(_FIREWALL, at="../package")
        install = f"{shutil.which('mv')} {self._bin}/../package {self._bin}/{_FIREWALL}"
        install = f'[ "$DEBIAN_FRONTEND" = noninteractive ] && {install}'
        self.script("apt-get", f'case "$*" in *install*) {install} ;; *) {lists} ;; esac')

    def called(self) -> list[str]:
        """Return the calls of all commands."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def run(self, argv: tuple[str, ...], stdin: bytes, *, timeout: float) -> CommandResult:
        """Run a command there."""
        self.limits.append(timeout)
        there = {"PATH": str(self._bin), "HOME": str(self.home)}
        ran = subprocess.run(argv, input=stdin, capture_output=True, env=there, check=False)
        return CommandResult(ran.returncode, ran.stdout, ran.stderr)

    def close(self) -> None:
        """Do nothing: it is no connection."""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    image = Image(tmp_path)
    monkeypatch.setattr(p4switch, "SshHost", lambda *_: image)
    return image


def guard(site: Site, **settings: Any) -> None:
    values = {"ssh": "ssh://root@192.0.2.4", "user": "tenant"} | settings
    there = site.model_dump() | {"p4_switches": {"p4": values}}
    SshSwitch(Site.model_validate(there), "p4", "").guard()


def walled(site: Site) -> None:
    guard(site, ssh_sources=["192.0.2.0/24"], interface="ma1")


class TestTheFirewall:
    def test_is_set_up_by_what_the_image_has(self, fake_site: Site, image: Image) -> None:
        image.script(_FIREWALL)

        walled(fake_site)

        called = image.called()
        assert not any(call.startswith(("apt-get", "dpkg")) for call in called)
        assert called.index("systemctl enable --now firewalld") < called.index(
            "firewall-cmd --reload"
        )

    def test_is_installed_where_the_image_has_none(self, fake_site: Site, image: Image) -> None:
        image.has_packages()

        walled(fake_site)

        called = image.called()
        begun = called.index("apt-get -q update")
        assert called[begun : begun + 4] == [
            "apt-get -q update",
            "dpkg --configure -a",
            _INSTALL,
            "systemctl enable --now firewalld",
        ]
        assert called[-1] == "firewall-cmd --reload"

    def test_has_the_time_of_a_creation_for_that(self, fake_site: Site, image: Image) -> None:
        image.has_packages()

        walled(fake_site)

        assert image.limits == [fake_site.limits.create]

    def test_is_installed_from_the_lists_that_are_there_where_no_new_ones_come(
        self, fake_site: Site, image: Image
    ) -> None:
        """One of several archives may be away, or another apt-get be at them."""
        image.has_packages(lists="exit 100")

        walled(fake_site)

        assert image.called()[-1] == "firewall-cmd --reload"

    @pytest.mark.parametrize(
        ("apt", "said"),
        [
            ("echo 'E: Unable to locate package firewalld' >&2; exit 100", "Unable to locate"),
            ("echo 'W: a word of warning' >&2; exit 0", "firewall-cmd: .*not found"),
            (None, "apt-get: .*not found"),
        ],
        ids=["apt-get fails", "apt-get installs nothing", "no apt-get"],
    )
    def test_that_cannot_be_installed_is_told_so(
        self, fake_site: Site, image: Image, apt: str | None, said: str
    ) -> None:
        if apt:
            image.script("apt-get", apt)

        with pytest.raises(DriverError, match=said) as caught:
            walled(fake_site)

        failed = apt is None or "exit 100" in apt
        assert ("firewalld could not be installed" in str(caught.value)) == failed

    def test_is_not_touched_where_the_site_names_no_sources(
        self, fake_site: Site, image: Image
    ) -> None:
        guard(fake_site)

        assert image.called() == ["systemctl show --property=LoadState freerouter.service"]


class TestFreerouter:
    """It has the ports of the switch to itself where the image starts it."""

    _STOP = "systemctl disable --now freerouter.service"

    def test_is_stopped_for_good_where_the_image_has_it(
        self, fake_site: Site, image: Image
    ) -> None:
        image.script("systemctl", "echo LoadState=loaded")

        guard(fake_site)

        assert self._STOP in image.called()

    def test_that_cannot_be_stopped_is_told(self, fake_site: Site, image: Image) -> None:
        show = "if [ $1 = show ]; then echo LoadState=loaded; exit 0; fi"
        image.script("systemctl", f"{show}; echo 'Job failed' >&2; exit 1")

        with pytest.raises(DriverError, match="Job failed"):
            guard(fake_site)

    def test_of_which_nothing_is_known_is_told(self, fake_site: Site, image: Image) -> None:
        image.script("systemctl", "echo 'Failed to connect to bus' >&2; exit 1")

        with pytest.raises(DriverError, match="Failed to connect to bus"):
            guard(fake_site)

    def test_that_the_user_started_is_left_alone(self, fake_site: Site, image: Image) -> None:
        """A modification sets up the switch again, which has its user by then."""
        image.script("systemctl", "echo LoadState=loaded")
        (image.home / ".fabric-direct-sliver").write_text("s1\n")

        guard(fake_site)

        assert image.called() == []
