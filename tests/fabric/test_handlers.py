"""The handlers as the actor calls them, on drivers that are held in memory."""

import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fim.slivers.capacities_labels import Capacities, CapacityHints, Flags, Labels

import fabric_direct.actor
from fabric_direct.actor import VMHandler, VnicNetHandler, fim
from fabric_direct.actor.site import actor_limits, bounded, processor_of
from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.model import Operation
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from tests.fabric import slivers
from tests.fabric.slivers import PROJECT, RESERVATION, bridge, component, interface, port, vm

GPU, OTHER_GPU, NVME = "0000:25:00.0", "0000:25:00.1", "0000:26:00.0"
NICS, VF = ["0000:41:00.0", "0000:41:00.1"], "0000:a1:00.0"
OTHER = "16fd2706-8baf-433b-82eb-8c7fada847da"


def ok(operation: str) -> dict[str, Any]:
    return {"target.name": operation, "target.code": 0, "action.sequence": 0}


def why_not(result: dict[str, Any], operation: str) -> str:
    """Return why, of a result that is well formed."""
    message = result["exception.message"]
    assert result == {
        "target.name": operation,
        "target.code": -1,
        "action.sequence": 0,
        "exception.message": message,
    }
    assert type(message) is str
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301
    return message


@pytest.fixture
def unit() -> Any:
    return slivers.unit(vm())


# --- create


def test_a_vm_is_made(handler: VMHandler, fakes: Substrate, unit: Any) -> None:
    result, same = handler.create(unit)

    assert result == ok("create")
    assert same is unit
    assert list(fakes.servers) == [RESERVATION]


def test_a_vm_tells_its_instance_and_address(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)

    assert unit.get_sliver().label_allocations.instance == fakes.servers[RESERVATION].instance
    assert unit.get_sliver().management_ip == "10.20.1.2"


def test_a_vm_is_made_with_its_devices(handler: VMHandler, fakes: Substrate) -> None:
    first, second = (
        interface("p1", mac="0C:42:A1:EA:C7:51"),
        interface("p2", mac="0C:42:A1:EA:C7:52"),
    )
    unit = slivers.unit(vm(component("SmartNIC", "nic1", NICS, "ConnectX-6", first, second)))

    assert handler.create(unit)[0] == ok("create")
    assert [str(d.host_address) for d in fakes.plugged[RESERVATION]] == NICS
    assert unit.get_sliver().label_allocations.instance is not None


def test_a_device_that_only_allocations_name_is_attached(
    handler: VMHandler, fakes: Substrate
) -> None:
    part = component("SmartNIC", "nic1", NICS, "ConnectX-6")
    part.labels = None

    assert handler.create(slivers.unit(vm(part)))[0] == ok("create")
    assert len(fakes.plugged[RESERVATION]) == 2


def test_a_vm_is_made_with_its_projects_volume(handler: VMHandler, fakes: Substrate) -> None:
    name = f"{PROJECT}-data"
    fakes.existing[name] = Volume("", "", name, 1)
    part = slivers.storage("vol1", "data")

    result, _ = handler.create(slivers.unit(vm(part)))

    assert result == ok("create")
    assert part.label_allocations.device_name.startswith("/dev/vd")


def test_a_vm_that_is_too_large_tells_the_size_that_it_got(
    config: Callable[..., Path], logger: logging.Logger
) -> None:
    path = config(actor={"management_network": "mgmt", "max_flavor": "fabric.c2.m4.d10"})
    sliver = vm(
        capacity_hints=CapacityHints(instance_type="fabric.c4.m8.d10"),
        capacity_allocations=Capacities(core=4, ram=8, disk=10),
    )

    VMHandler(logger, {"config.properties.file": str(path)}).create(slivers.unit(sliver))

    assert sliver.get_capacity_allocations() == Capacities(core=2, ram=4, disk=10)
    assert sliver.get_capacity_hints().instance_type == "fabric.c2.m4.d10"


def test_a_missing_image_is_told(handler: VMHandler, fakes: Substrate) -> None:
    unit = slivers.unit(vm(image_ref=None))

    message = why_not(handler.create(unit)[0], "create")

    assert message == "image_ref: is missing"
    assert unit.get_sliver().label_allocations.instance is None
    assert unit.get_sliver().management_ip is None
    assert not fakes.servers


