"""The units of systemd give each service what it needs; systemd itself reads them in tests/package."""

import re
from pathlib import Path

import pytest

from fabric_direct.cli.options import BAD_INPUT, INTERRUPTED, PLACES
from fabric_direct.site.config import Limits

UNITS = Path(__file__).parents[2] / "packaging/systemd"
NAMES = ("page", "watch", "zone")
OWN_MOUNTS = re.compile(
    r"^(Private(Tmp|Devices|Mounts)|Protect(System|Home|Kernel\w+|ControlGroups|Proc)|\w+Paths|"
    r"Bind\w+|RootDirectory|MountFlags|DynamicUser|TemporaryFileSystem)=",
    re.MULTILINE,
)


def unit(name: str) -> str:
    return (UNITS / f"fabric-direct-{name}.service").read_text()


def minutes(name: str) -> int:
    (found,) = re.findall(r"^TimeoutStopSec=(\d+)min$", unit(name), re.MULTILINE)
    return int(found)


def test_a_stop_waits_for_what_has_begun() -> None:
    limits = Limits()

    assert minutes("watch") * 60 > limits.modify + limits.undo
    assert minutes("zone") * 60 > limits.create + limits.undo


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_site_is_not_tried_again_and_a_signal_is_no_failure(name: str) -> None:
    lines = unit(name).splitlines()

    assert {"Restart=on-failure", f"RestartPreventExitStatus={BAD_INPUT}"} <= set(lines)
    assert f"SuccessExitStatus={INTERRUPTED}" in lines


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_the_site_that_commands_find(name: str) -> None:
    assert f"Environment=FABRIC_DIRECT_SITE={PLACES[-1]}" in unit(name).splitlines()


def test_namespaces_that_a_zone_makes_are_the_hosts_and_outlive_it_with_their_daemons() -> None:
    assert not OWN_MOUNTS.search(unit("zone"))
    assert "KillMode=process" in unit("zone").splitlines()


@pytest.mark.parametrize("name", ["page", "watch"])
def test_a_page_and_a_watcher_write_only_the_sites_state(name: str) -> None:
    lines = unit(name).splitlines()

    assert {"ProtectSystem=strict", "StateDirectory=fabric-direct"} <= set(lines)
    assert not re.search(r"^ReadWritePaths=", unit(name), re.MULTILINE)
