"""What the doctor says of switches, against a scripted Open vSwitch and scripted programs."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from typing import Any

import pytest
from pytest_mock import MockerFixture

from fabric_direct.doctor import Verdict
from fabric_direct.doctor.switches import check_switch, check_switches
from fabric_direct.drivers.contract import CommandResult
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.site.config import Site

VERSION = "ovs-vswitchd (Open vSwitch) 3.1.0"
ROOT: dict[str, Any] = {"bridges": ["set", []], "other_config": ["map", []]}
HELLO, BARRIER = "0400000800000000", "0415000800000009"
NETDEV: dict[str, Any] = {"datapath": "netdev", "routing": {}, "ports": {"p1": {}}}


def features(meters: int) -> bytes:
    """Return what a bridge says that can have so many meters."""
    told = f"0413002000000001000b000000000000{meters:08x}" + "0" * 24
    return bytes.fromhex(HELLO + told + BARRIER)


SAYS_NOTHING = bytes.fromhex(HELLO + BARRIER)


@dataclass
class OpenVSwitch:
    """A switch with one bridge, which is the lab's."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    meters: bytes = features(100)

    def __post_init__(self) -> None:
        bridge = {"name": "br0", "datapath_type": "netdev", "ports": ["set", []]}
        bridge |= {"external_ids": ["map", []], "mirrors": ["set", []], "flood_vlans": ["set", []]}
        self.rows |= {
            "Open_vSwitch": [ROOT | {"datapath_types": ["set", ["netdev", "system"]]}],
            "Bridge": [{"_uuid": ["uuid", "b"]} | bridge],
        }

    def database(self, asked: bytes) -> bytes:
        request = json.loads(asked)
        tables = (operation["table"] for operation in request["params"][1:])
        result = [{"rows": self.rows.get(table, [])} for table in tables]
        return json.dumps({"id": request["id"], "result": result, "error": None}).encode()

    def daemon(self, _: bytes) -> bytes:
        return json.dumps({"id": 0, "result": f"{VERSION}\nDPDK 22\n", "error": None}).encode()

    def bridge(self, _: bytes) -> bytes:
        return self.meters


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[OpenVSwitch]:
    switch = OpenVSwitch()
    (tmp_path / "ovs-vswitchd.pid").write_text("7\n")
    servers = [
        serve(tmp_path / name, answer)
        for name, answer in (
            ("db.sock", switch.database),
            ("ovs-vswitchd.7.ctl", switch.daemon),
            ("br0.mgmt", switch.bridge),
        )
    ]
    yield switch
    for server in servers:
        server.shutdown()
        server.server_close()


def serve(path: Path, answer: Callable[[bytes], bytes]) -> ThreadingUnixStreamServer:
    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.request.sendall(answer(self.request.recv(65536)))

    server = ThreadingUnixStreamServer(str(path), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


@pytest.fixture
def make_site(tmp_path: Path) -> Callable[..., Site]:
    def make(*types: str, **values: Any) -> Site:
        switches = {"sw1": {"ovsdb": f"unix:{tmp_path}/db.sock"} | NETDEV | values}
        drivers = dict.fromkeys(("L2Bridge", *types), switches["sw1"].get("driver", "ovs"))
        site = {"site": "TEST", "state_dir": tmp_path, "drivers": drivers, "switches": switches}
        return Site.model_validate(site)

    return make


def said(site: Site) -> tuple[Verdict, str]:
    found = check_switch(site, "sw1")
    assert found.subject == "switch sw1"
    assert bool(found.remedy) is (found.verdict is not Verdict.OK)
    return found.verdict, found.found


class Programs(LocalHost):
    """A host whose commands end with a code, and say what is given."""

    def __init__(self, code: int, says: str = "") -> None:
        super().__init__("sw1")
        self.code, self.says, self.asked = code, says, [""]

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float) -> CommandResult:
        self.asked = [*argv]
        return CommandResult(self.code, self.says.encode(), self.says.encode())


@pytest.fixture
def on_host(mocker: MockerFixture) -> Callable[[Programs], Programs]:
    """Let the switch's host be a scripted one."""

    def place(host: Programs) -> Programs:
        for module in ("hosts.choice", "ovs.support", "gateways.support"):
            mocker.patch(f"fabric_direct.drivers.{module}.switch_host", return_value=host)
        return host

    return place


