"""NICs of bare-metal slivers on networks of a real Neutron, attached to nodes of a real Ironic as VIFs.

A lab has a Neutron on request: ``lab build --neutron``, ``lab up --neutron``.
"""

import signal
from collections.abc import Callable, Iterator
from ipaddress import ip_interface
from itertools import count
from pathlib import Path
from typing import Any

import openstack
import pytest
from openstack.baremetal.v1._proxy import Proxy
from openstack.network.v2._proxy import Proxy as NeutronProxy
from openstack.network.v2.port import Port

from fabric_direct.drivers.ironic.driver import IronicBareMetal
from fabric_direct.model import Outcome, SliverRef, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import GuestSettings, Site
from tests.conftest import KEY
from tests.ironic.conftest import LAB, Enroll, Make, lab, ssh
from tests.ironic.test_life import ended, is_free
from tests.outcomes import done

REF = SliverRef(id="metal", type="BareMetal")
NIC: dict[str, Any] = {"id": "nic1", "network": "lab"}


@pytest.fixture
def neutron(ironic: Proxy) -> NeutronProxy:
    if "neutron:" not in lab("status"):
        pytest.skip(f"no Neutron in the lab: {LAB} build --neutron, up --neutron")
    return openstack.connect(cloud="ironic").network


@pytest.fixture
def flat(neutron: NeutronProxy, enroll: Enroll) -> str:
    """A node of fake hardware that VIFs can be attached to."""
    return enroll(network_interface="flat")


@pytest.fixture
def others(neutron: NeutronProxy) -> Iterator[Callable[..., Port]]:
    """Make a port on a network of the lab; it is gone afterwards."""
    made: list[Port] = []

    def port(network: str = "lab", **values: Any) -> Port:
        found = neutron.find_network(network, ignore_missing=False)
        made.append(neutron.create_port(network_id=found.id, **values))
        return made[-1]

    yield port
    for each in made:
        neutron.delete_port(each, ignore_missing=True)


def ports_of(neutron: NeutronProxy, site: Site) -> list[Port]:
    return list(neutron.ports(description=f"fabric-direct {site.site}/metal"))


def mac_of(ironic: Proxy, name: str) -> str:
    (port,) = ironic.ports(details=True, node=ironic.get_node(name).id)
    return str(port.address)


def vifs(ironic: Proxy, name: str) -> list[str]:
    return list(ironic.list_node_vifs(ironic.get_node(name)))


def addresses(outcome: Outcome) -> tuple[str, ...]:
    assert outcome.observed
    return outcome.observed.interfaces[0].addresses


def test_a_nic_is_a_port_with_its_mac_attached_while_the_sliver_is_there(
    processor: HandlerProcessor,
    ironic: Proxy,
    neutron: NeutronProxy,
    site: Site,
    flat: str,
    metal: Make,
) -> None:
    made = done(processor.create(metal(nics=[NIC])).result())

    (port,) = ports_of(neutron, site)
    assert (port.name, port.mac_address) == ("metal-nic1", mac_of(ironic, flat))
    assert port.binding_vnic_type == "baremetal"
    assert vifs(ironic, flat) == [port.id]
    (fixed,) = port.fixed_ips
    assert addresses(made) == (f"{fixed['ip_address']}/24",)

    again = done(processor.create(metal(nics=[NIC])).result())
    assert {step.status.value for step in again.steps} == {"already so"}
    done(processor.modify(metal(nics=[NIC], name="other")).result())
    assert addresses(done(processor.probe(metal(nics=[NIC], name="other")).result())) == addresses(
        made
    )

    done(processor.delete(REF).result())
    assert (ports_of(neutron, site), vifs(ironic, flat)) == ([], [])
    assert is_free(ironic, flat)