@pytest.mark.parametrize("operation", ["create", "delete", "modify"])
def test_a_missing_configuration_is_told(logger: logging.Logger, operation: str) -> None:
    unit = slivers.unit(vm())

    result, _ = getattr(VMHandler(logger, {}), operation)(unit)

    assert why_not(result, operation).startswith("config.properties.file: is missing")
    assert unit.get_sliver().label_allocations.instance is None


def test_a_configuration_that_is_not_there_is_told(logger: logging.Logger, unit: Any) -> None:
    handler = VMHandler(logger, {"config.properties.file": "/nonexistent/site.yaml"})
    assert "/nonexistent/site.yaml" in why_not(handler.create(unit)[0], "create")


def test_a_wrong_configuration_is_told_by_line(
    logger: logging.Logger, unit: Any, tmp_path: Path
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("site: TEST\nnetwork: {}\n")

    message = why_not(
        VMHandler(logger, {"config.properties.file": str(path)}).create(unit)[0], "create"
    )

    assert f"{path}:2" in message


def test_a_broken_configuration_is_told_when_a_handler_is_made(
    logger: logging.Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("site: TEST\nnetwork: {}\n")

    VMHandler(logger, {"config.properties.file": str(path)})

    assert f"{path}:2: network: unknown field" in caplog.text


def test_a_configuration_that_can_be_used_is_not_told(
    logger: logging.Logger, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    VMHandler(logger, properties)
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


@pytest.mark.parametrize("operation", ["create", "delete", "modify"])
def test_a_state_directory_that_cannot_be_used_is_told(
    config: Callable[..., Path], logger: logging.Logger, tmp_path: Path, operation: str, unit: Any
) -> None:
    (tmp_path / "file").touch()
    path = config(state_dir=str(tmp_path / "file" / "state"))

    handler = VMHandler(logger, {"config.properties.file": str(path)})

    message = why_not(getattr(handler, operation)(unit)[0], operation)
    assert message.startswith("state_dir: cannot be used")
    assert "Errno" not in message


def test_a_failed_creation_leaves_nothing(handler: VMHandler, fakes: Substrate) -> None:
    unit = slivers.unit(vm(component("GPU", "gpu1", GPU)))
    unit.get_sliver().label_allocations.instance = "from another time"
    fakes.fault("device.attach", kind="fail")

    message = why_not(handler.create(unit)[0], "create")

    assert "device.attach failed" in message
    assert unit.get_sliver().label_allocations.instance is None
    assert not fakes.servers
    assert not fakes.ports


def test_what_a_failed_creation_leaves_is_named(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    fakes.fault("compute.create", at=0, kind="fail")
    fakes.fault("network.delete_port", at=0, kind="fail")

    assert "left: port management" in why_not(handler.create(unit)[0], "create")


def test_a_unit_without_sliver_is_told(handler: VMHandler) -> None:
    assert why_not(handler.create(slivers.unit(None))[0], "create").startswith("sliver: ")


def test_a_network_service_is_no_vm(handler: VMHandler) -> None:
    result, _ = handler.create(slivers.unit(bridge()))
    assert why_not(result, "create").startswith("resource_type: ")


def test_a_unit_that_breaks_is_told(handler: VMHandler) -> None:
    class Broken:
        def get_reservation_id(self) -> str:
            return "r1"

        def get_sliver(self) -> Any:
            raise RuntimeError("broken")

    assert why_not(handler.create(Broken())[0], "create") == "broken"


@pytest.mark.parametrize("operation", ["create", "modify", "delete"])
@pytest.mark.parametrize("unit", [None, object()], ids=["none", "nonsense"])
def test_what_is_no_unit_is_told(handler: VMHandler, operation: str, unit: Any) -> None:
    why_not(getattr(handler, operation)(unit)[0], operation)


def test_asking_twice_makes_one(handler: VMHandler, fakes: Substrate, unit: Any) -> None:
    handler.create(unit)
    assert handler.create(unit)[0] == ok("create")
    assert len(fakes.servers) == 1


# --- delete


def test_a_vm_is_deleted(handler: VMHandler, fakes: Substrate, unit: Any) -> None:
    handler.create(unit)

    assert handler.delete(unit)[0] == ok("delete")
    assert not fakes.servers
    assert not fakes.ports


def test_deleting_what_is_not_there_is_done(handler: VMHandler, unit: Any) -> None:
    assert handler.delete(unit)[0] == ok("delete")


def test_deleting_needs_the_reservation_alone(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    bare = vm(image_ref=None, label_allocations=None, capacity_hints=None)

    assert handler.delete(slivers.unit(bare, keys=""))[0] == ok("delete")
    assert not fakes.servers


def test_a_missing_name_keeps_nothing_from_being_deleted_and_is_told(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    """The published scenario expects the code -1."""
    handler.create(unit)

    message = why_not(handler.delete(slivers.unit(vm(name=None)))[0], "delete")

    assert message == "resource_name: is missing; the reservation was deleted"
    assert not fakes.servers
    assert not fakes.ports


def test_what_could_not_be_deleted_is_named(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    fakes.fault("network.delete_port", at=0, kind="fail")

    assert "port management" in why_not(handler.delete(unit)[0], "delete")


# --- modify


def test_what_was_added_is_attached_and_told_in_both_slivers(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    part = component("GPU", "gpu1", GPU)
    unit.set_modified(modified=vm(part))

    assert handler.modify(unit)[0] == ok("modify")
    assert [d.component for d in fakes.plugged[RESERVATION]] == ["gpu1"]
    for sliver in (unit.get_sliver(), unit.get_modified()):
        assert sliver.label_allocations.instance == fakes.servers[RESERVATION].instance
    assert type(part.label_allocations.bdf) is list


def test_what_was_removed_is_detached(handler: VMHandler, fakes: Substrate) -> None:
    unit = slivers.unit(vm(component("GPU", "gpu1", GPU)))
    handler.create(unit)
    unit.set_modified(modified=vm())

    assert handler.modify(unit)[0] == ok("modify")
    assert not fakes.plugged[RESERVATION]


def test_a_modified_sliver_without_allocations_is_the_vm_that_was_made(
    handler: VMHandler, unit: Any
) -> None:
    handler.create(unit)
    unit.set_modified(
        modified=vm(label_allocations=None, capacity_allocations=None, capacity_hints=None)
    )
    assert handler.modify(unit)[0] == ok("modify")


def go_on(unit: Any) -> None:
    """Take the modified sliver for the unit's own, as the actor does after a modification."""
    unit.set_sliver(sliver=unit.get_modified())
    unit.set_modified(modified=None)


@pytest.mark.parametrize(
    "values",
    [
        {"boot_script": "#!/bin/sh\ntrue\n"},
        {"capacity_allocations": Capacities(core=8, ram=16, disk=100)},
        {"capacity_hints": CapacityHints(instance_type="fabric.c8.m16.d100")},
        {"image_ref": "default_ubuntu_24"},
        {"name": "node2"},
        {"label_allocations": Labels(instance_parent="elsewhere.net")},
        {"flags": Flags(ipv4_management=False)},
        {"label_allocations": None, "capacity_allocations": None, "capacity_hints": None},
    ],
    ids=lambda values: next(iter(values)),
)
def test_what_was_fixed_at_the_creation_is_ignored_by_every_modification(
    handler: VMHandler, fakes: Substrate, values: dict[str, Any]
) -> None:
    unit = slivers.unit(vm(boot_script="#!/bin/sh\nfalse\n"))
    handler.create(unit)
    before = fakes.servers[RESERVATION].stamp
    for parts in ([component("GPU", "gpu1", GPU)], []):
        unit.set_modified(modified=vm(*parts, **values))
        assert handler.modify(unit)[0] == ok("modify")
        go_on(unit)

    assert fakes.servers[RESERVATION].stamp == before


def test_changed_keys_are_ignored_by_a_modification(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    unit.get_properties()["user.ssh.key"] = "none"
    unit.set_modified(modified=vm(component("GPU", "gpu1", GPU)))

    assert handler.modify(unit)[0] == ok("modify")
    assert fakes.servers[RESERVATION].stamp.sliver.ssh_keys == (slivers.KEY,)


def allocated() -> Any:
    """Return a device whose address only its allocations name."""
    part = component("NVME", "d1", NVME)
    part.labels = None
    return part


def test_a_device_that_only_allocations_name_is_known_by_the_stamp_afterwards(
    handler: VMHandler, fakes: Substrate
) -> None:
    """A creation overwrites the allocations with the addresses in the guest."""
    part = allocated()
    unit = slivers.unit(vm(part))
    handler.create(unit)
    part.label_allocations.bdf = ["0000:05:00.0"]
    unit.set_modified(modified=vm(part, component("GPU", "gpu1", OTHER_GPU)))

    assert handler.modify(unit)[0] == ok("modify")
    assert [d.component for d in fakes.plugged[RESERVATION]] == ["d1", "gpu1"]
    part.label_allocations.bdf = ["0000:05:00.0"]
    assert act(handler, unit, "rescan", bdf=["0000:05:00.0"]) == changed("rescan")


def test_a_vm_whose_device_only_allocations_name_is_created_again_as_it_is(
    handler: VMHandler, fakes: Substrate
) -> None:
    part = allocated()
    unit = slivers.unit(vm(part))
    handler.create(unit)
    before = fakes.servers[RESERVATION].stamp
    part.label_allocations.bdf = ["0000:05:00.0"]

    assert handler.create(unit)[0] == ok("create")
    assert fakes.servers[RESERVATION].stamp == before


def test_a_vm_that_is_gone_is_created_again_by_the_addresses_that_are_there(
    handler: VMHandler, fakes: Substrate
) -> None:
    unit = slivers.unit(vm(component("NVME", "d1", NVME)))
    handler.create(unit)
    handler.delete(unit)

    assert handler.create(unit)[0] == ok("create")
    assert [d.component for d in fakes.plugged[RESERVATION]] == ["d1"]


def test_a_vm_whose_stamp_cannot_be_read_is_not_created_again(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    fakes.fault("compute.find", at=0, kind="fail")

    assert "find" in why_not(handler.create(unit)[0], "create")


def test_addresses_that_come_later_are_set_by_a_modification(
    handler: VMHandler, fakes: Substrate
) -> None:
    """Those of a layer 3 service are known only when it is ticketed, after its VMs."""

    def sliver(**values: Any) -> Any:
        nic = interface("p1", mac="52:54:00:00:00:07", vlan="200", **values)
        return vm(component("SharedNIC", "nic1", VF, "ConnectX-6", nic))

    unit = slivers.unit(sliver())
    assert handler.create(unit)[0] == ok("create")
    flags = Flags(auto_config=True)
    unit.set_modified(modified=sliver(flags=flags, ipv4="10.9.9.3", ipv4_subnet="10.9.9.0/25"))

    assert handler.modify(unit)[0] == ok("modify")
    files = b"".join(fakes.inside[RESERVATION].files.values())
    assert b"10.9.9.3/25" in files


def test_a_unit_that_is_not_modified_is_made_sure_of(handler: VMHandler, unit: Any) -> None:
    handler.create(unit)
    assert handler.modify(unit)[0] == ok("modify")


def test_a_vm_that_is_not_there_cannot_be_modified(handler: VMHandler, unit: Any) -> None:
    unit.set_modified(modified=vm(component("GPU", "gpu1", GPU)))

    message = why_not(handler.modify(unit)[0], "modify")

    assert f"sliver {RESERVATION} is not there" in message
    assert unit.get_modified().label_allocations.instance is None


def test_a_failed_attach_fails_the_modification(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    unit.set_modified(modified=vm(component("GPU", "gpu1", GPU)))
    fakes.fault("device.attach", kind="fail")

    assert "device.attach failed" in why_not(handler.modify(unit)[0], "modify")


# --- operational actions


def act(handler: VMHandler, unit: Any, operation: str, **data: Any) -> dict[str, Any]:
    result, same = handler.poa(unit, {"operation": operation, "poa_id": "poa-1", **data})
    assert same is unit
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301
    return result


def changed(operation: str) -> dict[str, Any]:
    heading = {"operation": operation, "poa_id": "poa-1", "code": 0}
    return ok("poa") | {"poa_info": heading | {"poa_info": heading}}


@pytest.mark.parametrize(
    ("operation", "data"),
    [
        ("reboot", {}),
        ("cpupin", {"vcpu_cpu_map": slivers.listed([{"vcpu": "0", "cpu": "3"}])}),
        ("numatune", {"node_set": slivers.listed(["0"])}),
        ("addkey", {"keys": [{"key": slivers.KEY, "comment": "new"}]}),
        ("removekey", {"keys": [{"key": slivers.KEY, "comment": "new"}]}),
    ],
)
def test_actions_that_change(
    handler: VMHandler, unit: Any, operation: str, data: dict[str, Any]
) -> None:
    handler.create(unit)
    assert act(handler, unit, operation, **data) == changed(operation)


@pytest.mark.parametrize(
    ("operation", "data"),
    [
        ("cpupin", {"vcpu_cpu_map": [{"vcpu": "0", "cpu": "3"}]}),
        ("numatune", {"node_set": ["0"]}),
        ("addkey", {"keys": [{"key": slivers.KEY, "comment": "new"}]}),
        ("addkey", {"keys": [{"key": slivers.KEY}]}),
        ("removekey", {"keys": [{"key": slivers.KEY, "comment": "new"}]}),
        ("rescan", {"bdf": [NVME]}),
    ],
)
def test_an_action_is_carried_out_as_the_orchestrators_api_models_it(
    handler: VMHandler, fakes: Substrate, operation: str, data: dict[str, Any]
) -> None:
    unit = slivers.unit(vm(component("NVME", "d1", NVME)))
    handler.create(unit)
    assert act(handler, unit, operation, **sent(operation, data)) == changed(operation)


def sent(operation: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return an action's lists as the orchestrator's API reads them and a message carries them."""
    models = pytest.importorskip("fabric_cf.orchestrator.swagger_server.models.poa_post")
    messages = pytest.importorskip("fabric_mb.message_bus.messages.poa_avro")
    translate = pytest.importorskip("fabric_cf.actor.core.proxies.kafka.translate").Translate
    body = models.PoaPost.from_dict({"operation": operation, "data": data})
    lists = {name: getattr(body.data, name) for name in data}
    named = {"operation": operation, "rid": RESERVATION, "callback_topic": "orchestrator"}
    message = messages.PoaAvro(**named, **lists).to_dict()
    received = messages.PoaAvro(**named, **{name: message[name] for name in data})
    asked = translate.translate_poa_avro_to_poa(poa_avro=received).to_dict()
    return {name: asked[name] for name in data}


def test_a_pinned_cpu_is_pinned(handler: VMHandler, fakes: Substrate, unit: Any) -> None:
    handler.create(unit)
    act(handler, unit, "cpupin", vcpu_cpu_map=[{"vcpu": "1", "cpu": "3"}])
    assert list(fakes.pins.values()) == [{1: 3}]


def test_devices_are_rescanned(handler: VMHandler, fakes: Substrate) -> None:
    unit = slivers.unit(vm(component("NVME", "d1", NVME)))
    handler.create(unit)

    assert act(handler, unit, "rescan", bdf=slivers.listed([NVME])) == changed("rescan")
    assert fakes.calls["device.rescan"] == 1


def test_a_device_may_be_named_by_its_address_in_the_guest(
    handler: VMHandler, fakes: Substrate
) -> None:
    """FABlib sends what was written back to the allocations."""
    part = component("NVME", "d1", NVME)
    unit = slivers.unit(vm(part, component("SmartNIC", "nic1", NICS)))
    handler.create(unit)
    part.label_allocations.bdf = ["0000:05:00.0"]

    assert act(handler, unit, "rescan", bdf=["0000:05:00.0"]) == changed("rescan")
    assert fakes.calls["device.rescan"] == 1


def test_an_address_on_the_host_comes_before_one_in_the_guest(site: Site) -> None:
    first, second = component("NVME", "d1", NVME), component("NVME", "d2", NICS[0])
    unit = slivers.unit(vm(first, second))
    was = fim.vm(site, unit, unit.get_sliver())
    second.label_allocations.bdf = [NVME]
    assert fim.host_functions(was, unit.get_sliver(), [NVME]) == [NVME]


def test_cpuinfo_is_told_by_worker_and_instance(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    instance = unit.get_sliver().label_allocations.instance

    info = act(handler, unit, "cpuinfo")["poa_info"]["info"]

    assert info["cpuinfo"]["localhost"]["CPU(s):"] == "64"
    assert [row["VCPU"] for row in info["cpuinfo"][instance]] == ["0", "1"]


def test_numainfo_is_told_by_worker_and_instance(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    instance = unit.get_sliver().label_allocations.instance

    info = act(handler, unit, "numainfo")["poa_info"]["info"]

    assert set(info["numainfo"]) == {"localhost", instance}
    assert info["numainfo"][instance]["Total"]["Total"] == "4096"


def test_an_action_on_what_is_not_there_fails(handler: VMHandler, unit: Any) -> None:
    result = act(handler, unit, "reboot")
    assert result["target.code"] == -1
    assert "is not there" in result["exception.message"]
    assert result["poa_info"] == {"operation": "reboot", "poa_id": "poa-1", "code": -1}


@pytest.mark.parametrize(
    ("operation", "data", "field"),
    [
        ("sing", {}, "operation"),
        ("cpupin", {"vcpu_cpu_map": [{"vcpu": "no", "cpu": "1"}]}, "data.vcpu_cpu_map[0].vcpu"),
        ("cpupin", {}, "data.vcpu_cpu_map"),
        ("rescan", {"bdf": ["0000:99:00.0"]}, "data.bdf[0]"),
    ],
)
def test_bad_data_are_refused(
    handler: VMHandler, unit: Any, operation: str, data: dict[str, Any], field: str
) -> None:
    handler.create(unit)
    assert act(handler, unit, operation, **data)["exception.message"].startswith(field)


@pytest.mark.parametrize(
    ("operation", "data"),
    [
        ("addkey", {"keys": "PRIVATE"}),
        ("addkey", {"keys": [{"key": "PRIVATE QUJD"}]}),
        ("rescan", {"bdf": "PRIVATE"}),
        ("rescan", {"bdf": [{"PRIVATE": 1}]}),
        ("rescan", {"bdf": 7}),
        ("rescan", {"bdf": [7]}),
        ("rescan", {}),
        (["PRIVATE"], {}),
        ("PRIVATE", {}),
    ],
)
def test_bad_data_are_refused_in_plain_words_and_not_repeated(
    handler: VMHandler,
    unit: Any,
    operation: Any,
    data: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler.create(unit)

    message = act(handler, unit, operation, **data)["exception.message"]

    assert message.startswith(("data.", "operation: "))
    assert "PRIVATE" not in message
    assert "PRIVATE" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("data", [None, {}, "reboot"])
def test_an_action_without_data_is_refused(handler: VMHandler, unit: Any, data: Any) -> None:
    result, _ = handler.poa(unit, data)
    assert result["target.code"] == -1
    assert result["poa_info"] == {"operation": None, "poa_id": None, "code": -1}


# --- network services


def test_ports_are_made_changed_and_deleted(
    handler: VMHandler, nets: VnicNetHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    parent = f"{RESERVATION}-node1"
    first, second = port("p1", parent), port("p2", parent, "52:54:00:00:00:bb")
    net = slivers.unit(bridge(first), rid=OTHER)

    def macs() -> set[str]:
        return {p.mac for (owner, _), p in fakes.ports.items() if owner == OTHER}

    assert nets.create(net)[0] == ok("create")
    assert macs() == {"52:54:00:00:00:aa"}
    net.set_modified(modified=bridge(first, second))
    assert nets.modify(net)[0] == ok("modify")
    assert macs() == {"52:54:00:00:00:aa", "52:54:00:00:00:bb"}
    net.set_modified(modified=bridge(second))
    assert nets.modify(net)[0] == ok("modify")
    assert macs() == {"52:54:00:00:00:bb"}
    assert nets.delete(net)[0] == ok("delete")
    assert macs() == set()


def test_ports_are_modified_again_after_a_modification_without_allocations(
    handler: VMHandler, nets: VnicNetHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    nic = port("p1", f"{RESERVATION}-node1")
    net = slivers.unit(bridge(nic), rid=OTHER)
    nets.create(net)
    for _ in range(2):
        modified = bridge(nic)
        modified.label_allocations = None
        net.set_modified(modified=modified)
        assert nets.modify(net)[0] == ok("modify")
        go_on(net)


def test_a_port_of_a_vm_that_is_not_there_is_refused(nets: VnicNetHandler, site: Site) -> None:
    net = slivers.unit(bridge(port("p1", f"{RESERVATION}-node1")), rid=OTHER)
    assert RESERVATION in why_not(nets.create(net)[0], "create")


def test_ports_have_no_actions(nets: VnicNetHandler, site: Site) -> None:
    result, _ = nets.poa(slivers.unit(bridge()), {"operation": "reboot", "poa_id": "1"})
    assert result["target.code"] == -1


# --- clean restart


def test_a_clean_restart_deletes_all_that_bears_our_stamp(
    handler: VMHandler, fakes: Substrate
) -> None:
    for reservation in (RESERVATION, OTHER):
        handler.create(slivers.unit(vm(), rid=reservation))

    assert handler.clean_restart() == ok("clean_restart")
    assert not fakes.servers
    assert not fakes.ports


def test_a_clean_restart_deletes_what_was_begun(
    handler: VMHandler, fakes: Substrate, site: Site, unit: Any
) -> None:
    fakes.fault("compute.create", at=0, kind="fail")
    fakes.fault("network.delete_port", at=0, kind="fail")
    handler.create(unit)
    fakes.mend()

    assert handler.clean_restart() == ok("clean_restart")
    assert not fakes.ports
    assert Journal(FileStore(site.state_dir)).unfinished() == ()


def test_a_clean_restart_of_ports_leaves_the_vms(
    handler: VMHandler, nets: VnicNetHandler, fakes: Substrate, unit: Any
) -> None:
    """The actor asks whichever handler is configured first."""
    handler.create(unit)
    begun = unfinished_port(nets, fakes)

    assert nets.clean_restart() == ok("clean_restart")
    assert list(fakes.servers) == [RESERVATION]
    assert begun not in fakes.ports


def test_a_clean_restart_of_vms_leaves_the_ports_of_services(
    handler: VMHandler, nets: VnicNetHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    begun = unfinished_port(nets, fakes)

    assert handler.clean_restart() == ok("clean_restart")
    assert not fakes.servers
    assert begun in fakes.ports


def unfinished_port(nets: VnicNetHandler, fakes: Substrate) -> tuple[str, str]:
    """Return the port that a creation leaves behind which cannot be taken back."""
    fakes.fault("compute.attach_port", at=0, kind="fail")
    fakes.fault("network.delete_port", at=0, kind="fail")
    nets.create(slivers.unit(bridge(port("p1", f"{RESERVATION}-node1")), rid=OTHER))
    fakes.mend()
    assert (OTHER, "p1") in fakes.ports
    return OTHER, "p1"


def test_a_clean_restart_that_cannot_delete_all_says_so(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    fakes.fault("network.delete_port", at=0, kind="fail")

    assert RESERVATION in why_not(handler.clean_restart(), "clean_restart")


def test_a_clean_restart_that_cannot_read_deletes_nothing(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    handler.create(unit)
    fakes.fault("compute.servers", at=0, kind="fail")

    assert "compute.servers failed" in why_not(handler.clean_restart(), "clean_restart")
    assert fakes.servers


def test_a_clean_restart_that_reads_less_than_the_journal_says_deletes_nothing(
    handler: VMHandler, fakes: Substrate, site: Site, unit: Any
) -> None:
    handler.create(unit)
    Journal(FileStore(site.state_dir)).begin(Operation.MODIFY, {"id": OTHER, "type": "VM"})

    message = why_not(handler.clean_restart(), "clean_restart")

    assert OTHER in message
    assert fakes.servers


def test_a_clean_restart_of_nothing_is_done(handler: VMHandler, fakes: Substrate) -> None:
    assert handler.clean_restart() == ok("clean_restart")


# --- the actor's limit


def test_each_operation_ends_before_the_actors_limit(site: Site) -> None:
    limits = bounded(site).limits
    for operation in ("create", "modify", "delete", "poa"):
        taken = limits.busy + getattr(limits, operation) + 2 * limits.undo
        assert taken < site.actor.limit


def test_the_sites_own_limits_are_kept_where_they_are_less(config: Callable[..., Path]) -> None:
    path = config(limits={"delete": 20.0})
    site = processor_of({"config.properties.file": str(path)}).site
    assert site.limits.delete == 20


def test_an_operation_that_takes_too_long_says_that_it_was_the_actors_limit(
    config: Callable[..., Path], logger: logging.Logger, unit: Any
) -> None:
    path = config(actor={"management_network": "mgmt", "limit": 2.0})
    properties = {"config.properties.file": str(path)}
    site = processor_of(properties).site
    fakes = substrate(site, "localhost")
    fakes.fault("compute.create", kind="hang")

    message = why_not(VMHandler(logger, properties).create(unit)[0], "create")
    fakes.mend()

    assert actor_limits(site).sentence in message
    assert "actor's limit of 2 s" in message


def test_the_sites_own_limit_is_not_called_the_actors(
    config: Callable[..., Path], logger: logging.Logger, unit: Any
) -> None:
    path = config(limits={"create": 0.5, "undo": 1.0})
    properties = {"config.properties.file": str(path)}
    fakes = substrate(processor_of(properties).site, "localhost")
    fakes.fault("compute.create", kind="hang")

    message = why_not(VMHandler(logger, properties).create(unit)[0], "create")
    fakes.mend()

    assert "actor" not in message


# --- the processor


def test_a_processor_is_kept_for_a_file(properties: dict[str, str]) -> None:
    assert processor_of(properties) is processor_of(properties)


def test_a_file_that_has_changed_is_read_again(config: Callable[..., Path]) -> None:
    properties = {"config.properties.file": str(config())}
    before = processor_of(properties)
    config(site="OTHER")

    assert processor_of(properties).site.site == "OTHER"
    assert before.site.site == "TEST"


def test_many_at_once_share_it(handler: VMHandler, fakes: Substrate) -> None:
    units = [slivers.unit(vm(), rid=f"{n}{RESERVATION[1:]}") for n in range(8)]
    threads = [threading.Thread(target=handler.create, args=(unit,)) for unit in units]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({unit.get_sliver().management_ip for unit in units}) == 8


# --- the names


def test_handlers_are_made_as_the_actor_does(
    logger: logging.Logger, properties: dict[str, str]
) -> None:
    for name in ("VMHandler", "VnicNetHandler"):
        handler = getattr(fabric_direct.actor, name)(logger, properties, threading.Lock())
        assert handler.get_logger() is logger


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError):
        fabric_direct.actor.NetHandler  # noqa: B018


def test_the_logger_may_be_missing(properties: dict[str, str], fakes: Substrate, unit: Any) -> None:
    assert VMHandler(None, properties).create(unit)[0] == ok("create")


CLOUD: dict[str, Any] = {
    "openstack": {"cloud": "lab", "external_network": "public"},
    "hosts": {"localhost": {}},
    "networks": {
        "mgmt": {
            "strategy": "flat_dhcp",
            "subnet": "10.20.1.0/24",
            "physical_network": "physnet1",
            "router": True,
        }
    },
    "actor": {"management_network": "mgmt", "floating_ip": True},
}


def test_a_floating_ip_is_the_management_address(
    config: Callable[..., Path], logger: logging.Logger, unit: Any
) -> None:
    path = config(**CLOUD)
    VMHandler(logger, {"config.properties.file": str(path)}).create(unit)
    assert unit.get_sliver().management_ip.startswith("203.0.113.")


def test_who_declines_ipv4_gets_no_floating_ip(
    config: Callable[..., Path], logger: logging.Logger
) -> None:
    path = config(**CLOUD)
    sliver = vm(flags=Flags(ipv4_management=False))
    VMHandler(logger, {"config.properties.file": str(path)}).create(slivers.unit(sliver))
    assert not sliver.management_ip.startswith("203.0.113.")


def test_an_unknown_worker_is_refused(handler: VMHandler, site: Site) -> None:
    unit = slivers.unit(vm(label_allocations=Labels(instance_parent="w9.fabric-testbed.net")))
    assert "w9.fabric-testbed.net" in why_not(handler.create(unit)[0], "create")


def test_what_cannot_be_written_back_is_not_left_there(
    handler: VMHandler, fakes: Substrate, unit: Any
) -> None:
    class Closed(Labels):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "instance" and value is not None:
                raise TypeError("cannot be written")
            super().__setattr__(name, value)

    unit.get_sliver().label_allocations = Closed(instance_parent="localhost")

    assert why_not(handler.create(unit)[0], "create") == "cannot be written"
    assert not fakes.servers
    assert not fakes.ports
