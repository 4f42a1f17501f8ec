"""Ports of one sliver in the VM of another, on a real libvirtd and QEMU."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import libvirt
import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import GuestAddress
from fabric_direct.drivers.guests.qemu_agent import AgentGuest
from fabric_direct.drivers.libvirt.domains.lookup import domain_uuid
from fabric_direct.model import NodeSliver, Outcome, SliverRef, State, Status
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.conftest import KEY
from tests.functional.apart import TAG
from tests.outcomes import done, made

NIC = {"type": "vNIC", "id": "nic1", "network": "red"}
MAC = "52:54:00:fd:70:01"
REF = SliverRef(id=f"{TAG}-carrier-net", type="vNICPorts")

WITH_VM = pytest.mark.xdist_group("carrier")


def carrier(number: int, *nics: dict[str, Any]) -> NodeSliver:
    """A VM; its id is the beginning of the ports' sliver's."""
    return NodeSliver.model_validate(
        {
            "id": f"{TAG}-carrier" if number == 1 else f"{TAG}-carrier{number}",
            "name": "node",
            "image": "tiny",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "ssh_keys": [KEY],
            "components": nics or (NIC,),
        }
    )


VM = carrier(1)


def net(server: str = VM.id, **values: Any) -> VNicPortsSliver:
    port = {"id": "p1", "server": server, "interface": {"mac": MAC, "port_security": False}}
    return VNicPortsSliver.model_validate(
        {"id": REF.id, "network": "blue", "ports": [port]} | values
    )


@pytest.fixture(scope="module")
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture(scope="module")
def mine(things: Callable[[], set[str]]) -> Callable[[], set[str]]:
    """Name what is there of these tests' slivers: others may have domains here."""
    ours = (f"{TAG}-carrier", "fd-", "/")
    return lambda: {thing for thing in things() if thing.startswith(ours)}


@pytest.fixture(scope="module")
def vm(processor: HandlerProcessor, mine: Callable[[], set[str]]) -> Iterator[NodeSliver]:
    """A running VM, which every test leaves there."""
    done(processor.create(VM).result())
    yield VM
    processor.delete(REF).result()
    done(processor.delete(VM.ref()).result())
    assert mine() == set()


@pytest.fixture
def other(processor: HandlerProcessor) -> Iterator[NodeSliver]:
    """Another one, which a test may delete."""
    yield from another(processor)


@pytest.fixture
def quick(unattended: Site) -> Iterator[HandlerProcessor]:
    """A processor that does not wait for guests to boot."""
    with HandlerProcessor(unattended) as processor:
        yield processor


@pytest.fixture
def unbooted(quick: HandlerProcessor) -> Iterator[NodeSliver]:
    """Another one, whose guest is not waited for."""
    yield from another(quick)


def another(processor: HandlerProcessor) -> Iterator[NodeSliver]:
    sliver = carrier(2)
    done(processor.create(sliver).result())
    yield sliver
    processor.delete(REF).result()
    done(processor.delete(sliver.ref()).result())


@pytest.fixture(autouse=True)
def no_ports(processor: HandlerProcessor) -> Iterator[None]:
    yield
    done(processor.delete(REF).result())


def definitions(connection: libvirt.virConnect, sliver_id: str) -> tuple[str, str]:
    """The domain as it runs, and as it is defined."""
    domain = connection.lookupByUUID(domain_uuid(sliver_id).bytes)
    return domain.XMLDesc(0), domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)


def in_guest(site: Site, vm: NodeSliver) -> bool:
    """Whether the guest sees the NIC."""
    guest = GuestAddress(vm.id, f"{vm.id}-{vm.name}", "root")
    return MAC in {nic.mac for nic in AgentGuest(site, "localhost").interfaces(guest)}


def seen_in_guest(site: Site, vm: NodeSliver) -> None:
    """See that the guest comes to see the NIC: after a plug it takes a moment."""
    wait_until("the NIC in the guest", lambda: in_guest(site, vm), timeout=300)