def test_a_rebuild_keeps_the_port_and_its_address(
    processor: HandlerProcessor,
    ironic: Proxy,
    neutron: NeutronProxy,
    site: Site,
    flat: str,
    metal: Make,
) -> None:
    made = done(processor.create(metal(nics=[NIC])).result())
    (port,) = ports_of(neutron, site)

    elsewhere = metal(nics=[NIC | {"network": "elsewhere"}], rebuild=True)
    refused = processor.modify(elsewhere).result()
    assert refused.status is Status.REFUSED
    assert vifs(ironic, flat) == [port.id]

    done(processor.modify(metal(nics=[NIC], ssh_keys=[KEY], rebuild=True)).result())
    assert [each.id for each in ports_of(neutron, site)] == vifs(ironic, flat) == [port.id]
    probed = done(processor.probe(metal(nics=[NIC], ssh_keys=[KEY])).result())
    assert addresses(probed) == addresses(made)
    done(processor.delete(REF).result())
    assert ports_of(neutron, site) == []


def test_a_network_may_be_named_by_its_id_and_the_address_be_chosen(
    processor: HandlerProcessor, neutron: NeutronProxy, site: Site, flat: str, metal: Make
) -> None:
    network = neutron.find_network("elsewhere", ignore_missing=False)
    nic = NIC | {"network": network.id, "ipv4": "192.0.2.77/24"}

    made = done(processor.create(metal(nics=[nic])).result())

    (port,) = ports_of(neutron, site)
    assert (port.network_id, port.fixed_ips[0]["ip_address"]) == (network.id, "192.0.2.77")
    assert addresses(made) == ("192.0.2.77/24",)
    done(processor.delete(REF).result())


def test_a_node_whose_network_interface_attaches_nothing_is_told_and_nothing_is_left(
    processor: HandlerProcessor,
    ironic: Proxy,
    neutron: NeutronProxy,
    site: Site,
    enroll: Enroll,
    metal: Make,
) -> None:
    name = enroll(network_interface="noop")

    outcome = processor.create(metal(nics=[NIC])).result()

    assert outcome.error
    assert "the node's network interface is noop" in outcome.error.message
    assert outcome.left == ()
    assert ports_of(neutron, site) == []
    assert is_free(ironic, name)


@pytest.mark.parametrize(
    ("nic", "field"),
    [
        ({"network": "nowhere"}, "nics[0].network"),
        ({"ipv4": "198.51.100.1/24"}, "nics[0].ipv4"),
    ],
)
def test_what_neutron_cannot_serve_is_refused_by_its_field_before_anything_is_touched(
    processor: HandlerProcessor,
    ironic: Proxy,
    flat: str,
    metal: Make,
    nic: dict[str, str],
    field: str,
) -> None:
    before = ironic.get_node(flat).updated_at

    outcome = processor.create(metal(nics=[NIC | nic])).result()

    assert (outcome.status, outcome.error and outcome.error.field) == (Status.REFUSED, field)
    assert ironic.get_node(flat).updated_at == before


def test_ports_and_vifs_of_others_stay(
    processor: HandlerProcessor,
    ironic: Proxy,
    neutron: NeutronProxy,
    flat: str,
    enroll: Enroll,
    others: Callable[..., Port],
    metal: Make,
) -> None:
    second = enroll(network_interface="flat")
    theirs = others(name="metal-nic1", mac_address=mac_of(ironic, second))
    ironic.attach_vif_to_node(second, theirs.id)

    done(processor.create(metal(node=flat, nics=[NIC])).result())
    done(processor.delete(REF).result())

    assert vifs(ironic, second) == [theirs.id]
    assert neutron.get_port(theirs.id).fixed_ips == theirs.fixed_ips
    ironic.detach_vif_from_node(second, theirs.id)


def test_a_mac_that_a_port_of_others_has_is_a_conflict_and_nothing_is_left(
    processor: HandlerProcessor,
    ironic: Proxy,
    neutron: NeutronProxy,
    site: Site,
    flat: str,
    others: Callable[..., Port],
    metal: Make,
) -> None:
    others(mac_address=mac_of(ironic, flat))

    outcome = processor.create(metal(nics=[NIC])).result()

    assert (outcome.error and outcome.error.kind, outcome.left) == ("Conflict", ())
    assert ports_of(neutron, site) == []
    assert is_free(ironic, flat)


