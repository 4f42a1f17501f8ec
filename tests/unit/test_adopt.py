"""What fabric_am made, adopted: found, shown, stamped, deleted; what does not fit is refused by name."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
import requests

from fabric_direct.drivers.contract import DeviceRecord
from fabric_direct.model import NodeSliver, Outcome, PciAddress, Status
from fabric_direct.model.adoption import Adoption, ServiceAdoption
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done
from tests.unit.adopted_site import (
    AUDIO,
    DRIVES,
    GPU,
    STRANGE,
    Cloud,
    am,
    cloud,
    site,
    worker,
)
from tests.unit.fabric_am import FabricAm, Made
from tests.unit.pci_host import CONFIG, LIVE, Worker, plugged

__all__ = ["am", "cloud", "site", "worker"]


def wanted(
    made: Made, *components: dict[str, Any], where: dict[str, Any] | None = None, **values: Any
) -> Adoption:
    """What fabric_am's sliver is from now on, and where its parts are."""
    sliver = {
        "id": made.reservation,
        "name": "node1",
        "host": "w1",
        "image": "tiny",
        "flavor": "small",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "components": [nic(), *components],
    }
    return Adoption.model_validate({"sliver": sliver | values, **(where or {})})


def nic(**values: Any) -> dict[str, Any]:
    interface = {"floating_ip": True}
    return {"type": "vNIC", "id": "management", "network": "lab", "interface": interface} | values


def drive(*bdf: PciAddress, kind: str = "NVME", name: str = "drive") -> dict[str, Any]:
    return {"type": kind, "id": name, "bdf": [str(a) for a in bdf]}


MAC = {"floating_ip": True, "mac": "fa:16:3e:00:00:99"}
IPV4 = {"floating_ip": True, "ipv4": "10.30.0.250/24"}


def disk(made: Made) -> dict[str, Any]:
    assert made.volume
    return {"type": "Storage", "id": "data", "volume": made.volume["name"]}


def failed(future: "Future[Outcome]", kind: str, *words: str) -> Outcome:
    """Its outcome, which is an error of that kind and names all of these."""
    outcome = future.result()
    assert outcome.error, outcome
    assert outcome.error.kind == kind, outcome.error
    for word in words:
        assert word in outcome.error.message
    return outcome


def unstamped(cloud: Cloud) -> str:
    """All that is in the cloud, as text."""
    return json.dumps(cloud.things, sort_keys=True, default=str)


