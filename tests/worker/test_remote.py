"""What is done on a worker without any program of its own but Python: netlink, files, commands."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from fabric_direct.drivers.contract import VfSettings
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.hosts.ssh import SshHost
from fabric_direct.drivers.netlink.uplink import NetlinkUplink
from fabric_direct.errors import DriverError, NotFound, Unsupported
from fabric_direct.site.config import Site
from tests.worker.bare import wait_until

UPLINK, PLAIN = "enp1s0", "enp6s0f0"
LIMIT = 120.0
ALL = VfSettings(
    mac="52:54:00:82:57:90",
    vlan=304,
    qos=2,
    trust=True,
    spoof_check=False,
    max_tx_rate=100,
)

pytestmark = pytest.mark.usefixtures("unchanged")


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture(scope="module")
def host(site: Site) -> SshHost:
    driver = host_driver(site, "worker1")
    assert isinstance(driver, SshHost)
    return driver


@pytest.fixture
def uplink(site: Site) -> NetlinkUplink:
    return NetlinkUplink(site, "worker1")


def shown(worker: Any, link: str, vf: int) -> dict[str, Any]:
    """What iproute2 says there of a VF."""
    (found,) = json.loads(worker.run("ip", "-j", "-d", "link", "show", "dev", link))
    there: dict[str, Any] = found["vfinfo_list"][vf]
    return there


class TestVepa:
    def test_the_mode_is_set_and_read(self, worker: Any, uplink: NetlinkUplink) -> None:
        for mode in ("vepa", "veb"):
            for _ in range(2):
                uplink.set_bridge_mode(UPLINK, mode)
            assert uplink.bridge_mode(UPLINK) == mode
            assert f"hwmode {mode.upper()}" in worker.run(
                "bridge", "-d", "link", "show", "dev", UPLINK
            )

    def test_a_nic_that_cannot_is_named_with_its_driver(self, uplink: NetlinkUplink) -> None:
        with pytest.raises(Unsupported, match=rf"{PLAIN}.*EOPNOTSUPP.*its driver is e1000e"):
            uplink.set_bridge_mode(PLAIN, "vepa")
        with pytest.raises(Unsupported, match="its driver, e1000e, reports none"):
            uplink.bridge_mode(PLAIN)

    def test_a_link_that_is_missing_is_named(self, uplink: NetlinkUplink) -> None:
        with pytest.raises(NotFound, match="fdtest9"):
            uplink.set_bridge_mode("fdtest9", "vepa")


class TestVf:
    def test_all_settings_that_the_nic_has_are_set(
        self, worker: Any, uplink: NetlinkUplink
    ) -> None:
        before = uplink.vfs(UPLINK)[1]
        uplink.set_vf(UPLINK, 1, ALL)
        found = shown(worker, UPLINK, 1)
        uplink.set_vf(UPLINK, 1, before)
        (vlan,) = found["vlan_list"]
        assert (found["address"], vlan["vlan"], vlan["qos"]) == (ALL.mac, 304, 2)
        assert (found["trust"], found["spoofchk"]) == (True, False)
        assert found["rate"]["max_tx"] == 100

    def test_a_vf_gets_its_former_settings_back(self, worker: Any, uplink: NetlinkUplink) -> None:
        baseline, before = uplink.vfs(UPLINK), shown(worker, UPLINK, 2)
        uplink.set_vf(UPLINK, 2, ALL)
        uplink.set_vf(UPLINK, 2, baseline[2])
        assert uplink.vfs(UPLINK) == baseline
        assert shown(worker, UPLINK, 2) == before

    def test_a_part_of_the_settings_leaves_the_others(self, uplink: NetlinkUplink) -> None:
        before = uplink.vfs(UPLINK)[0]
        uplink.set_vf(UPLINK, 0, ALL)
        uplink.set_vf(UPLINK, 0, VfSettings(vlan=305))
        uplink.set_vf(UPLINK, 0, VfSettings(max_tx_rate=0))
        found = uplink.vfs(UPLINK)[0]
        uplink.set_vf(UPLINK, 0, before)
        assert (found.vlan, found.qos, found.max_tx_rate, found.mac) == (305, 2, 0, ALL.mac)

    @pytest.mark.parametrize(
        "settings",
        [VfSettings(vlan=5000), VfSettings(min_tx_rate=10), VfSettings(max_tx_rate=100_000)],
        ids=["vlan", "min_tx_rate", "max_tx_rate"],
    )
    def test_what_the_nic_refuses_is_told_in_its_words(
        self, uplink: NetlinkUplink, settings: VfSettings
    ) -> None:
        before = uplink.vfs(UPLINK)
        ((name, value),) = ((n, v) for n, v in asdict(settings).items() if v is not None)
        said = f"set {name.replace('_', ' ')} {value} of VF 0"
        with pytest.raises(DriverError, match=rf"{said} \({UPLINK} on worker1\): EINVAL"):
            uplink.set_vf(UPLINK, 0, settings)
        assert uplink.vfs(UPLINK) == before

    def test_a_rate_needs_an_uplink_that_is_up(self, worker: Any, uplink: NetlinkUplink) -> None:
        worker.run("ip", "link", "set", UPLINK, "down")
        try:
            with pytest.raises(DriverError, match=r"EINVAL.*see that the uplink is up"):
                uplink.set_vf(UPLINK, 0, VfSettings(max_tx_rate=100))
        finally:
            worker.run("ip", "link", "set", UPLINK, "up")
            carrier = f"/sys/class/net/{UPLINK}/carrier"
            wait_until(lambda: worker.read(carrier) == "1", "the uplink is up")

    def test_a_link_state_can_be_read_but_not_changed(self, uplink: NetlinkUplink) -> None:
        (state, *_) = (vf.link_state for vf in uplink.vfs(UPLINK).values())
        uplink.set_vf(UPLINK, 0, VfSettings(link_state=state))
        with pytest.raises(Unsupported, match=r"EOPNOTSUPP.*its driver is igb"):
            uplink.set_vf(UPLINK, 0, VfSettings(link_state=1))

    def test_a_vf_that_is_not_there_is_refused(self, uplink: NetlinkUplink) -> None:
        with pytest.raises(NotFound, match=f"{UPLINK} has no VF 4"):
            uplink.set_vf(UPLINK, 4, VfSettings(vlan=304))
        with pytest.raises(NotFound, match=f"{PLAIN} has no VF 0"):
            uplink.set_vf(PLAIN, 0, VfSettings(vlan=304))


class TestRelay:
    def test_it_runs_as_root_with_the_workers_python(self, host: SshHost) -> None:
        relay = host.relay(timeout=LIMIT)
        assert relay.user == 0
        assert relay.python >= (3, 6)

    def test_it_leaves_nothing_on_the_workers_disk(self, worker: Any, host: SshHost) -> None:
        worker.run("touch", "/run/fdtest-mark")
        host.close()
        host.call("files.resolve", timeout=LIMIT, path="/")
        places = ("/root", "/home", "/tmp", "/var/tmp", "/usr", "/etc", "/opt", "/srv")
        found = worker.run("find", *places, "-newer", "/run/fdtest-mark")
        worker.run("rm", "/run/fdtest-mark")
        assert found == ""

    def test_what_it_runs_there_gets_its_arguments_as_they_are(self, host: SshHost) -> None:
        found = host.run(("printf", "%s|", "two words", "$HOME", "ü'\n"), timeout=LIMIT)
        assert found.stdout == "two words|$HOME|ü'\n|".encode()