def elsewhere(
    site: Site, operation: str, sliver: SliverRef, patch: str = ""
) -> "subprocess.Popen[str]":
    """Begin an operation in another process, which prints the outcome."""
    code = f"""
        import os, signal
        from fabric_direct import HandlerProcessor, NodeSliver, Site, SliverRef
        from fabric_direct.drivers.libvirt.domains import unplug as detach
        from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute
        from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
        from fabric_direct.model.networks import VNicPortsSliver

        def after(owner, name):
            inner = getattr(owner, name)
            die = lambda: os.kill(os.getpid(), signal.SIGKILL)
            setattr(owner, name, lambda *a, **k: (inner(*a, **k), die()))

        {patch}
        site = Site.model_validate_json({site.model_dump_json()!r})
        sliver = {type(sliver).__name__}.model_validate_json({sliver.model_dump_json()!r})
        with HandlerProcessor(site) as processor:
            print(processor.{operation}(sliver).result().model_dump_json())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def outcome_of(process: "subprocess.Popen[str]") -> Outcome:
    said, _ = process.communicate(timeout=240)
    return Outcome.model_validate_json(said)


def kill(site: Site, operation: str, sliver: SliverRef, patch: str) -> None:
    """Run an operation in another process that kills itself when it comes to what is patched."""
    process = elsewhere(site, operation, sliver, patch)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


class TestAsAsked:
    @WITH_VM
    def test_a_port_comes_and_goes_while_the_guest_runs(
        self,
        processor: HandlerProcessor,
        site: Site,
        vm: NodeSliver,
        connection: libvirt.virConnect,
    ) -> None:
        outcome = done(processor.create(net()).result())

        assert outcome.observed
        (nic,) = outcome.observed.interfaces
        assert (nic.mac, nic.network, nic.port_security) == (MAC, "blue", False)
        assert all(MAC in xml for xml in definitions(connection, vm.id))
        seen_in_guest(site, vm)
        assert made(done(processor.create(net()).result())) == set()

        done(processor.delete(REF).result())

        assert not any(MAC in xml for xml in definitions(connection, vm.id))
        assert not in_guest(site, vm)
        assert processor.probe(REF).result().observed.state is State.ABSENT  # type: ignore[union-attr]

    @WITH_VM
    def test_the_vms_own_sliver_lets_it_be(
        self,
        processor: HandlerProcessor,
        site: Site,
        vm: NodeSliver,
        connection: libvirt.virConnect,
    ) -> None:
        done(processor.create(net()).result())

        for sliver in (vm, vm.ref()):
            observed = done(processor.probe(sliver).result()).observed
            assert observed
            assert observed.differences == ()
        assert made(done(processor.create(vm).result())) == set()
        more = carrier(1, NIC, {"type": "vNIC", "id": "nic2", "network": "blue"})
        done(processor.modify(more).result())
        done(processor.modify(vm).result())
        done(processor.poa(vm, "reboot").result())

        assert all(MAC in xml for xml in definitions(connection, vm.id))
        seen_in_guest(site, vm)
        assert done(processor.probe(net()).result()).observed.differences == ()  # type: ignore[union-attr]

    @WITH_VM
    def test_a_port_gets_another_network_and_mac_and_a_limit(
        self, processor: HandlerProcessor, vm: NodeSliver, connection: libvirt.virConnect
    ) -> None:
        done(processor.create(net()).result())
        port = {"id": "p1", "server": vm.id, "interface": {"mac": "52:54:00:fd:70:02"}}

        observed = done(processor.modify(net(network="red", ports=[port])).result()).observed

        assert observed
        assert [(i.network, i.mac) for i in observed.interfaces] == [("red", "52:54:00:fd:70:02")]
        assert not any(MAC in xml for xml in definitions(connection, vm.id))
        done(processor.modify(net(ports=[])).result())
        assert processor.probe(REF).result().observed.state is State.ABSENT  # type: ignore[union-attr]

    def test_of_a_vm_that_is_not_there_is_refused_by_field(
        self, processor: HandlerProcessor, site: Site
    ) -> None:
        outcome = processor.create(net(f"{TAG}-nobody")).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == "ports[0].server"

    def test_of_a_domain_that_is_not_ours_touches_nothing(
        self, processor: HandlerProcessor, connection: libvirt.virConnect
    ) -> None:
        uuid = domain_uuid(f"{TAG}-foreign")
        xml = f"""<domain type='qemu'><name>{TAG}-foreign</name><uuid>{uuid}</uuid>
            <memory>1024</memory><os><type>hvm</type></os></domain>"""
        domain = connection.defineXML(xml)
        try:
            before = domain.XMLDesc(0)
            outcome = processor.create(net(f"{TAG}-foreign")).result()
            assert domain.XMLDesc(0) == before
        finally:
            domain.undefine()

        assert outcome.error
        assert (outcome.error.kind, outcome.error.field) == ("NotOurs", "ports[0].server")
        assert outcome.left == ()


class TestTheVmGoes:
    def test_first_and_the_port_stays_until_its_own_sliver_goes(
        self, quick: HandlerProcessor, unbooted: NodeSliver, mine: Callable[[], set[str]]
    ) -> None:
        done(quick.create(net(unbooted.id)).result())

        deleted = done(quick.delete(unbooted.ref()).result())

        assert deleted.left == ()
        observed = done(quick.probe(net(unbooted.id)).result()).observed
        assert observed
        assert observed.state is State.ERROR
        assert observed.differences == ("port p1 is plugged into no server",)
        assert any(name.endswith("-blue") for name in mine())
        done(quick.delete(REF).result())
        assert not any(name.endswith("-blue") for name in mine())

    def test_at_the_same_time_in_another_process(
        self, processor: HandlerProcessor, site: Site, other: NodeSliver
    ) -> None:
        done(processor.create(net(other.id)).result())

        both = [elsewhere(site, "delete", ref) for ref in (other.ref(), REF)]

        for process in both:
            assert done(outcome_of(process)).left == ()


@WITH_VM
class TestTogether:
    def test_the_vm_is_modified_while_a_port_is_plugged_in_by_another_process(
        self,
        processor: HandlerProcessor,
        site: Site,
        vm: NodeSliver,
        connection: libvirt.virConnect,
    ) -> None:
        more = carrier(1, NIC, {"type": "vNIC", "id": "nic2", "network": "blue"})

        plugging = elsewhere(site, "create", net())
        done(processor.modify(more).result())

        done(outcome_of(plugging))
        assert all(MAC in xml for xml in definitions(connection, vm.id))
        done(processor.modify(vm).result())
        seen_in_guest(site, vm)


@WITH_VM
class TestKilled:
    HELD, PLUGGED = "after(LibvirtNetwork, 'create_port')", "after(LibvirtCompute, 'attach_port')"

    @pytest.mark.parametrize(
        ("operation", "patch"),
        [("create", HELD), ("create", PLUGGED), ("delete", PLUGGED), ("recover", PLUGGED)],
    )
    def test_a_creation_is_finished_or_taken_back_by_the_next(
        self,
        processor: HandlerProcessor,
        site: Site,
        vm: NodeSliver,
        operation: str,
        patch: str,
        connection: libvirt.virConnect,
    ) -> None:
        kill(site, "create", net(), patch)

        if operation == "recover":
            (outcome,) = (future.result() for future in processor.recover())
        else:
            outcome = getattr(processor, operation)(net()).result()

        done(outcome)
        there = operation != "delete"
        assert all((MAC in xml) is there for xml in definitions(connection, vm.id))
        assert processor.unfinished() == ()

    @pytest.mark.parametrize(
        "patch", ["after(detach, '_detach_live')", "after(LibvirtCompute, 'detach_port')"]
    )
    def test_a_deletion_is_finished_by_the_next(
        self,
        processor: HandlerProcessor,
        site: Site,
        vm: NodeSliver,
        patch: str,
        connection: libvirt.virConnect,
    ) -> None:
        done(processor.create(net()).result())
        kill(site, "delete", REF, patch)

        (outcome,) = (future.result() for future in processor.recover())

        assert done(outcome).left == ()
        assert not any(MAC in xml for xml in definitions(connection, vm.id))