class TestAnAdoption:
    def test_finds_and_stamps_all_that_belongs_to_a_server_and_nothing_else(
        self, am: FabricAm, processor: HandlerProcessor, worker: Worker, cloud: Cloud
    ) -> None:
        made = am.create("node1", DRIVES[0], GPU, AUDIO, volume=True, vnics=1)
        (before,) = (json.loads(json.dumps(made.server)),)
        xml = [made.domain.xml(scope) for scope in (LIVE, CONFIG)] if made.domain else []

        outcome = done(
            processor.adopt(
                wanted(made, disk(made), drive(DRIVES[0]), drive(GPU, AUDIO, kind="GPU", name="g"))
            ).result()
        )

        assert outcome.observed
        assert outcome.observed.differences == ()
        assert [s.sliver for s in processor.slivers()] == [made.reservation]
        stamp = f"fabric-direct TEST/{made.reservation}"
        assert made.management["description"] == made.floating["description"] == stamp
        assert (made.management["name"], made.vnics[0]["description"]) == ("", "")
        assert made.volume
        assert made.volume["metadata"] == {"fabric_project_id": "7b51a3c1"}
        assert {str(a): r.component for a, r in worker.records.known.items()} == {
            str(DRIVES[0]): "drive",
            str(GPU): "g",
            str(AUDIO): "g",
        }
        assert made.domain
        assert [made.domain.xml(scope) for scope in (LIVE, CONFIG)] == xml
        assert {c.split()[0] for c in cloud.changes} <= {"PUT", "POST"}
        assert all(
            re.search(r"tags|metadata|/ports/ID$|/floatingips/ID$", c) for c in cloud.changes
        )
        changed = {k for k, v in made.server.items() if v != before[k]}
        assert changed == {"metadata", "tags"}
        assert made.server["metadata"].items() >= before["metadata"].items()

    def test_names_what_of_a_server_stays_as_it_is(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create(volume=True, vnics=1)

        outcome = done(processor.adopt(wanted(made)).result())

        said = " ".join(outcome.warnings)
        assert made.vnics[0]["name"] in said
        assert made.volume
        assert made.volume["name"] in said

    def test_twice_is_once(self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud) -> None:
        made = am.create("node1", DRIVES[0])
        asked = wanted(made, drive(DRIVES[0]))
        done(processor.adopt(asked).result())
        cloud.changes.clear()

        outcome = done(processor.adopt(asked).result())

        assert cloud.changes == []
        assert {s.status.value for s in outcome.steps} == {"already so"}

    def test_a_plan_says_what_would_be_stamped_and_changes_nothing(
        self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0])

        outcome = done(processor.adopt(wanted(made, drive(DRIVES[0])), plan=True).result())

        steps = {s.step: s.finding.value for s in outcome.steps if s.finding}
        ip = made.floating["floating_ip_address"]
        assert steps == {
            "server": "will change",
            "port management": "will change",
            f"floating IP {ip}": "will change",
            "record drive": "will create",
            "finish": "will change",
        }
        assert (cloud.changes, worker.records.known) == ([], {})

    def test_a_volume_that_the_sliver_is_to_own_is_stamped_and_deleted_with_it(
        self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud
    ) -> None:
        made = am.create(volume=True)
        assert made.volume
        own = {"type": "Storage", "id": "data", "size": 1}
        asked = wanted(made, own, where={"volumes": {"data": made.volume["name"]}})

        done(processor.adopt(asked).result())
        done(processor.delete(asked.sliver.ref()).result())

        cloud.settle()
        assert cloud.things["volumes"] == {}

    def test_other_ids_for_the_same_parts_are_written_over_those_of_an_earlier_adoption(
        self, am: FabricAm, processor: HandlerProcessor, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0])
        done(processor.adopt(wanted(made, drive(DRIVES[0], name="nvme-0"))).result())

        done(processor.adopt(wanted(made, drive(DRIVES[0], name="nvme1"))).result())

        assert worker.records.known[DRIVES[0]].component == "nvme1"
        assert done(processor.probe(wanted(made).sliver.ref()).result()).observed


def test_an_fpga_of_which_one_function_is_named_is_adopted_with_the_whole_card(
    am: FabricAm, site: Site, worker: Worker
) -> None:
    """FIM's label has one address; fabric_am has passed all functions through."""
    devices = [{"type": "FPGA", "bdf": str(address)} for address in (GPU, AUDIO)]
    hosts = {"w1": {"devices": devices}}
    changed = {"hosts": hosts, "drivers": {"VM": "openstack", "FPGA": "hostdev"}}
    made = am.create("node1", GPU, AUDIO)

    with HandlerProcessor(Site.model_validate(site.model_dump() | changed)) as processor:
        done(processor.adopt(wanted(made, drive(AUDIO, kind="FPGA", name="card"))).result())

    known = {address: record.component for address, record in worker.records.known.items()}
    assert known == {GPU: "card", AUDIO: "card"}


