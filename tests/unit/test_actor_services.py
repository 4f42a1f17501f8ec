"""The actor's network services: FIM's slivers as ours, and the handler's answers, on the fake driver."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabric_direct.actor import NetworkServiceHandler, fim_services
from fabric_direct.actor.site import processor_of
from fabric_direct.drivers.fake import Substrate
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Operation
from fabric_direct.model.services import SERVICES
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from labs.network.al2s_standin import OWNER, Al2s
from labs.network.nso_standin import Controller
from tests.unit import al2s_services, nso_services

RESERVATION = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
PORT = "HundredGigE0/0/0/5"
LABELS = (
    *("mac", "vlan", "inner_vlan", "ipv4", "ipv4_subnet", "ipv6", "ipv6_subnet", "asn", "bgp_key"),
    *("account_id", "local_name", "device_name", "instance", "instance_parent", "bdf"),
)
nso, nso_site = nso_services.nso, nso_services.site
al2s, al2s_site = al2s_services.al2s, al2s_services.site
V4 = {"ipv4": "10.128.1.1", "ipv4_subnet": "10.128.1.0/24"}
V6 = {"ipv6": "2602:fcfb:1d::1", "ipv6_subnet": "2602:fcfb:1d::/64"}


class Labels(SimpleNamespace):
    def __init__(self, **values: Any) -> None:
        super().__init__(**(dict.fromkeys(LABELS) | values))


def labels(**values: Any) -> Any:
    return Labels(**values)


def sliver(name: str, kind: str, **values: Any) -> Any:
    has = dict.fromkeys(("labels", "label_allocations", "flags", "capacities")) | values
    getters = {"get_name": name, "get_type": kind, "get_model": None}
    return SimpleNamespace(**has, **{g: (lambda v=v: v) for g, v in getters.items()})


def at(
    device: str | None = "sw1", port: str | None = PORT, vlan: str | None = "100", **more: Any
) -> Any:
    """Labels of an interface as the broker leaves them."""
    return labels(device_name=device, local_name=port, vlan=vlan, **more)


def interface(
    where: Any = None,
    *,
    bw: Any = 0,
    burst: Any = 0,
    mtu: Any = 0,
    peer: Any = None,
    was: Any = None,
) -> Any:
    """An interface; ``was``: its labels, where they are not its allocations."""
    capacities = SimpleNamespace(bw=bw, burst_size=burst, mtu=mtu)
    given = where or at()
    made = sliver("any", "ServicePort", label_allocations=given, labels=was or given)
    made.capacities, made.peer_labels = capacities, peer
    return made


def service(kind: str, *interfaces: Any, name: str = "net1", **values: Any) -> Any:
    """A network service, whose interfaces are named i1, i2 and so on."""
    more = ("gateway", "ero", "mirror_port", "mirror_vlan", "mirror_direction", "technology")
    made = sliver(name, kind, **(dict.fromkeys(more) | values))
    named = {f"i{number}": each for number, each in enumerate(interfaces or (interface(),), 1)}
    made.interface_info = SimpleNamespace(interfaces=named)
    return made


def unit(service: Any, modified: Any = None, rid: str = RESERVATION, kind: str = "L2Bridge") -> Any:
    return SimpleNamespace(
        get_sliver=lambda: service,
        get_modified=lambda: modified,
        get_reservation_id=lambda: rid,
        get_properties=dict,
        get_resource_type=lambda: kind,
    )


def gateway(**values: str) -> Any:
    return SimpleNamespace(lab=labels(**values))


def route(a2z: list[str], z2a: list[str], kind: str = "Path") -> Any:
    return SimpleNamespace(get=lambda: (kind, SimpleNamespace(get=lambda: (a2z, z2a))))


TWO = (interface(), interface(at("sw2")))
MIRROR = {"mirror_port": "HundredGigE0/0/0/7", "mirror_direction": "RX_Only"}
PEER = {"asn": "65001", "ipv4_subnet": "192.168.7.2/30", "bgp_key": "s3cret-key"}
LOCAL = at(ipv4_subnet="192.168.7.1/30")
VPN = {"labels": labels(asn="398900")}


def vpn(**peer: Any) -> Any:
    return service("L3VPN", interface(LOCAL, peer=labels(**(PEER | peer))), **VPN)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ports: dict[str, Any] = {PORT: {}, "HundredGigE0/0/0/6": {}, "HundredGigE0/0/0/7": {}}
    document = {
        "site": "TEST",
        "state_dir": str(tmp_path / "state"),
        "drivers": {"VM": "fake", **dict.fromkeys(SERVICES, "fake")},
        "guest": "fake",
        "switches": {"sw1": {"ports": ports}, "sw2": {"ports": ports}},
        "limits": {"busy": 0.1},
    }
    path = tmp_path / "site.yaml"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def handler(path: Path) -> NetworkServiceHandler:
    properties = {"config.properties.file": str(path)}
    return NetworkServiceHandler(logging.getLogger("actor"), properties, None)


@pytest.fixture
def site(path: Path) -> Site:
    return processor_of({"config.properties.file": str(path)}).site


def handler_of(site: Site, path: Path) -> NetworkServiceHandler:
    """Return the handler of a site, which is written to a file below a directory."""
    written = path / f"{site.site}-controller.yaml"
    written.write_text(site.model_dump_json(exclude_defaults=True))
    properties = {"config.properties.file": str(written)}
    return NetworkServiceHandler(logging.getLogger("actor"), properties, None)


def translated(site: Site, service: Any) -> dict[str, Any]:
    made = fim_services.network_service(site, unit(service), service)
    values = made.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return {name: value for name, value in values.items() if name not in {"id", "name", "type"}}


def refused(site: Site, service: Any) -> InvalidSliver:
    with pytest.raises(InvalidSliver) as error:
        fim_services.network_service(site, unit(service), service)
    return error.value


def code(answer: Any) -> tuple[int, str]:
    result, _ = answer
    return result["target.code"], result.get("exception.message", "")


_FAST = {"bandwidth": 10_000, "burst": 3_000}


class TestTranslation:
    AT = {"id": "i1", "device": "sw1", "port": PORT, "vlan": 100}

    def test_the_reservation_is_the_id_and_the_sliver_has_the_name(self, site: Site) -> None:
        made = service("L2Bridge", name="net1")
        found = fim_services.network_service(site, unit(made), made)
        assert (found.id, found.type, found.name) == (RESERVATION, "L2Bridge", "net1")

    def test_unless_its_labels_have_a_name_for_it(self, site: Site) -> None:
        made = service("L2Bridge", labels=labels(local_name="my-slice"))
        assert fim_services.network_service(site, unit(made), made).name == "my-slice"

    @pytest.mark.parametrize(
        ("made", "expected"),
        [
            (interface(), {}),
            (interface(at(vlan=None)), {"vlan": "untagged"}),
            (interface(at(vlan="0")), {"vlan": "untagged"}),
            (interface(at(inner_vlan="7")), {"inner_vlan": 7}),
            (interface(at(mac="52:54:00:00:00:AA")), {"mac": "52:54:00:00:00:aa"}),
            (interface(mtu=9000), {"mtu": 9000}),
            (interface(bw=10), {"bandwidth": 10_000}),
            (interface(bw=10, burst=3), {"bandwidth": 10_000, "burst": 3_000}),
            (interface(burst=3), {}),
            (interface(bw=10, burst=None), {"bandwidth": 10_000}),
            (interface(bw="10", burst="3", mtu="9000"), {**_FAST, "mtu": 9_000}),
            (interface(at(ipv4="10.1.1.1")), {}),
        ],
    )
    def test_an_interface_is_where_and_as_it_was_decided(
        self, made: Any, expected: dict[str, Any], site: Site
    ) -> None:
        (found,) = translated(site, service("L2Bridge", made))["interfaces"]
        assert found == self.AT | expected

    def test_an_allocation_counts_more_than_a_label(self, site: Site) -> None:
        made = interface(labels(vlan="200"), was=at(vlan="100"))
        (found,) = translated(site, service("L2Bridge", made))["interfaces"]
        assert found == self.AT | {"vlan": 200}

    def test_bursts_are_in_the_unit_of_the_site(self, site: Site) -> None:
        actor = site.actor.model_copy(update={"burst_unit": "MB"})
        megabytes = site.model_copy(update={"actor": actor})
        (found,) = translated(megabytes, service("L2Bridge", interface(bw=1, burst=2)))[
            "interfaces"
        ]
        assert found["burst"] == 16_000

    @pytest.mark.parametrize(
        ("kind", "given", "subnet"), [("FABNetv4", V4, 24), ("FABNetv6", V6, 64)]
    )
    def test_a_fabnet_has_its_gateway_and_addresses(
        self, kind: str, given: dict[str, str], subnet: int, site: Site
    ) -> None:
        family = "ipv4" if kind == "FABNetv4" else "ipv6"
        chosen = f"{given[family][:-1]}9"
        made = service(kind, interface(at(**{family: chosen}), bw=100), gateway=gateway(**given))
        assert translated(site, made) == {
            "interfaces": [self.AT | {"address": f"{chosen}/{subnet}"}],
            "gateway": {"address": f"{given[family]}/{subnet}"},
        }

    def test_a_gateway_may_have_a_mac(self, site: Site) -> None:
        made = service("FABNetv4", gateway=gateway(**V4, mac="02:00:00:00:00:01"))
        assert translated(site, made)["gateway"]["mac"] == "02:00:00:00:00:01"

    @pytest.mark.parametrize(
        ("given", "public"),
        [
            (None, []),
            ("10.128.1.7", ["10.128.1.7"]),
            (["10.128.1.7", "10.128.1.8"], ["10.128.1.7", "10.128.1.8"]),
        ],
    )
    def test_public_addresses_are_one_or_several_or_none(
        self, given: Any, public: list[str], site: Site
    ) -> None:
        made = service("FABNetv4Ext", gateway=gateway(**V4), labels=labels(ipv4=given))
        assert translated(site, made)["public"] == public

    def test_a_neighbor_is_a_peer(self, site: Site) -> None:
        assert translated(site, vpn()) == {
            "asn": 398900,
            "interfaces": [
                self.AT
                | {
                    "peer": {
                        "local": "192.168.7.1/30",
                        "address": "192.168.7.2",
                        "asn": 65001,
                        "key": "s3cret-key",
                    }
                }
            ],
        }

    def test_of_a_cloud_with_its_account(self, site: Site) -> None:
        made = vpn(local_name="Google Cloud Platform", account_id="7e51371e/us-central1/2")
        (found,) = translated(site, made)["interfaces"]
        assert (found["peer"]["cloud"], found["peer"]["account"]) == (
            "GCP",
            "7e51371e/us-central1/2",
        )

    @pytest.mark.parametrize("peer", [None, labels()])
    def test_without_a_neighbor_it_is_the_gateway(self, peer: Any, site: Site) -> None:
        made = service("L3VPN", interface(LOCAL, peer=peer), **VPN)
        (found,) = translated(site, made)["interfaces"]
        assert found["gateway"] == {"address": "192.168.7.1/30"}

    def test_of_al2s_bandwidth_is_asked_for_too(self, site: Site) -> None:
        made = service("L3VPN", interface(LOCAL, bw=2), technology="AL2S", **VPN)
        assert translated(site, made)["interfaces"][0]["bandwidth"] == 2000

    def test_a_circuit_of_al2s_is_refused(self, site: Site) -> None:
        """fabric_am does nothing for it, and reports success."""
        with pytest.raises(InvalidSliver) as caught:
            fim_services.service_of(service("L2PTP", *TWO, technology="AL2S"))
        assert caught.value.field == "technology"

    def test_a_mirror_has_port_vlan_and_direction(self, site: Site) -> None:
        made = service("PortMirror", **MIRROR, mirror_vlan="7")
        assert translated(site, made)["mirror"] == {
            "port": "HundredGigE0/0/0/7",
            "vlan": 7,
            "direction": "rx",
        }

    def test_a_route_is_its_hops_without_the_links(self, site: Site) -> None:
        ero = route(["10.0.0.1", "link:a+b", "10.0.0.2"], ["10.0.0.2", "10.0.0.1"])
        assert translated(site, service("L2PTP", *TWO, ero=ero))["ero"] == {
            "a2z": ["10.0.0.1", "10.0.0.2"],
            "z2a": ["10.0.0.2", "10.0.0.1"],
        }

    def test_a_route_of_links_alone_is_none(self, site: Site) -> None:
        ero = route(["link:a"], ["link:a"])
        assert "ero" not in translated(site, service("L2PTP", *TWO, ero=ero))


def _named(*interfaces: tuple[Any, Any]) -> Any:
    """A segment with these interfaces, by their names."""
    made = service("L2Bridge")
    made.interface_info.interfaces = dict(interfaces)
    return made


_AT = "interface_info.interfaces[i1]"
_SECOND = "interface_info.interfaces[i2]"


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("made", "field"),
        [
            (service("L2Bridge", interface(at(device=None))), f"{_AT}.labels.device_name"),
            (service("L2Bridge", interface(at(port=None))), f"{_AT}.labels.local_name"),
            (service("L2Bridge", interface(at(vlan="4095"))), f"{_AT}.labels.vlan"),
            (service("L2Bridge", interface(at(vlan="x"))), f"{_AT}.labels.vlan"),
            (service("L2Bridge", interface(at(vlan="auto"))), f"{_AT}.labels.vlan"),
            (service("L2Bridge", interface(at(inner_vlan="auto"))), f"{_AT}.labels.inner_vlan"),
            (service("L2Bridge", interface(at(mac="aa"))), f"{_AT}.labels.mac"),
            (service("L2Bridge", interface(bw="ten")), f"{_AT}.capacities.bw"),
            (service("L2Bridge", interface(bw=0.5)), f"{_AT}.capacities.bw"),
            (service("L2Bridge", interface(bw=1, burst="x")), f"{_AT}.capacities.burst_size"),
            (_named(("i1", None)), _AT),
            (_named((5, interface())), "interface_info.interfaces"),
            (service("L2Bridge", interface(bw=10_000_000)), f"{_AT}.capacities.bw"),
            (service("L2Bridge", interface(mtu=9)), f"{_AT}.capacities.mtu"),
            (service("L2Bridge", *TWO), "interface_info.interfaces"),
            (service("L2Bridge", name=""), "resource_name"),
            (
                service("L2PTP", interface(at("sw2")), interface(at(vlan=None))),
                f"{_SECOND}.labels.vlan",
            ),
            (service("L2STS"), "interface_info.interfaces"),
            (service("FABNetv4"), "gateway.lab.ipv4"),
            (service("FABNetv4", gateway=gateway(ipv4="10.1.1.1")), "gateway.lab.ipv4_subnet"),
            (service("FABNetv6", gateway=gateway(**V4)), "gateway.lab.ipv6"),
            (
                service("FABNetv4", interface(at(ipv4="10.9.9.9")), gateway=gateway(**V4)),
                f"{_AT}.labels.ipv4",
            ),
            (service("FABNetv4", gateway=gateway(**V4 | {"ipv4": "10.9.0.1"})), "gateway.lab.ipv4"),
            (
                service("FABNetv6", gateway=gateway(**V6 | {"ipv6": "2602::1"})),
                "gateway.lab.ipv6",
            ),
            (
                service("FABNetv4", gateway=gateway(**V4 | {"ipv4_subnet": "10.128.1.0/x"})),
                "gateway.lab.ipv4_subnet",
            ),
            (
                service(
                    "FABNetv4",
                    interface(at(ipv4="10.128.1.9", ipv4_subnet="10.128.2.0/24")),
                    gateway=gateway(**V4),
                ),
                f"{_AT}.labels.ipv4",
            ),
            (
                service("FABNetv4Ext", gateway=gateway(**V4), labels=labels(ipv4="1.1.1.1")),
                "labels.ipv4",
            ),
            (service("L3VPN", interface(LOCAL)), "labels.asn"),
            (service("L3VPN", interface(), **VPN), f"{_AT}.labels.ipv4_subnet"),
            (vpn(asn=None), f"{_AT}.peer_labels.asn"),
            (vpn(ipv4_subnet=None), f"{_AT}.peer_labels.ipv4_subnet"),
            (vpn(ipv4_subnet="10.1.1.1/30"), f"{_AT}.peer_labels.ipv4_subnet"),
            (vpn(account_id="123", local_name="Azure"), f"{_AT}.peer_labels.local_name"),
            (service("PortMirror", mirror_direction="Both"), "mirror_port"),
            (service("PortMirror", mirror_port="p1"), "mirror_direction"),
            (service("PortMirror", **MIRROR, mirror_vlan="5000"), "mirror_vlan"),
            (service("PortMirror", **(MIRROR | {"mirror_port": PORT})), "mirror_port"),
            (service("L2PTP", *TWO, ero=route(["a"], ["b"], "Graph")), "ero"),
            (service("L2PTP", *TWO, ero=route(["a"], [])), "ero.z2a"),
            (service("L2STS", *TWO, ero=route(["a"], ["b"])), "ero"),
            (service("L2Bridge", mirror_port="p1"), "mirror_port"),
            (service("L2Bridge", mirror_vlan="5"), "mirror_vlan"),
            (
                service("FABNetv4", gateway=gateway(**V4), mirror_direction="Both"),
                "mirror_direction",
            ),
            (service("L2Bridge", controller_url="tcp:192.0.2.1:6653"), "controller_url"),
            (service("PortMirror", **MIRROR, controller_url="x"), "controller_url"),
        ],
    )
    def test_is_named_by_fims_field(self, made: Any, field: str, site: Site) -> None:
        assert refused(site, made).field == field

    def test_no_message_has_a_key(self, site: Site) -> None:
        error = refused(site, vpn(bgp_key="geheim schlüssel"))
        assert (error.field, "geheim" in str(error)) == (f"{_AT}.peer_labels.bgp_key", False)

    @pytest.mark.parametrize("kind", ["L2Path", "OVS", "VM"])
    def test_other_types_are_not_served(self, kind: str) -> None:
        with pytest.raises(InvalidSliver, match="resource_type"):
            fim_services.service_of(service(kind))

    def test_nor_is_a_unit_without_a_sliver(self) -> None:
        with pytest.raises(InvalidSliver, match="sliver"):
            fim_services.service_of(None)


EACH = {
    "L2Bridge": service("L2Bridge"),
    "L2PTP": service("L2PTP", *TWO),
    "L2STS": service("L2STS", *TWO),
    "FABNetv4": service("FABNetv4", gateway=gateway(**V4)),
    "FABNetv6": service("FABNetv6", gateway=gateway(**V6)),
    "FABNetv4Ext": service("FABNetv4Ext", gateway=gateway(**V4)),
    "FABNetv6Ext": service("FABNetv6Ext", gateway=gateway(**V6)),
    "L3VPN": vpn(),
    "PortMirror": service("PortMirror", **MIRROR),
}
CREATED = {"target.name": "create", "target.code": 0, "action.sequence": 0}


class TestTheHandler:
    @pytest.mark.parametrize("kind", SERVICES)
    def test_creates_and_deletes_each_type(
        self, kind: str, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        asked = unit(EACH[kind])

        assert handler.create(asked) == (CREATED, asked)
        assert [(s.id, s.type) for s in fakes.services.values()] == [(RESERVATION, kind)]
        assert code(handler.delete(asked)) == (0, "")
        assert not fakes.services

    def test_changes_an_interface(self, handler: NetworkServiceHandler, fakes: Substrate) -> None:
        was, now = (
            service("L2Bridge"),
            service("L2Bridge", interface(bw=5), interface(at(vlan="101"))),
        )
        handler.create(unit(was))

        assert code(handler.modify(unit(was, now))) == (0, "")
        found = fakes.services[RESERVATION].interfaces
        assert [(i.vlan, i.bandwidth) for i in found] == [(100, 5000), (101, None)]

    def test_changes_nothing_where_nothing_differs(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        was = service("L2Bridge")
        handler.create(unit(was))
        made = fakes.services[RESERVATION]

        assert code(handler.modify(unit(was, service("L2Bridge")))) == (0, "")
        assert fakes.services[RESERVATION] is made

    @pytest.mark.parametrize(
        ("now", "field"),
        [
            (service("L2STS", *TWO), "resource_type"),
            (service("L2Bridge", name="net2"), "resource_name"),
        ],
    )
    def test_changes_neither_type_nor_name(
        self, now: Any, field: str, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        was = service("L2Bridge")
        handler.create(unit(was))
        made = fakes.services[RESERVATION]

        failed, why = code(handler.modify(unit(was, now)))

        assert (failed, why) == (-1, f"{field}: cannot be changed")
        assert fakes.services[RESERVATION] is made

    def test_a_service_that_is_not_there_is_not_modified(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        failed, why = code(handler.modify(unit(service("L2Bridge"))))
        assert (failed, "is not there" in why, dict(fakes.services)) == (-1, True, {})

    @pytest.mark.parametrize(
        ("properties", "who"),
        [
            ({"email": "a@b.org", "project_id": "p1"}, "actor for email a@b.org, project_id p1"),
            ({"user.ssh.key": "ssh-ed25519 AAAA"}, "actor"),
            (None, "actor"),
            ("odd", "actor"),
        ],
    )
    def test_the_history_names_who_asked_the_actor(
        self, handler: NetworkServiceHandler, path: Path, properties: Any, who: str
    ) -> None:
        asked = unit(service("L2Bridge"))
        asked.get_properties = lambda: properties
        handler.create(asked)
        record = processor_of({"config.properties.file": str(path)}).history(RESERVATION)[-1]
        assert (record.operation, record.asked_by) == ("create", who)

    def test_a_vlan_that_is_taken_is_told_with_its_holder(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        handler.create(unit(service("L2Bridge")))
        failed, why = code(handler.create(unit(service("L2Bridge"), rid=OTHER)))
        assert (failed, RESERVATION in why) == (-1, True)
        assert list(fakes.services) == [RESERVATION]

    def test_a_deletion_that_leaves_something_is_not_done(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        handler.create(unit(service("L2Bridge")))
        fakes.fault("service.remove", at=0, kind="fail")

        failed, why = code(handler.delete(unit(service("L2Bridge"))))

        assert (failed, "left: net1" in why) == (-1, True)
        assert RESERVATION in fakes.services

    def test_a_unit_without_a_sliver_is_deleted_and_complained_of(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        handler.create(unit(EACH["L2STS"]))

        failed, why = code(handler.delete(unit(None, kind="L2STS")))

        assert (failed, why) == (-1, "sliver: is missing; the reservation was deleted")
        assert not fakes.services

    def test_has_no_operational_actions(self, handler: NetworkServiceHandler, site: Site) -> None:
        answer, _ = handler.poa(unit(service("L2Bridge")), {"operation": "reboot", "poa_id": "1"})
        assert answer["target.code"] == -1
        assert answer["poa_info"] == {"operation": "reboot", "poa_id": "1", "code": -1}
        assert answer["exception.message"].startswith("operation: network services have no")

    def test_writes_where_an_interface_is_as_read(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        made = service("L2Bridge", interface(was=at(vlan="100")))
        made.interface_info.interfaces["i1"].label_allocations = None

        assert code(handler.create(unit(made))) == (0, "")

        written = made.interface_info.interfaces["i1"].label_allocations
        assert (written.device_name, written.local_name, written.vlan) == ("sw1", PORT, "100")
        assert written.inner_vlan is None

    def test_writes_the_inner_vlan_of_each_interface_as_read(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        """Two may have the same port and the same outer VLAN."""
        inner = {"i1": "7", "i2": "8"}
        made = service("L2Bridge", *(interface(was=at(inner_vlan=vlan)) for vlan in inner.values()))
        for each in made.interface_info.interfaces.values():
            each.label_allocations = None

        assert code(handler.create(unit(made))) == (0, "")

        written = {name: i.label_allocations for name, i in made.interface_info.interfaces.items()}
        assert {name: labels.inner_vlan for name, labels in written.items()} == inner
        assert {labels.vlan for labels in written.values()} == {"100"}

    @pytest.mark.parametrize("inner", [None, "7"])
    def test_writes_no_vlan_where_an_interface_has_none_any_more(
        self, inner: str | None, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        """Asked again with either sliver, the interface stays untagged."""
        tagged = at(vlan="100", inner_vlan=inner)
        was = service("L2Bridge", interface(at(vlan="100", inner_vlan=inner), was=tagged))
        now = service("L2Bridge", interface(at(vlan=None)))
        assert code(handler.create(unit(was))) == (0, "")

        assert code(handler.modify(unit(was, now))) == (0, "")
        for again in (was, now):
            assert code(handler.modify(unit(again))) == (0, "")
            (made,) = fakes.services[RESERVATION].interfaces
            assert (made.vlan, made.inner_vlan) == ("untagged", None)

        (port,) = was.interface_info.interfaces.values()
        assert (port.label_allocations.vlan, port.label_allocations.inner_vlan) == (None, None)

    def test_leaves_a_vlan_of_0_as_it_was_decided(self, handler: NetworkServiceHandler) -> None:
        made = service("L2Bridge", interface(at(vlan="0")))

        assert code(handler.create(unit(made))) == (0, "")

        assert made.interface_info.interfaces["i1"].label_allocations.vlan == "0"

    @pytest.mark.parametrize("operation", ["create", "modify", "delete"])
    def test_refuses_a_unit_without_a_reservation_id(
        self, operation: str, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        asked: Any = unit(service("L2Bridge"))
        asked.get_reservation_id = lambda: None

        assert code(getattr(handler, operation)(asked)) == (-1, "reservation_id: is missing")
        assert not fakes.services

    def test_writes_it_also_where_a_controller_keeps_no_ids(
        self, nso_site: Site, tmp_path: Path
    ) -> None:
        handler = handler_of(nso_site, tmp_path)
        made = service("L2STS", interface(at("sw2", vlan="200")), interface(was=at(vlan="100")))
        made.interface_info.interfaces["i2"].label_allocations = None

        assert code(handler.create(unit(made))) == (0, "")

        written = made.interface_info.interfaces["i2"].label_allocations
        assert (written.device_name, written.local_name, written.vlan) == ("sw1", PORT, "100")

    @pytest.mark.parametrize("turned", [False, True], ids=["neighbor first", "neighbor last"])
    def test_makes_a_vpn_whose_device_has_a_neighbor_on_one_interface_and_none_on_another(
        self, turned: bool, nso_site: Site, nso: Controller, tmp_path: Path
    ) -> None:
        handler = handler_of(nso_site, tmp_path)
        mine = [
            interface(LOCAL, peer=labels(**PEER)),
            interface(at(vlan="101", ipv4_subnet="10.2.0.1/24")),
        ]
        other = interface(at("sw2", ipv4_subnet="10.3.0.1/24"))
        made = service("L3VPN", *(reversed(mine) if turned else mine), other, **VPN)

        assert code(handler.create(unit(made))) == (0, "")

        (instance,) = nso.services["l3vpn:l3vpn"]
        sites = {site["device"]: set(site) - {"device"} for site in instance["site"]}
        assert sites == {"sw1": {"bgp", "direct"}, "sw2": {"direct"}}
        assert code(handler.modify(unit(made, modified=made))) == (0, "")
        assert code(handler.delete(unit(made))) == (0, "")
        assert nso.names() == []

    def test_writes_the_gateways_mac_as_read(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        made = service("FABNetv4", gateway=gateway(**V4, mac="02:00:00:00:00:AB"))
        handler.create(unit(made))
        assert made.gateway.lab.mac == "02:00:00:00:00:ab"

    def test_what_cannot_be_written_back_is_not_left_there(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        class Closed(SimpleNamespace):
            def __setattr__(self, name: str, value: Any) -> None:
                raise TypeError("cannot be written")

        made = service("L2Bridge", interface(Closed(**vars(at()))))
        assert code(handler.create(unit(made))) == (-1, "cannot be written")
        assert not fakes.services

    def test_a_clean_restart_deletes_what_was_begun_and_nothing_else(
        self, handler: NetworkServiceHandler, fakes: Substrate, site: Site
    ) -> None:
        handler.create(unit(service("L2Bridge", interface(at(vlan="7"))), rid=OTHER))
        fakes.fault("service.differences", at=0, kind="fail")
        fakes.fault("service.remove", at=0, kind="fail")
        handler.create(unit(EACH["L2STS"]))
        fakes.mend()
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, {"id": "vm-1", "type": "VM"})

        answer = handler.clean_restart()

        assert answer == {"target.name": "clean_restart", "target.code": 0, "action.sequence": 0}
        assert list(fakes.services) == [OTHER]
        assert [e.sliver["id"] for e in Journal(FileStore(site.state_dir)).unfinished()] == ["vm-1"]


BRIDGED = {
    "device": "sw1",
    "interface": [{"type": "HundredGigE", "id": "0/0/0/5", "outervlan": 100}],
}
SITED = {
    "site-a": BRIDGED,
    "site-z": BRIDGED | {"device": "sw2"},
}
GIVEN = "my-given-name"
_NAMED = {"labels": labels(local_name=GIVEN)}


class TestAServiceWhoseNameWasGiven:
    """fabric_am names it so, without the reservation: nothing says whose it is."""

    @pytest.mark.parametrize(
        ("made", "there"),
        [
            (service("L2Bridge", **_NAMED), {"l2bridge": BRIDGED}),
            (
                service("L2STS", *TWO, **_NAMED),
                {"l2sts": SITED, "idipa": {"group": {"service": "l2sts"}}},
            ),
            (
                service("L2STS", *TWO, **_NAMED),
                {"idipa": {"group": {"service": "l2sts"}}},
            ),
        ],
        ids=["bridge", "two sites", "its identifiers alone"],
    )
    @pytest.mark.parametrize("operation", ["create", "modify", "delete"])
    def test_in_nso_is_left_alone_and_named(
        self,
        operation: str,
        made: Any,
        there: dict[str, Any],
        nso_site: Site,
        nso: Controller,
        tmp_path: Path,
    ) -> None:
        handler = handler_of(nso_site, tmp_path)
        nso.services = {f"{m}:{m}": [{"name": GIVEN, **data}] for m, data in there.items()}
        named = nso.names()

        failed, why = code(getattr(handler, operation)(unit(made, modified=made)))

        assert (failed, nso.names()) == (-1, named)
        assert f"NSO has {', '.join(named)}, which has the sliver's given name" in why
        assert "fabric_am" in why

    def test_in_nso_that_is_of_another_type_or_another_name_is_in_nobodys_way(
        self, nso_site: Site, nso: Controller, tmp_path: Path
    ) -> None:
        handler = handler_of(nso_site, tmp_path)
        bridges = [{"name": f"{GIVEN}{end}", **BRIDGED} for end in ("", "2")]
        others = {"l2bridge:l2bridge": bridges}
        nso.services = dict(others)
        made = service("L2STS", *TWO, **_NAMED)

        assert code(handler.create(unit(made))) == (0, "")
        assert f"l2sts {GIVEN}-{RESERVATION}" in nso.names()
        assert code(handler.delete(unit(made))) == (0, "")
        assert {key: each for key, each in nso.services.items() if each} == others

    def test_that_ends_with_the_reservation_is_found_by_it(
        self, nso_site: Site, nso: Controller, tmp_path: Path
    ) -> None:
        handler = handler_of(nso_site, tmp_path)
        given = f"given-{RESERVATION}"
        nso.services = {"l2bridge:l2bridge": [{"name": given, **BRIDGED}]}

        made = service("L2Bridge", labels=labels(local_name=given))

        assert code(handler.delete(unit(made))) == (0, "")
        assert nso.names() == []

    @pytest.mark.parametrize("operation", ["create", "modify", "delete"])
    def test_at_al2s_is_left_alone_and_named(
        self, operation: str, al2s_site: Site, al2s: Al2s, tmp_path: Path
    ) -> None:
        handler = handler_of(al2s_site, tmp_path)
        al2s.add("spaces", title=GIVEN, notes=GIVEN, ownerPath=OWNER)
        al2s.add("spaces", title=f"{GIVEN}2", notes="", ownerPath=OWNER)
        named = al2s.names()
        where = labels(
            device_name="core1.star", local_name=PORT, vlan="100", ipv4_subnet="192.168.7.1/30"
        )
        given = labels(asn="398900", local_name=GIVEN)
        made = service("L3VPN", interface(where, peer=labels(**PEER)), labels=given)

        failed, why = code(getattr(handler, operation)(unit(made, modified=made)))

        assert (failed, al2s.names()) == (-1, named)
        assert f"AL2S has space {GIVEN}, which has the sliver's given name" in why

    def test_of_a_switch_is_no_name_of_a_controller(
        self, handler: NetworkServiceHandler, fakes: Substrate
    ) -> None:
        made = service("L2Bridge", **_NAMED)

        assert code(handler.create(unit(made))) == (0, "")
        assert code(handler.delete(unit(made))) == (0, "")
        assert not fakes.services


class TestANameThatIsNoValidOneHere:
    """fabric_am named the service by what the user wrote; here its sliver has a hash of that."""

    @pytest.mark.parametrize(
        "name",
        ["my_long.network_" * 5, "_net", "Zürich network", "网络", "net_for_a.user" + "_" * 60],
    )
    def test_is_no_other_name_of_the_service_in_nso(
        self, name: str, nso_site: Site, nso: Controller, tmp_path: Path
    ) -> None:
        handler = handler_of(nso_site, tmp_path)
        made = f"{name[:16]}-{RESERVATION}"
        nso.services = {"l2bridge:l2bridge": [{"name": made, **BRIDGED}]}
        was = service("L2Bridge", name=name)
        now = service("L2Bridge", interface(at(vlan="200")), name=name)

        assert code(handler.modify(unit(was, modified=now))) == (0, "")

        assert nso.names() == [f"l2bridge {made}"]
        assert nso.instance("l2bridge", made)["interface"][0]["outervlan"] == 200
        assert code(handler.delete(unit(now))) == (0, "")
        assert nso.names() == []

    def test_is_no_other_name_of_the_service_at_al2s(
        self, al2s_site: Site, al2s: Al2s, tmp_path: Path
    ) -> None:
        handler = handler_of(al2s_site, tmp_path)
        name = "my_long.network_" * 5
        title = f"{name[:16]}-{RESERVATION}"
        space = al2s.add("spaces", title=title, notes=title, ownerPath=OWNER)
        al2s.add("routers", virtualSpaceId=space, notes="")
        where = labels(
            device_name="core1.star", local_name=PORT, vlan="100", ipv4_subnet="192.168.7.1/30"
        )
        made = service("L3VPN", interface(where, peer=labels(**PEER)), name=name, **VPN)
        handler.create(unit(made))

        now = service("L3VPN", interface(where, bw=1, peer=labels(**PEER)), name=name, **VPN)
        now.technology = "AL2S"
        assert code(handler.modify(unit(made, modified=now))) == (0, "")

        assert [s["title"] for s in al2s.things["spaces"].values()] == [title]