def test_a_port_that_is_left_is_named_and_swept(
    processor: HandlerProcessor,
    ironic: Proxy,
    neutron: NeutronProxy,
    site: Site,
    flat: str,
    others: Callable[..., Port],
) -> None:
    """Also one that is attached to a node which is not the sliver's any more."""
    left = others(
        name="metal-nic1",
        description=f"fabric-direct {site.site}/metal",
        binding_vnic_type="baremetal",
        mac_address=mac_of(ironic, flat),
    )
    ironic.attach_vif_to_node(flat, left.id)

    assert IronicBareMetal(site).leftovers("metal") == (f"port metal-nic1 ({left.id})",)
    assert [thing.sliver for thing in IronicBareMetal(site).stamped()] == ["metal"]
    done(processor.delete(REF).result())

    assert (ports_of(neutron, site), vifs(ironic, flat)) == ([], [])
    assert IronicBareMetal(site).stamped() == ()


def test_a_vif_that_others_detach_is_a_difference(
    processor: HandlerProcessor,
    ironic: Proxy,
    neutron: NeutronProxy,
    site: Site,
    flat: str,
    metal: Make,
) -> None:
    done(processor.create(metal(nics=[NIC])).result())
    (port,) = ports_of(neutron, site)

    ironic.detach_vif_from_node(flat, port.id)
    outcome = done(processor.probe(metal(nics=[NIC])).result())

    assert outcome.observed
    assert outcome.observed.differences == (
        f"port metal-nic1 ({port.id}) is not attached to node {flat}",
    )
    done(processor.delete(REF).result())
    assert ports_of(neutron, site) == []


@pytest.mark.parametrize("operation", ["create", "delete"])
def test_killed_at_each_request_it_is_continued_or_deleted(
    site: Site, ironic: Proxy, neutron: NeutronProxy, enroll: Enroll, metal: Make, operation: str
) -> None:
    """Killed before and after each request that changes something: one port, or none."""
    names = [enroll(network_interface="flat") for _ in range(2)]
    wanted, killed = metal(nics=[NIC]), 0
    for at in count(1):
        codes = []
        for when in ("before", "after"):
            if operation == "delete":
                with HandlerProcessor(site) as processor:
                    done(processor.create(wanted).result())
            codes.append(ended(site, operation, REF if operation == "delete" else wanted, at, when))
            with HandlerProcessor(site) as processor:
                recovered = [future.result() for future in processor.recover()]
                assert all(outcome.ok for outcome in recovered), recovered
                attached = [vif for name in names for vif in vifs(ironic, name)]
                assert attached == [port.id for port in ports_of(neutron, site)]
                assert len(attached) == (operation == "create")
                done(processor.delete(REF).result())
            assert all(is_free(ironic, name) for name in names)
            assert ports_of(neutron, site) == []
        killed += codes.count(-signal.SIGKILL)
        if codes == [0, 0]:
            break
    assert killed >= 2 * {"create": 5, "delete": 3}[operation]


@pytest.fixture
def machine(ironic: Proxy, neutron: NeutronProxy) -> Iterator[str]:
    """A machine that VIFs can be attached to."""
    ironic.update_node("machine2", network_interface="flat")
    yield "machine2"
    ironic.update_node("machine2", network_interface="noop")


def test_a_machine_is_logged_in_to_at_the_address_that_neutron_chose(
    site: Site,
    ironic: Proxy,
    neutron: NeutronProxy,
    machine: str,
    metal: Make,
    key: Path,
    ours: Path,
) -> None:
    wanted = metal(
        image="guest",
        resource_class="baremetal",
        node=machine,
        nics=[NIC],
        ssh_keys=[key.with_suffix(".pub").read_text().strip()],
        wait_for="boot",
    )
    site = site.model_copy(update={"guest_access": GuestSettings(ssh_key=ours)})

    with HandlerProcessor(site) as processor:
        made = done(processor.create(wanted).result())

        (port,) = ports_of(neutron, site)
        (fixed,) = port.fixed_ips
        (chosen,) = addresses(made)
        assert str(ip_interface(chosen).ip) == fixed["ip_address"]
        assert made.observed
        assert chosen in made.observed.interfaces[0].guest_addresses
        assert ssh(key, fixed["ip_address"], "hostname").strip() == "box"
        known = site.state_dir / "known_hosts"
        assert known.read_text().startswith(f"{fixed['ip_address']} ")

        done(processor.delete(REF).result())
    assert known.read_text() == ""
    assert (ports_of(neutron, site), vifs(ironic, machine)) == ([], [])