class TestWhatIsAdopted:
    def test_fifty_slivers_of_fabric_am_are_adopted_and_deleted_without_leaving_anything(
        self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud, worker: Worker
    ) -> None:
        am.always = False
        drives = {n: DRIVES[n] for n in range(0, 50, 5)}
        made = [
            am.create(f"node{n}", *({drives[n]} if n in drives else ()), volume=n % 2 == 0)
            for n in range(50)
        ]
        asked = [
            wanted(
                each,
                *([drive(drives[n])] if n in drives else []),
                *([disk(each)] if each.volume else []),
                name=f"node{n}",
            )
            for n, each in enumerate(made)
        ]

        for future in [processor.adopt(each) for each in asked]:
            done(future.result())
        assert len(processor.slivers()) == 50
        for future in [processor.delete(each.sliver.ref()) for each in asked]:
            done(future.result())

        cloud.settle()
        left = {kind: len(cloud.things[kind]) for kind in ("servers", "ports", "floatingips")}
        assert left == {"servers": 0, "ports": 0, "floatingips": 0}
        assert len(cloud.things["volumes"]) == 25  # their users'
        assert {v["status"] for v in cloud.things["volumes"].values()} == {"available"}
        assert (worker.records.known, worker.domains) == ({}, [])
        assert worker.cleaned.call_count == 10
        assert processor.unfinished() == ()

    def test_a_bandwidth_that_it_gets_goes_with_the_port_that_nova_deletes(
        self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud
    ) -> None:
        asked = wanted(am.create())
        done(processor.adopt(asked).result())
        limited = nic(interface={"floating_ip": True, "bandwidth": 10})
        changed = asked.sliver.model_dump() | {"components": [limited]}
        done(processor.modify(NodeSliver.model_validate(changed)).result())
        assert len(cloud.things["policies"]) == 1

        done(processor.delete(asked.sliver.ref()).result())

        assert cloud.things["policies"] == {}

    def test_a_device_is_detached_by_its_address_and_cleaned_when_a_modification_leaves_it_out(
        self, am: FabricAm, processor: HandlerProcessor, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0], DRIVES[1])
        asked = wanted(made, drive(DRIVES[0], name="one"), drive(DRIVES[1], name="two"))
        done(processor.adopt(asked).result())

        done(processor.modify(wanted(made, drive(DRIVES[1], name="two")).sliver).result())

        worker.calls.ask.assert_called_once()
        assert worker.calls.ask.call_args.args == (DRIVES[0],)
        assert list(worker.records.known) == [DRIVES[1]]

    def test_a_device_that_its_domain_lost_is_recorded_and_attached_by_the_next_modification(
        self, am: FabricAm, processor: HandlerProcessor, worker: Worker
    ) -> None:
        made = am.create("node1")
        asked = wanted(made, drive(DRIVES[0]))

        outcome = done(processor.adopt(asked).result())
        assert any("does not have all of drive" in text for text in outcome.warnings)
        assert list(worker.records.known) == [DRIVES[0]]
        done(processor.modify(asked.sliver).result())

        assert made.domain
        assert f"ua-{made.reservation}-drive-0" in made.domain.xml(LIVE)

    def test_a_device_that_its_domain_has_anew_from_us_is_known_by_its_alias(
        self, am: FabricAm, processor: HandlerProcessor, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0])
        asked = wanted(made, drive(DRIVES[0]))
        done(processor.adopt(asked).result())
        assert made.domain
        made.domain.devices = {LIVE: [], CONFIG: []}  # as after a hard reboot

        found = done(processor.probe(asked.sliver).result()).observed
        assert found
        assert any("NVME drive" in text for text in found.differences)
        done(processor.modify(asked.sliver).result())

        assert f"ua-{made.reservation}-drive-0" in made.domain.xml(LIVE)
        found = done(processor.probe(asked.sliver).result()).observed
        assert found
        assert found.differences == ()