@pytest.mark.usefixtures("switch")
class TestAnOpenVSwitch:
    def test_is_well_if_it_has_what_services_need(self, make_site: Callable[..., Site]) -> None:
        assert said(make_site()) == (Verdict.OK, f"{VERSION} has what services need")
        assert [found.verdict for found in check_switches(make_site())] == [Verdict.OK]

    def test_whose_datapath_has_no_meters_is_told(
        self, make_site: Callable[..., Site], switch: OpenVSwitch
    ) -> None:
        switch.meters = features(0)

        assert said(make_site()) == (Verdict.FAIL, f"{VERSION} lacks meters")

    def test_without_a_bridge_of_the_datapath_is_not_asked_for_meters(
        self, make_site: Callable[..., Site], switch: OpenVSwitch
    ) -> None:
        switch.meters, switch.rows["Bridge"] = features(0), []

        assert said(make_site())[0] is Verdict.OK

    def test_that_says_nothing_of_meters_is_told(
        self, make_site: Callable[..., Site], switch: OpenVSwitch
    ) -> None:
        switch.meters = SAYS_NOTHING

        assert said(make_site())[1].startswith("the daemon of sw1 gave an invalid answer")

    def test_that_does_not_know_the_datapath_is_told(
        self, make_site: Callable[..., Site], switch: OpenVSwitch
    ) -> None:
        switch.rows["Open_vSwitch"] = [ROOT | {"datapath_types": "system"}]

        assert said(make_site()) == (Verdict.FAIL, f"{VERSION} lacks the datapath netdev")

    @pytest.mark.parametrize(("code", "verdict"), [(0, Verdict.OK), (1, Verdict.FAIL)])
    def test_by_the_kernel_needs_its_module(
        self,
        make_site: Callable[..., Site],
        on_host: Callable[[Programs], Programs],
        code: int,
        verdict: Verdict,
    ) -> None:
        on_host(Programs(code))

        found = said(make_site(datapath="system"))

        assert found[0] is verdict
        assert ("CONFIG_OPENVSWITCH" in found[1]) is bool(code)

    def test_whose_host_does_not_say_what_its_kernel_has_is_told(
        self, make_site: Callable[..., Site], on_host: Callable[[Programs], Programs]
    ) -> None:
        on_host(Programs(127, "sh: modprobe: not found"))

        found = said(make_site(datapath="system"))

        assert found[1] == "cannot look for the module openvswitch: sh: modprobe: not found"


class TestOneThatIsSilent:
    def test_is_told_with_its_database(self, make_site: Callable[..., Site]) -> None:
        verdict, found = said(make_site())

        assert verdict is Verdict.FAIL
        assert found.startswith("the database of sw1 did not answer")

    def test_is_told_with_its_daemon(
        self, make_site: Callable[..., Site], switch: OpenVSwitch, tmp_path: Path
    ) -> None:
        (tmp_path / "ovs-vswitchd.pid").unlink()

        assert said(make_site())[1].startswith("the daemon of sw1 did not answer")


@pytest.mark.usefixtures("switch")
class TestRoutedServices:
    @pytest.mark.parametrize(
        ("kind", "asked"),
        [("FABNetv4", "ip nft sysctl"), ("L3VPN", "/usr/lib/frr/bgpd /usr/lib/frr/zebra ip nft")],
    )
    def test_need_programs_of_the_host(
        self,
        make_site: Callable[..., Site],
        on_host: Callable[[Programs], Programs],
        kind: str,
        asked: str,
    ) -> None:
        host = on_host(Programs(0, "nft\n"))

        assert said(make_site(kind)) == (Verdict.FAIL, "its host lacks nft")
        assert asked in " ".join(host.asked)

    def test_are_looked_for_only_where_a_switch_serves_them(
        self, make_site: Callable[..., Site], on_host: Callable[[Programs], Programs]
    ) -> None:
        host = on_host(Programs(0, "nft\n"))

        assert said(make_site())[0] is Verdict.OK
        assert said(make_site("FABNetv4", routing=None))[0] is Verdict.OK
        assert host.asked == [""]

    def test_of_a_host_that_does_not_say_is_told(
        self, make_site: Callable[..., Site], on_host: Callable[[Programs], Programs]
    ) -> None:
        on_host(Programs(1, "no shell"))

        assert said(make_site("L3VPN"))[1] == "sh failed on sw1: no shell"


class TestLinuxBridges:
    def test_are_tried_by_what_the_kernel_says(
        self, make_site: Callable[..., Site], on_host: Callable[[Programs], Programs]
    ) -> None:
        on_host(Programs(1, "not supported"))

        verdict, found = said(make_site(driver="linuxbridge"))

        assert verdict is Verdict.FAIL
        assert found.startswith("its kernel lacks bridges that filter VLANs")


def test_switches_of_controllers_are_not_asked(make_site: Callable[..., Site]) -> None:
    assert [*check_switches(make_site(driver="nso"))] == []


def test_switches_whose_services_are_in_memory_are_not_asked(
    make_site: Callable[..., Site],
) -> None:
    site = make_site()
    in_memory = site.model_copy(update={"drivers": dict.fromkeys(site.drivers, "fake")})

    assert [*check_switches(in_memory)] == []
