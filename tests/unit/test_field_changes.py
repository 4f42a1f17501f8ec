"""A plan says field by field what changes: what it was, and what it will be."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.fake import Substrate
from fabric_direct.engine.field_changes import changed
from fabric_direct.model import FieldChange, NodeSliver, Operation, Outcome, SliverRef
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done
from tests.trust.scenes import Request, Scene, fabnet, node, vpn
from tests.unit.test_cli import Run, Write, run, site_path, write

__all__ = ["run", "site_path", "write"]

MakeVm = Callable[..., NodeSliver]
Told = dict[str, list[str]]


def told(outcome: Outcome) -> Told:
    """Return the changes of each step that has some."""
    return {
        step.step: [f"{c.field}: {c.was} -> {c.will_be}" for c in step.changes]
        for step in done(outcome).steps
        if step.changes
    }


def nic(network: str = "red", **interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": "nic1", "network": network, "interface": interface}


class TestOfAVm:
    @pytest.mark.parametrize(
        ("was", "will_be", "changes"),
        [
            (
                nic(bandwidth=100),
                nic(bandwidth=200),
                {"nic nic1": ["bandwidth: 100 -> 200"]},
            ),
            (nic(bandwidth=100), nic(), {"nic nic1": ["bandwidth: 100 -> None"]}),
            (nic(), nic("blue"), {"port nic1": ["network: red -> blue"]}),
            (
                nic(ipv4="10.20.1.7/24", mac="52:54:00:00:00:07"),
                nic(ipv4="10.20.1.8/24", mac="52:54:00:00:00:08"),
                {
                    "port nic1": [
                        "mac: 52:54:00:00:00:07 -> 52:54:00:00:00:08",
                        "ipv4: 10.20.1.7/24 -> 10.20.1.8/24",
                    ]
                },
            ),
            (nic(), nic(port_security=False), {"port nic1": ["port_security: True -> False"]}),
            (nic(), nic(), {}),
        ],
        ids=["bandwidth", "no limit", "network", "addresses", "port security", "nothing"],
    )
    def test_nics_have_the_fields_that_it_fixes(
        self,
        processor: HandlerProcessor,
        vm: MakeVm,
        was: dict[str, Any],
        will_be: dict[str, Any],
        changes: Told,
    ) -> None:
        done(processor.create(vm(components=[was])).result())

        assert told(processor.plan(vm(components=[will_be])).result()) == changes

    def test_that_is_new_has_none(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        assert told(processor.plan(vm()).result()) == {}

    def test_what_others_changed_is_told_as_it_is_now(
        self, processor: HandlerProcessor, vm: MakeVm, fakes: Substrate
    ) -> None:
        done(processor.create(vm(components=[nic(bandwidth=100)])).result())
        server = fakes.servers["sliver-1"]
        limited = replace(server.ports[0], bandwidth=7)
        fakes.servers["sliver-1"] = replace(server, ports=(limited,))

        plan = processor.plan(SliverRef(id="sliver-1"), Operation.RECONCILE).result()

        assert told(plan) == {"nic nic1": ["bandwidth: 7 -> 100"]}

    def test_devices_have_the_fields_of_their_component(
        self, processor: HandlerProcessor, vm: MakeVm, site: Site
    ) -> None:
        def vf(**interface: Any) -> NodeSliver:
            own = {"type": "SharedNIC", "id": "vf", "bdf": ["a1:00.0"], "interface": interface}
            return vm(components=[own])

        done(processor.create(vf(vlan=304)).result())

        changes = told(processor.plan(vf(vlan=305, bandwidth=50)).result())

        said = ["interface.vlan: 304 -> 305", "interface.bandwidth: None -> 50"]
        assert changes == {"device vf": said}

    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        values = fake_site.model_dump()
        return Site.model_validate(values | {"fake": {"hosts": {"localhost": {"vfs": 1}}}})


def test_ports_in_servers_of_others_have_their_bandwidth(
    processor: HandlerProcessor, vm: MakeVm
) -> None:
    def ports(bandwidth: int) -> VNicPortsSliver:
        port = {"id": "p1", "server": "sliver-1", "interface": {"bandwidth": bandwidth}}
        values = {"id": "ports-1", "network": "red", "ports": [port]}
        return VNicPortsSliver.model_validate(values)

    done(processor.create(vm()).result())
    done(processor.create(ports(100)).result())

    assert told(processor.plan(ports(200)).result()) == {"nic p1": ["bandwidth: 100 -> 200"]}


class TestOfANetworkService:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Site:
        return Scene("", Request("create", node())).site(tmp_path)

    @pytest.fixture
    def processor(self, site: Site) -> Any:
        with HandlerProcessor(site) as processor:
            yield processor

    def test_interfaces_are_named_by_their_ids(self, processor: HandlerProcessor) -> None:
        one = {"id": "i1", "device": "sw1", "port": "p1", "vlan": 101}
        done(processor.create(fabnet(one)).result())

        (changes,) = told(processor.plan(fabnet(one | {"bandwidth": 50})).result()).values()

        assert "interfaces.i1.bandwidth: None -> 50" in changes

    def test_a_secret_is_not_told(self, processor: HandlerProcessor) -> None:
        done(processor.create(vpn(key=None)).result())

        plan = processor.plan(vpn(key="open-sesame")).result()

        assert "interfaces.i1.peer.secret: False -> True" in told(plan)["service"]
        assert "open-sesame" not in plan.model_dump_json()


class TestOfMappings:
    def test_have_those_that_come_and_go(self) -> None:
        was = {"one": {"id": "x"}, "list": [{"id": "a", "size": 1}, {"id": "b", "size": 2}]}
        will_be = {"one": {"id": "x"}, "list": [{"id": "b", "size": 3}]}

        assert changed(was, will_be) == (
            FieldChange(field="list.a", was={"id": "a", "size": 1}, will_be=None),
            FieldChange(field="list.b.size", was=2, will_be=3),
        )

    def test_compare_lists_without_ids_as_a_whole(self) -> None:
        (change,) = changed({"dns": ["9.9.9.9"]}, {"dns": ["9.9.9.9", "1.1.1.1"]})

        assert (change.field, change.will_be) == ("dns", ["9.9.9.9", "1.1.1.1"])


def test_the_command_line_shows_them_behind_the_step(run: Run, write: Write) -> None:
    red = {"id": "nic1", "type": "vNIC", "network": "red"}
    run("create", write(components=[red | {"interface": {"bandwidth": 100}}]))

    file = write(components=[red | {"interface": {"bandwidth": 200, "port_security": False}}])
    shown, document = run("plan", file), json.loads(run("plan", file, "--json").stdout)

    assert "  will change   nic nic1: bandwidth 100 → 200\n" in shown.stdout
    assert "  will change   port nic1: port_security true → false\n" in shown.stdout
    steps = {step["step"]: step["changes"] for step in document["outcomes"][0]["steps"]}
    assert steps["nic nic1"] == [{"field": "bandwidth", "was": 100, "will_be": 200}]