class TestWhatIsRefused:
    @pytest.fixture(autouse=True)
    def nothing_is_changed(self, cloud: Cloud, worker: Worker) -> Iterator[None]:
        yield
        assert cloud.changes == []
        assert not worker.calls.write.called

    def test_a_server_whose_cell_does_not_answer(
        self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud
    ) -> None:
        made = am.create()
        cloud.silent = {made.server["id"]}

        asked = wanted(made, where={"server": made.server["id"]})
        failed(processor.adopt(asked), "Unreachable", "a cell does not answer")

    def test_a_server_that_is_not_there(self, am: FabricAm, processor: HandlerProcessor) -> None:
        made = am.create()

        asked = wanted(made, where={"server": "nowhere"})
        failed(processor.adopt(asked), "NotFound", "nowhere")

    def test_two_servers_of_one_name(self, am: FabricAm, processor: HandlerProcessor) -> None:
        made = am.create()
        twin = am.create(reservation=made.reservation)

        failed(
            processor.adopt(wanted(made)), "Conflict", made.server["id"], twin.server["id"], "id"
        )

    def test_a_server_that_another_site_stamped(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        made.server["metadata"] |= {"fabric-direct:site": "B", "fabric-direct:sliver": "s-1"}

        failed(processor.adopt(wanted(made)), "NotOurs", "B/s-1")

    def test_a_server_whose_devices_another_site_stamped(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        assert made.domain
        made.domain.devices[LIVE].append(plugged(DRIVES[0], "ua-other-drive-0"))

        failed(
            processor.adopt(wanted(made, drive(DRIVES[0]))),
            "NotOurs",
            "components[1].bdf[0]",
            "ua-other-drive-0",
        )

    def test_a_device_that_another_domain_has(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        am.create("node2", DRIVES[0])

        asked = wanted(made, drive(DRIVES[0]))
        failed(processor.adopt(asked), "DeviceClaimed", "components[1].bdf[0]")

    def test_a_device_of_the_domain_that_the_sliver_does_not_name(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create("node1", DRIVES[0])

        failed(processor.adopt(wanted(made)), "InvalidSliver", "components", str(DRIVES[0]))

    def test_a_device_of_the_domain_that_the_allow_list_does_not_have(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create("node1", STRANGE)

        failed(processor.adopt(wanted(made)), "InvalidSliver", str(STRANGE), "hosts.w1.devices")
        asked = wanted(made, drive(STRANGE, kind="SmartNIC"))
        failed(processor.adopt(asked), "InvalidSliver", "components[1].bdf[0]", "hosts.w1.devices")

    def test_a_port_that_another_sliver_stamped(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        made.management["description"] = "fabric-direct B/s-1"

        failed(processor.adopt(wanted(made)), "NotOurs", "components[0]", "B/s-1")

    def test_a_port_with_a_note_that_the_stamp_would_replace(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        made.management["description"] = "ask Ann before you touch it"

        failed(processor.adopt(wanted(made)), "NotOurs", "ask Ann")

    @pytest.mark.parametrize(
        ("values", "field", "has"),
        [
            ({"network": "dataplane-100"}, "components[0].network", "is on lab"),
            ({"interface": MAC}, "components[0].interface.mac", "has fa:16:3e:ff:"),
            ({"interface": IPV4}, "components[0].interface", "has 10.30.0."),
        ],
    )
    def test_a_port_that_is_not_as_its_vnic(
        self, am: FabricAm, processor: HandlerProcessor, values: Any, field: str, has: str
    ) -> None:
        made = am.create()
        where = {"ports": {"management": made.management["id"]}}

        asked = wanted(made, components=[nic(**values)], where=where)
        failed(processor.adopt(asked), "InvalidSliver", f"{field}: ", has)

    def test_one_of_several_ports_on_a_network_that_is_not_named(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        second = am.port("", made.server)

        failed(processor.adopt(wanted(made)), "InvalidSliver", made.management["id"], second["id"])

    def test_a_floating_ip_that_another_sliver_stamped(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        made.floating["description"] = "fabric-direct B/s-1"

        failed(processor.adopt(wanted(made)), "NotOurs", "components[0].interface", "B/s-1")

    def test_a_port_of_another_project_with_the_same_name(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        am.port("mine", made.server, project_id="another")
        second = nic(id="second", interface={})
        asked = wanted(made, second, where={"ports": {"second": "mine"}})

        failed(processor.adopt(asked), "InvalidSliver", "components[1]", "mine")

    def test_a_floating_ip_that_the_sliver_does_not_name(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        asked = wanted(made, components=[nic(interface={})])

        ip = made.floating["floating_ip_address"]
        failed(processor.adopt(asked), "InvalidSliver", "components[0].interface.floating_ip", ip)

    def test_a_volume_that_is_not_attached(self, am: FabricAm, processor: HandlerProcessor) -> None:
        made = am.create()
        other = {"type": "Storage", "id": "data", "volume": "p-data"}

        asked = wanted(made, other)
        failed(processor.adopt(asked), "InvalidSliver", "components[1].volume", "p-data")

    def test_a_volume_of_another_size_or_of_another_sliver(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create(volume=True)
        assert made.volume
        where = {"volumes": {"data": made.volume["id"]}}
        own = {"type": "Storage", "id": "data", "size": 2}

        asked = wanted(made, own, where=where)
        failed(processor.adopt(asked), "InvalidSliver", "components[1].size", "has 1 GiB")

        made.volume["metadata"] |= {"fabric-direct:site": "B", "fabric-direct:sliver": "s-1"}
        failed(processor.adopt(asked), "NotOurs", "components[1].volume", "B/s-1")

    @pytest.mark.parametrize("owned", [False, True])
    def test_a_volume_at_a_site_that_has_none(self, owned: bool, am: FabricAm, site: Site) -> None:
        made = am.create(volume=True)
        asked = wanted(made, disk(made))
        if owned:
            own = {"type": "Storage", "id": "data", "size": 1}
            asked = wanted(made, own, where={"volumes": {"data": disk(made)["volume"]}})
        without = site.model_copy(update={"drivers": site.drivers | {"Storage": "none"}})

        with HandlerProcessor(without) as processor:
            failed(processor.adopt(asked), "InvalidSliver", "components[1]", "no Storage")

    def test_a_device_without_functions(self, am: FabricAm, processor: HandlerProcessor) -> None:
        asked = wanted(am.create(), drive())

        failed(processor.adopt(asked), "InvalidSliver", "components[1].bdf", "names no function")

    @pytest.mark.parametrize(
        ("record", "kind", "why"),
        [
            ({"sliver": "s-1"}, "NotOurs", "recorded as that of s-1/drive"),
            ({"quarantined": "block 7 is not zero"}, "DeviceUnclean", "block 7 is not zero"),
        ],
    )
    def test_a_device_with_the_record_of_another_sliver_or_in_quarantine(
        self,
        am: FabricAm,
        processor: HandlerProcessor,
        worker: Worker,
        record: dict[str, str],
        kind: str,
        why: str,
    ) -> None:
        made = am.create("node1", DRIVES[0])
        recorded = DeviceRecord(DRIVES[0], "NVME", None, made.reservation, "drive", "144d", "a80a")
        worker.records.known[DRIVES[0]] = replace(recorded, **record)

        failed(processor.adopt(wanted(made, drive(DRIVES[0]))), kind, "components[1].bdf[0]", why)

    def test_a_host_that_the_site_does_not_know(
        self, am: FabricAm, processor: HandlerProcessor
    ) -> None:
        made = am.create()
        made.server["OS-EXT-SRV-ATTR:host"] = "w9"

        failed(processor.adopt(wanted(made, host=None)), "InvalidSliver", "host", "is on w9")

    def test_another_host_than_the_servers(self, am: FabricAm, processor: HandlerProcessor) -> None:
        made = am.create()

        failed(processor.adopt(wanted(made, host="w2")), "InvalidSliver", "host", "w1", "w2")


class TestPortsOfAService:
    """Ports in a server of fabric_am, as a sliver of their own."""

    @pytest.fixture
    def made(self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud) -> Made:
        """A server that is adopted, with two ports of a service that are not."""
        made = am.create(vnics=2)
        done(processor.adopt(wanted(made)).result())
        cloud.changes.clear()
        return made

    @staticmethod
    def service(made: Made, network: str = "dataplane-100", **of_first: Any) -> ServiceAdoption:
        ports = [
            {"id": f"p{n}", "server": made.reservation, "interface": {"mac": vnic["mac_address"]}}
            for n, vnic in enumerate(made.vnics)
        ]
        ports[0] |= of_first
        sliver = {"id": "net-1", "network": network, "ports": ports}
        return ServiceAdoption.model_validate({"sliver": sliver})

    def test_bear_its_stamp_and_the_last_request_says_that_all_do(
        self, processor: HandlerProcessor, cloud: Cloud, made: Made
    ) -> None:
        done(processor.adopt(self.service(made)).result())

        assert {vnic["description"] for vnic in made.vnics} == {"fabric-direct TEST/net-1"}
        assert sorted(tag for vnic in made.vnics for tag in vnic["tags"]) == [
            "fabric-direct-component=p0",
            "fabric-direct-component=p1",
        ]
        assert cloud.changes[-1] == "PUT /networking/v2.0/ports/ID/tags"

    def test_bear_none_when_one_of_them_could_not_be_stamped(
        self, processor: HandlerProcessor, cloud: Cloud, made: Made
    ) -> None:
        before = unstamped(cloud)

        def refuse(_: str) -> None:
            if len(cloud.changes) == 3:
                raise requests.exceptions.ConnectTimeout

        cloud.fault = refuse
        outcome = processor.adopt(self.service(made)).result()
        cloud.fault = lambda _: None

        assert outcome.status is not Status.DONE
        for future in processor.recover(undo=True):
            done(future.result())
        assert unstamped(cloud) == before

    @pytest.mark.parametrize(
        ("changes", "field", "why"),
        [
            ({"interface": {"mac": "fa:16:3e:00:00:99"}}, "ports[0]", "has no port fa:16:3e"),
            ({"interface": {}}, "ports[0].interface.mac", "name its port"),
            ({"server": "vm-9"}, "ports[0].server", "is plugged into server"),
            ({"network": "lab"}, "ports[0].interface", "is on dataplane-100"),
        ],
    )
    def test_that_are_not_as_they_say_are_refused_by_field(
        self,
        processor: HandlerProcessor,
        cloud: Cloud,
        made: Made,
        changes: dict[str, Any],
        field: str,
        why: str,
    ) -> None:
        failed(processor.adopt(self.service(made, **changes)), "InvalidSliver", f"{field}: ", why)

        assert cloud.changes == []

    def test_that_another_sliver_has_are_refused(
        self, processor: HandlerProcessor, cloud: Cloud, made: Made
    ) -> None:
        made.vnics[1]["description"] = "fabric-direct TEST/net-2"

        failed(processor.adopt(self.service(made)), "NotOurs", "ports[1]", "TEST/net-2")

        assert cloud.changes == []


class TestOneOfOurs:
    def test_is_refused_under_another_id(
        self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud
    ) -> None:
        made = am.create()
        done(processor.adopt(wanted(made)).result())
        cloud.changes.clear()

        asked = wanted(made, id="another", where={"server": made.server["id"]})
        failed(processor.adopt(asked), "NotOurs", f"TEST/{made.reservation}")

        assert cloud.changes == []

    def test_is_refused_with_other_parts(self, am: FabricAm, processor: HandlerProcessor) -> None:
        made = am.create("node1", volume=True)
        done(processor.adopt(wanted(made)).result())

        failed(processor.adopt(wanted(made, disk(made))), "Conflict", "use modify")

    def test_has_one_server_only(self, am: FabricAm, processor: HandlerProcessor) -> None:
        made, other = am.create(), am.create()
        done(processor.adopt(wanted(made)).result())

        asked = wanted(made, where={"server": other.server["id"]})
        failed(processor.adopt(asked), "Conflict", made.server["id"])


class TestThatFails:
    def test_leaves_no_stamp(
        self, am: FabricAm, processor: HandlerProcessor, cloud: Cloud, worker: Worker
    ) -> None:
        made = am.create("node1", DRIVES[0])
        before = unstamped(cloud)

        def refuse(what: str) -> None:
            if "/floatingips/ID/tags" in what:
                raise requests.exceptions.ConnectTimeout

        cloud.fault = refuse
        outcome = processor.adopt(wanted(made, drive(DRIVES[0]))).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert unstamped(cloud) == before
        assert worker.records.known == {}
        assert processor.unfinished() == ()


class TestKilled:
    """Killed at each request that changes something, or between two records."""

    def test_a_deletion_in_between_never_says_that_all_is_gone(
        self, am: FabricAm, site: Site, cloud: Cloud, worker: Worker
    ) -> None:
        for number in range(3, 20):
            made = am.create("node1", DRIVES[0])
            asked = wanted(made, drive(DRIVES[0]))
            whole = _half(site, cloud, worker, asked, number)
            with HandlerProcessor(site) as processor:
                outcome = processor.delete(asked.sliver.ref()).result()
                if whole:
                    break
                assert not outcome.ok, number
                assert made.server["id"] in cloud.things["servers"]
                done(processor.adopt(asked).result())
                done(processor.delete(asked.sliver.ref()).result())
            cloud.settle()
            assert not cloud.things["servers"]
            assert not cloud.things["floatingips"]
            assert not worker.records.known
        else:
            pytest.fail("the adoption never came to its end")
        assert number > 8

    @pytest.mark.parametrize("undo", [False, True])
    def test_is_finished_or_undone_by_recover(
        self, am: FabricAm, site: Site, cloud: Cloud, worker: Worker, undo: bool
    ) -> None:
        for number in range(0, 20, 2):
            made = am.create("node1", DRIVES[0])
            before = unstamped(cloud)
            asked = wanted(made, drive(DRIVES[0]))
            if _half(site, cloud, worker, asked, number):
                break
            with HandlerProcessor(site) as processor:
                for future in processor.recover(undo=undo):
                    done(future.result())
                assert processor.unfinished() == ()
                if undo:
                    assert unstamped(cloud) == before, number
                    assert worker.records.known == {}
                    done(processor.adopt(asked).result())
                done(processor.delete(asked.sliver.ref()).result())
            cloud.settle()
            assert not cloud.things["servers"]
        assert number > 8


def _half(site: Site, cloud: Cloud, worker: Worker, asked: Adoption, changes: int) -> bool:
    """Adopt, as a process that is killed before that change of cloud or records; say if it ended.

    Whatever it tries from then on does not take effect: no undo, no journal.
    """
    processor, made, dead = HandlerProcessor(site), 0, False
    write, remove = worker.records.write, worker.records.remove

    def change(_: object = None) -> None:
        nonlocal made, dead
        dead = dead or made >= changes
        if dead:
            raise requests.exceptions.ConnectTimeout
        made += 1

    def write_unless_dead(record: Any) -> None:
        change()
        write(record)

    def remove_unless_dead(address: Any) -> None:
        change()
        remove(address)

    cloud.fault = change
    worker.records.write = write_unless_dead
    worker.records.remove = remove_unless_dead
    end = processor._journal.end
    processor._journal.end = lambda name: None if dead else end(name)
    processor.adopt(asked).result()
    processor.shutdown()
    cloud.fault = lambda _: None
    worker.records.write, worker.records.remove = write, remove
    return not dead


def test_a_vm_does_not_get_the_id_of_ports_that_were_adopted(
    am: FabricAm, processor: HandlerProcessor
) -> None:
    made, other = am.create(vnics=2), am.create("node2")
    done(processor.adopt(wanted(made)).result())
    interface = {"mac": made.vnics[0]["mac_address"]}
    ports = [{"id": "p0", "server": made.reservation, "interface": interface}]
    sliver = {"id": other.reservation, "network": "dataplane-100", "ports": ports}
    done(processor.adopt(ServiceAdoption.model_validate({"sliver": sliver})).result())

    outcome = processor.adopt(wanted(other, where={"server": other.server["id"]})).result()

    assert outcome.error
    assert outcome.error.kind == "Conflict"
    assert [server.sliver for server in processor.slivers()] == [made.reservation]
