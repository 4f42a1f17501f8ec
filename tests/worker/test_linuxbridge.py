"""Network services by Linux bridges, on switches that are network namespaces of the worker."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko
import pytest

from fabric_direct.doctor.diagnosis import Verdict
from fabric_direct.doctor.switches import check_switch
from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.drivers.linuxbridge.links import Editor
from fabric_direct.drivers.linuxbridge.service import LinuxBridgeService
from fabric_direct.errors import DriverError, InvalidSliver, NotOurs
from fabric_direct.model import SliverRef, State, Status
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.testing import ServiceContract
from tests.outcomes import done
from tests.services.contracts import Circuits, PublicNetworks, RoutedNetworks, Segments
from tests.services.gateways import V4, Gateways, fabnet, link_of, space_of
from tests.services.node import Machine, Nodes, bare
from tests.services.outside import Outside
from tests.services.slivers import interface, limited, service
from tests.worker.conftest import Worker

HERE = Path(__file__).parent
SOURCES = HERE.parent / "network/wire.py", HERE / "wires.py"
VLANS = (100, 200)
SEGMENT = 14
"""How many messages make a segment of one interface."""


class Wires:
    """Who is at the ports: ``sw1/p1`` and so on."""

    def __init__(self, worker: Worker) -> None:
        program = "\n".join(path.read_text() for path in SOURCES)
        self._channel: paramiko.Channel = worker._started(program)
        self._answers = self._channel.makefile("rb")

    def ask(self, *question: Any) -> Any:
        self._channel.sendall(json.dumps(question).encode() + b"\n")
        answer = self._answers.readline()
        assert answer, self._channel.makefile_stderr("rb").read().decode()
        return json.loads(answer)

    def cross(self, one: str, other: str, *vlans: int) -> bool:
        return bool(self.ask("cross", one, other, vlans))

    def apart(self, one: str, other: str, *vlans: int) -> bool:
        """Return whether no frame crosses in either direction."""
        return bool(self.ask("apart", one, other, vlans))

    def copied(self, one: str, other: str, vlan: int, there: int | None = None) -> bool:
        """Return whether a frame that one sends arrives at the other, maybe with another tag."""
        return bool(self.ask("copied", one, other, (vlan, vlan if there is None else there)))

    def missed(self, one: str, other: str, vlan: int, there: int | None = None) -> bool:
        """Return whether it does not."""
        return bool(self.ask("missed", one, other, (vlan, vlan if there is None else there)))

    def rate(self, one: str, other: str, *vlans: int) -> float:
        return float(self.ask("rate", one, other, vlans))

    @contextmanager
    def nothing_lost(self, one: str, other: str, *vlans: int) -> Iterator[None]:
        """See that each of a hundred small frames a second arrives while the block runs."""
        self.ask("begin", one, other, vlans)
        try:
            yield
        finally:
            sent, lost = self.ask("end")
        assert sent
        assert lost == 0

    def close(self) -> None:
        self._channel.close()


@pytest.fixture(scope="module")
def switches(worker: Worker) -> Iterator[None]:
    script = (HERE / "switches").read_text()
    worker.run("sh", "-s", "down", stdin=script)
    worker.run("sh", "-s", "up", stdin=script)
    yield
    worker.run("sh", "-s", "down", stdin=script)


@pytest.fixture(scope="module")
def wires(worker: Worker, switches: None) -> Iterator[Wires]:
    wires = Wires(worker)
    yield wires
    wires.close()


@pytest.fixture
def site(make_site: Callable[..., Site], switches: None) -> Site:
    ports: dict[str, Any] = {f"p{number}": {} for number in (1, 2, 3)}
    shared = {"driver": "linuxbridge", "host": "worker1", "ports": ports}
    routing = {"router": "fd-router", "outside": "fd-border", "external": "203.0.113.1/24"}
    where = {
        f"sw{n}": {**shared, "netns": f"fd-sw{n}", "tunnel": f"192.0.2.{n}", "routing": routing}
        for n in (1, 2)
    }
    drivers = dict.fromkeys(SERVICES.keys() - {"L3VPN"}, "linuxbridge")
    return make_site(switches=where, drivers=drivers)


@pytest.fixture
def driver(site: Site, worker: Worker, switches: None) -> Iterator[LinuxBridgeService]:
    driver, before = LinuxBridgeService(site, "worker1"), there(worker)
    yield driver
    for thing in driver.stamped():
        driver.remove(thing.sliver)
    assert there(worker) == before


@pytest.fixture
def machine(worker: Worker) -> Machine:
    return Machine(worker.ask)


@pytest.fixture
def nodes(machine: Machine, switches: None) -> Iterator[Nodes]:
    nodes = Nodes(machine)
    yield nodes
    nodes.forget()


@pytest.fixture
def processor(site: Site, driver: LinuxBridgeService) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


def there(worker: Worker) -> str:
    """The namespaces, and the links of switches and routers."""
    spaces = "fd-sw1 fd-sw2 fd-router fd-border"
    shown = f"ls /run/netns; for space in {spaces}; do ip -n $space -br link; done | cut -d' ' -f1"
    return worker.run("sh", "-c", shown)


def links(worker: Worker, switch: str) -> set[str]:
    return {
        link["ifname"] for link in json.loads(worker.run("ip", "-n", f"fd-{switch}", "-j", "link"))
    }


class TestSegments(Segments):
    pass


class TestCircuits(Circuits):
    pass


class TestRoutedNetworks(RoutedNetworks):
    pass


class TestPublicNetworks(PublicNetworks):
    pass


class TestGateways(Gateways):
    @pytest.fixture
    def far(self) -> str:
        return "sw2"

    def test_a_pair_of_which_an_end_is_gone_or_elsewhere_is_made_anew(
        self, driver: LinuxBridgeService, machine: Machine, nodes: Nodes
    ) -> None:
        wanted = fabnet(V4)
        driver.apply(wanted)
        end, space = link_of(machine, "fd-sw1", "h"), space_of(driver)
        port = link_of(machine, space, "g")

        for change in (
            ("-n", "fd-sw1", "link", "delete", end),
            ("-n", space, "link", "set", port, "netns", "fd-outside"),
        ):
            machine.ip(*change)
            assert any("not connected" in said for said in driver.differences(wanted))
            driver.apply(wanted)
            assert driver.differences(wanted) == ()
        assert nodes("p1", V4.nodes[0]).reaches(bare(V4.gateways[0]))


class TestOutside(Outside):
    pass


class TestWhatCrosses:
    def test_frames_cross_between_the_vlans_of_a_service_and_no_others(
        self, driver: LinuxBridgeService, wires: Wires
    ) -> None:
        ends = interface("i1", 100), interface("i2", 200, "p2"), interface("i3", "untagged", "p3")
        made = driver.apply(service(*ends))
        driver.apply(service(interface("i1", 101), interface("i2", 100, "p2"), sliver="net-2"))

        assert wires.cross("sw1/p1", "sw1/p2", 100, 200)
        assert wires.cross("sw1/p1", "sw1/p3", 100, 0)
        assert wires.cross("sw1/p1", "sw1/p2", 101, 100)
        for vlans in ((100, 100), (101, 200), (100, 101), (0, 0), (300, 300)):
            assert wires.apart("sw1/p1", "sw1/p2", *vlans)
        assert wires.apart("sw1/p1", "sw1/p3", 101, 0)
        assert made.stamp == service(*ends)

    def test_a_tunnel_joins_two_hosts(self, driver: LinuxBridgeService, wires: Wires) -> None:
        for kind, sliver, vlans in (("L2STS", "net-1", (100, 200)), ("L2PTP", "net-2", (101, 201))):
            ends = interface("i1", vlans[0]), interface("i2", vlans[1], switch="sw2")
            driver.apply(service(*ends, kind=kind, sliver=sliver))

        assert wires.cross("sw1/p1", "sw2/p1", 100, 200)
        assert wires.cross("sw1/p1", "sw2/p1", 101, 201)
        assert wires.apart("sw1/p1", "sw2/p1", 100, 201)

    def test_the_host_itself_is_on_no_segment(
        self, driver: LinuxBridgeService, worker: Worker
    ) -> None:
        driver.apply(limited(None))

        shown = worker.run("ip", "-n", "fd-sw1", "-j", "address")
        found = {
            link["ifname"]
            for link in json.loads(shown)
            if link["addr_info"] and link["ifname"][:2] == "fd"
        }
        vlans = json.loads(worker.run("bridge", "-n", "fd-sw1", "-j", "vlan"))
        assert found == set()
        assert not [port for port in vlans if port["ifname"].startswith(("fds-", "fdp-"))]


class TestChanges:
    def test_a_rate_is_enforced_in_both_directions_and_changed_without_a_loss(
        self, driver: LinuxBridgeService, wires: Wires
    ) -> None:
        places = "sw1/p1", "sw1/p2"
        driver.apply(limited(None))
        with wires.nothing_lost(*places, *VLANS):
            driver.apply(limited(4))
        assert driver.differences(limited(4)) == ()
        assert wires.rate(*places, *VLANS) < 4 * 1.15
        assert wires.rate(*places[::-1], *VLANS[::-1]) < 4 * 1.15

        with wires.nothing_lost(*places, *VLANS):
            driver.apply(limited(2))

        assert driver.differences(limited(4)) != ()
        assert wires.rate(*places, *VLANS) < 2 * 1.15
        with wires.nothing_lost(*places, *VLANS):
            driver.apply(limited(None))
        assert driver.differences(limited(None)) == ()

    def test_interfaces_come_and_go_without_disturbing_the_others(
        self, driver: LinuxBridgeService, wires: Wires
    ) -> None:
        driver.apply(limited(20))
        with wires.nothing_lost("sw1/p1", "sw1/p2", *VLANS):
            driver.apply(limited(20, interface("i3", 300, "p3")))
        assert wires.cross("sw1/p1", "sw1/p3", 100, 300)

        with wires.nothing_lost("sw1/p1", "sw1/p2", *VLANS):
            driver.apply(limited(20))

        assert wires.apart("sw1/p1", "sw1/p3", 100, 300)

    def test_interfaces_exchange_their_vlans(
        self, driver: LinuxBridgeService, wires: Wires
    ) -> None:
        """Two links of one VLAN between two bridges would be a loop."""
        driver.apply(service(interface("i1", 100), interface("i2", 101), interface("i3", 5, "p2")))
        driver.apply(service(interface("i1", 101), interface("i2", 100), interface("i3", 5, "p2")))

        assert wires.cross("sw1/p1", "sw1/p2", 100, 5)
        assert wires.cross("sw1/p1", "sw1/p2", 101, 5)

    @pytest.mark.parametrize(
        ("broken", "said"),
        [
            ("bridge -n fd-sw1 vlan del dev p1 vid 100", "has VLANs none"),
            ("ip -n fd-sw1 link set p1 nomaster", "is in no bridge"),
            ("ip -n fd-sw1 link set p1 down", "is down"),
            ("tc -n fd-sw1 qdisc del dev {outer} root", "has another limit"),
            (
                "tc -n fd-sw1 class change dev {outer} classid 1:1 htb rate 1gbit",
                "has another limit",
            ),
            (
                "ip -n fd-sw1 link set {bridge} type bridge vlan_filtering 0",
                "does not filter VLANs",
            ),
        ],
    )
    def test_what_somebody_changed_is_named_and_restored(
        self,
        processor: HandlerProcessor,
        driver: LinuxBridgeService,
        worker: Worker,
        wires: Wires,
        broken: str,
        said: str,
    ) -> None:
        wanted = limited(8)
        done(processor.create(wanted).result())
        outer = next(
            n for n in links(worker, "sw1") if n.startswith("fda-") and _of(worker, n) == "i1"
        )
        bridge = next(n for n in links(worker, "sw1") if n.startswith("fds-"))

        worker.run(*shlex.split(broken.format(outer=outer, bridge=bridge)))

        assert any(said in words for words in driver.differences(wanted))
        done(processor.reconcile(SliverRef(id="net-1", type="L2Bridge")).result())
        assert driver.differences(wanted) == ()
        assert wires.cross("sw1/p1", "sw1/p2", *VLANS)


def _of(worker: Worker, link: str) -> str:
    """The interface that the first end of a pair is for."""
    (shown,) = json.loads(worker.run("ip", "-n", "fd-sw1", "-j", "link", "show", "dev", link))
    return str(shown["ifalias"]).rpartition(" ")[2]


def mirror(port: str = "p1", receiver: str = "p3", **values: Any) -> NetworkService:
    end = interface("tap", "untagged", receiver)
    return service(end, kind="PortMirror", sliver="tap", mirror={"port": port, **values})


class TestReceivers(ServiceContract):
    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return mirror().model_copy(update={"id": sliver})

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        return mirror("p2", direction="tx").model_copy(update={"id": sliver})


class TestMirrors:
    def test_the_receiver_has_the_frames_of_both_directions_with_their_tags(
        self, driver: LinuxBridgeService, wires: Wires
    ) -> None:
        driver.apply(limited(None))
        wanted = mirror()
        driver.apply(wanted)

        assert driver.differences(wanted) == ()
        assert wires.copied("sw1/p1", "sw1/p3", 100)
        assert wires.copied("sw1/p2", "sw1/p3", 200, 100)
        assert wires.cross("sw1/p1", "sw1/p2", *VLANS)
        assert wires.missed("sw1/p3", "sw1/p1", 100)

        driver.apply(mirror(direction="tx"))
        assert wires.missed("sw1/p1", "sw1/p3", 100)
        assert wires.copied("sw1/p2", "sw1/p3", 200, 100)
        driver.remove("tap")
        assert wires.missed("sw1/p2", "sw1/p3", 200, 100)

    def test_its_port_is_its_own(self, driver: LinuxBridgeService) -> None:
        driver.apply(mirror())
        with pytest.raises(NotOurs):
            driver.apply(service(interface("i1", 5, "p3")))
        driver.apply(limited(None))
        with pytest.raises(NotOurs):
            driver.apply(mirror("p1", "p2"))

    def test_filters_of_others_stay(self, driver: LinuxBridgeService, worker: Worker) -> None:
        tc = ("tc", "-n", "fd-sw1")
        worker.run(*tc, "qdisc", "add", "dev", "p1", "clsact")
        worker.run(*tc, "filter", "add", "dev", "p1", "ingress", "matchall", "action", "pass")
        try:
            driver.apply(mirror())
            driver.remove("tap")
            assert "matchall" in worker.run(*tc, "filter", "show", "dev", "p1", "ingress")
        finally:
            worker.run(*tc, "qdisc", "del", "dev", "p1", "clsact")

    @pytest.mark.parametrize(
        ("values", "field"),
        [({"vlan": 100}, "mirror.vlan"), ({"port": "p9"}, "mirror.port")],
    )
    def test_what_it_cannot_serve_is_refused_by_its_field(
        self, driver: LinuxBridgeService, values: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidSliver) as refused:
            driver.check(mirror(**values))

        assert refused.value.field == field


class TestOwners:
    def test_what_others_made_is_left_alone(
        self, driver: LinuxBridgeService, worker: Worker
    ) -> None:
        worker.run("ip", "-n", "fd-sw1", "link", "add", "theirs", "type", "bridge")
        worker.run("ip", "-n", "fd-sw1", "link", "set", "p1", "master", "theirs")
        try:
            with pytest.raises(NotOurs):
                driver.apply(limited(None))
            assert driver.leftovers("net-1") == ()
            driver.apply(service(interface("i1", 100, "p2")))
            driver.remove("net-1")
            (shown,) = json.loads(
                worker.run("ip", "-n", "fd-sw1", "-j", "link", "show", "dev", "p1")
            )
            assert shown["master"] == "theirs"
        finally:
            worker.run("ip", "-n", "fd-sw1", "link", "del", "theirs")

    def test_a_port_keeps_its_bridge_until_its_last_service_goes(
        self, driver: LinuxBridgeService, wires: Wires
    ) -> None:
        driver.apply(limited(None))
        driver.apply(service(interface("i1", 101), sliver="net-2"))

        driver.remove("net-2")
        assert wires.cross("sw1/p1", "sw1/p2", *VLANS)

        driver.remove("net-1")
        driver.remove("net-1")
        assert driver.find("net-1") is None
        assert driver.leftovers("net-1") == ()

    @pytest.mark.parametrize(
        ("wanted", "first", "least"),
        [(service(interface("i1", 100, bandwidth=8)), 0, 15), (fabnet(V4), SEGMENT, 28)],
        ids=["segment", "gateway"],
    )
    def test_a_service_that_dies_at_any_message_is_completed_or_removed(
        self,
        driver: LinuxBridgeService,
        monkeypatch: pytest.MonkeyPatch,
        wanted: NetworkService,
        first: int,
        least: int,
    ) -> None:
        number = first
        while _dies(driver, monkeypatch, wanted, number):
            assert driver.find("net-1") is None
            if number % 2:
                driver.apply(wanted)
                assert driver.differences(wanted) == ()
            driver.remove("net-1")
            assert driver.leftovers("net-1") == ()
            number += 1
        assert number > least


class Dying:
    """A kernel that takes a number of messages that change something, and no more."""

    def __init__(self, ip: Any, left: list[None]) -> None:
        self._ip, self._left = ip, left

    def __getattr__(self, method: str) -> Any:
        if method in {"link", "vlan_filter", "tc"}:
            _lives(self._left)
        return getattr(self._ip, method)


def _lives(left: list[None]) -> bool:
    if not left:
        raise DriverError("died")
    left.pop()
    return True


def _dies(
    driver: LinuxBridgeService, monkeypatch: pytest.MonkeyPatch, wanted: NetworkService, number: int
) -> bool:
    left, change = [None] * number, Namespaces.change
    with monkeypatch.context() as patched:
        name = "fabric_direct.drivers.linuxbridge.links.Editor"
        patched.setattr(name, lambda where, ip: Editor(where, Dying(ip, left)))
        patched.setattr(Namespaces, "change", lambda *a: change(*a) if _lives(left) else None)
        try:
            driver.apply(wanted)
        except DriverError:
            return True
    return False


class TestRefusals:
    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"inner_vlan": 5}, "interfaces[0].inner_vlan"),
            ({"mtu": 9000}, "interfaces[0].mtu"),
            ({"bandwidth": 10, "burst": 1}, "interfaces[0].burst"),
        ],
    )
    def test_what_it_cannot_serve_is_refused_by_its_field(
        self, driver: LinuxBridgeService, values: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidSliver) as refused:
            driver.check(service(interface("i1", 100, **values)))

        assert refused.value.field == field

    def test_a_port_that_the_host_has_an_address_on_is_refused(
        self, driver: LinuxBridgeService, worker: Worker
    ) -> None:
        worker.run("ip", "-n", "fd-sw1", "address", "add", "198.51.100.1/24", "dev", "p1")
        try:
            with pytest.raises(InvalidSliver, match=r"198\.51\.100\.1") as refused:
                driver.check(limited(None))
        finally:
            worker.run("ip", "-n", "fd-sw1", "address", "del", "198.51.100.1/24", "dev", "p1")
        assert refused.value.field == "interfaces[0].port"

    def test_this_kernel_has_what_services_need(self, site: Site) -> None:
        assert check_switch(site, "sw1").verdict is Verdict.OK


def test_the_whole_life(
    processor: HandlerProcessor, driver: LinuxBridgeService, wires: Wires
) -> None:
    ref = SliverRef(id="net-1", type="L2Bridge")
    done(processor.create(limited(20)).result())
    done(processor.modify(limited(10, interface("i3", 7, "p3"))).result())

    probed = done(processor.probe(ref).result()).observed
    assert probed
    assert (probed.state, probed.differences) == (State.RUNNING, ())
    assert [i.bandwidth for i in probed.interfaces] == [10, None, None]
    assert wires.cross("sw1/p1", "sw1/p3", 100, 7)
    done(processor.delete(ref).result())
    assert driver.leftovers("net-1") == ()


def test_a_switch_that_is_away_holds_up_nothing_else(site: Site, wires: Wires) -> None:
    away = site.switches["sw1"].model_copy(update={"netns": "fdlb-nowhere"})
    site = site.model_copy(update={"switches": {**site.switches, "away": away}})
    ref = SliverRef(id="net-1", type="L2Bridge")

    with HandlerProcessor(site) as processor:
        done(processor.create(limited(None)).result())
        assert wires.cross("sw1/p1", "sw1/p2", *VLANS)
        done(processor.delete(ref).result())
        outcome = processor.delete(SliverRef(id="unknown", type="L2Bridge")).result()

    assert outcome.status is Status.FAILED
    assert "fdlb-nowhere" in str(outcome.error)
