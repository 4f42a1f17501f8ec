"""The operational actions on a virtual machine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import HostDrivers, Server, TuningDriver
from fabric_direct.drivers.contract.tuning import node_set
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import (
    Conflict,
    DriverError,
    FabricDirectError,
    InvalidSliver,
    NotVerified,
    Unsupported,
)
from fabric_direct.handlers.action_data import Nothing, Reboot, action_data
from fabric_direct.handlers.guests.keys import Keys, add_keys, remove_keys
from fabric_direct.handlers.guests.readiness import Readiness, await_set_up, pin_shown_key
from fabric_direct.handlers.vm.observe import tenant_of
from fabric_direct.model import Capacities, Frozen, Name, PciAddress, State
from fabric_direct.site.config import Site


@dataclass(frozen=True, slots=True)
class Target:
    """The server that an action works on, with its site, drivers and guest."""

    site: Site
    drivers: HostDrivers
    server: Server
    guest: Guest | None
    console: Callable[[], str]
    """Returns what the guest wrote to its console, or nothing."""


class Resize(Frozen):
    """The new size of the server."""

    capacities: Capacities | None = None
    """As they are if absent."""
    flavor: Name | None = None
    """A flavor of the cloud; by capacities if absent."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.capacities or self.flavor):
            raise ValueError("needs 'capacities' or 'flavor'")
        return self


class ConsoleRequest(Frozen):
    """The amount of console output to return."""

    lines: Annotated[int, Field(ge=1, le=100_000)] = 100
    """How many of its last lines."""


class VcpuPin(Frozen):
    """One virtual CPU on one host CPU."""

    vcpu: Annotated[int, Field(ge=0)]
    cpu: Annotated[int, Field(ge=0)]


class Rescan(Frozen):
    """Which devices are found again."""

    bdf: Annotated[tuple[PciAddress, ...], Field(min_length=1)]
    """Functions on the host; each device that has one of them is taken as a whole."""


class CpuPin(Frozen):
    """Which virtual CPU runs on which host CPU."""

    vcpu_cpu_map: Annotated[tuple[VcpuPin, ...], Field(min_length=1)]


class NumaTune(Frozen):
    """Which host nodes the memory is taken from."""

    node_set: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]


def _cpuinfo(target: Target, _: Nothing) -> dict[str, Any]:
    return _tuning(target).cpu_info(_domain(target))


def _numainfo(target: Target, _: Nothing) -> dict[str, Any]:
    return _tuning(target).numa_info(_domain(target))


def _cpupin(target: Target, data: CpuPin) -> dict[str, Any]:
    pins = {pin.vcpu: pin.cpu for pin in data.vcpu_cpu_map}
    _tuning(target).pin_cpus(_domain(target), pins)
    found = _cpuinfo(target, Nothing())
    has = {vcpu["vcpu"]: vcpu["affinity"] for vcpu in found["vcpus"]}
    _verify(all(has.get(vcpu) == [cpu] for vcpu, cpu in pins.items()), "the CPUs were pinned")
    return found


def _numatune(target: Target, data: NumaTune) -> dict[str, Any]:
    wanted = frozenset(data.node_set)
    _tuning(target).set_numa_nodes(_domain(target), wanted)
    found = _numainfo(target, Nothing())
    _verify(node_set(found["node_set"]) == wanted, "the NUMA nodes were set")
    return found


def _verify(so: bool, done: str) -> None:
    """Raise NotVerified unless what was done is so when it is read back."""
    if not so:
        raise NotVerified(f"{done}, but are not so when read back")


def _tuning(target: Target) -> TuningDriver:
    if target.drivers.tuning is None:
        raise target.drivers.unsupported("CPUs and memory cannot be looked at", "tuning")
    return target.drivers.tuning


def _domain(target: Target) -> str:
    if target.server.domain is None:
        raise Unsupported(
            "CPUs and memory cannot be looked at",
            where=target.server.instance,
            why="the cloud tells the domain of a server to administrators only",
        )
    return target.server.domain


def _rescan(target: Target, data: Rescan) -> dict[str, Any]:
    """Take devices from the guest and the host's bus, find them again, and give them back."""
    tenant = tenant_of(target.drivers, target.server)
    components = target.server.stamp.sliver.devices()
    chosen = [c for c in components if set(c.bdf) & set(data.bdf)]
    having = {address for component in chosen for address in component.bdf}
    for number, address in enumerate(data.bdf):
        if address not in having:
            raise InvalidSliver(f"the sliver has no device {address}", field=f"data.bdf[{number}]")
    for component in chosen:
        limit = target.site.limits.detach
        target.drivers.device(component).rescan(tenant, component, timeout=limit)
    return {"devices": [str(address) for address in sorted(having)]}


def _start(target: Target, _: Nothing) -> dict[str, Any]:
    target.drivers.compute.start(target.server.sliver)
    return _answering(target)


def _stop(target: Target, _: Nothing) -> dict[str, Any]:
    timeout = target.site.limits.detach
    target.drivers.compute.stop(target.server.sliver, timeout=timeout)
    return _state(target, State.STOPPED)


def _reboot(target: Target, data: Reboot) -> dict[str, Any]:
    timeout = target.site.limits.detach
    target.drivers.compute.reboot(target.server.sliver, hard=data.hard, timeout=timeout)
    return _answering(target)


def _resize(target: Target, data: Resize) -> dict[str, Any]:
    was = target.server.stamp.sliver
    flavor = data.flavor if data.flavor or data.capacities else was.flavor
    size = {"capacities": data.capacities or was.capacities, "flavor": flavor}
    wanted = target.server.stamp.model_copy(update={"sliver": was.model_copy(update=size)})
    try:
        target.drivers.compute.resize(wanted)
    except (Conflict, DriverError, NotVerified) as error:
        _give_devices_back(target, error)
        raise
    was_on = target.server.state is State.RUNNING
    answer = _answering(target) if was_on else _state(target, target.server.state)
    found = target.drivers.compute.find(target.server.sliver)
    _verify(found is not None and found.stamp == wanted, "the size and the stamp were changed")
    return answer


def _answering(target: Target) -> dict[str, Any]:
    _restore_devices(target)
    if target.guest:
        ports = target.drivers.network.ports(target.server.sliver)
        plugged = {port.component for port in target.server.ports}
        wanted = [port for port in ports if port.component in plugged]
        readiness = Readiness(target.site, target.drivers, target.server.stamp)
        readiness.wait(target.guest, wanted, target.console)
    return _state(target, State.RUNNING)


def _restore_devices(target: Target) -> None:
    """Give back what a restart has taken: Nova makes the domain anew, without what it does not know."""
    tenant = tenant_of(target.drivers, target.server)
    for component in target.server.stamp.sliver.devices():
        driver = target.drivers.device(component)
        lost = driver.differences(component, tenant)
        if lost:
            warn(f"put right after the restart: {'; '.join(lost)}")
            driver.attach(tenant, component)


def _give_devices_back(target: Target, error: FabricDirectError) -> None:
    """Restore the devices of a server that runs as before; if that fails, say so in the error."""
    try:
        server = target.drivers.compute.find(target.server.sliver)
        if server and server.state is State.RUNNING and server.host == target.server.host:
            _restore_devices(target)
    except FabricDirectError as other:
        error.why = "; ".join(filter(None, (error.why, f"its devices are not back: {other}")))


def _state(target: Target, wanted: State) -> dict[str, Any]:
    """Return the state of the server, read back.

    :raises NotVerified: if it is not what is wanted.
    """
    found = target.drivers.compute.find(target.server.sliver)
    state = found.state if found else State.ABSENT
    if state is not wanted:
        raise NotVerified(f"the server is {state.value}, not {wanted.value}, when read back")
    return {"state": state.value}


def _addkey(target: Target, data: Keys) -> dict[str, Any]:
    return add_keys(_set_up_guest(target), data)


def _removekey(target: Target, data: Keys) -> dict[str, Any]:
    return remove_keys(_set_up_guest(target), data)


def _set_up_guest(target: Target) -> Guest:
    """Return the guest when cloud-init has set it up, which writes the keys of the sliver."""
    guest = target.guest
    if guest is None:
        raise Unsupported(
            "keys cannot be changed",
            why="the site looks into no guest",
            remedy="set guest in site.yaml",
        )
    pin_shown_key(guest, target.console)
    limit = target.drivers.deadline.remaining(target.site.limits.guest_boot)
    await_set_up(guest, limit / 2)
    return guest


def _stamp(target: Target, _: Nothing) -> dict[str, Any]:
    return target.server.stamp.model_dump(mode="json", exclude_none=True)


def _console(target: Target, data: ConsoleRequest) -> dict[str, Any]:
    return {"console": target.drivers.compute.console(target.server.sliver, data.lines)}


_ACTIONS: dict[str, tuple[type[Frozen], Callable[[Target, Any], dict[str, Any]]]] = {
    "addkey": (Keys, _addkey),
    "console": (ConsoleRequest, _console),
    "cpuinfo": (Nothing, _cpuinfo),
    "cpupin": (CpuPin, _cpupin),
    "numainfo": (Nothing, _numainfo),
    "numatune": (NumaTune, _numatune),
    "reboot": (Reboot, _reboot),
    "removekey": (Keys, _removekey),
    "rescan": (Rescan, _rescan),
    "resize": (Resize, _resize),
    "stamp": (Nothing, _stamp),
    "start": (Nothing, _start),
    "stop": (Nothing, _stop),
}
NAMES = tuple(_ACTIONS)


def parse(action: str, data: dict[str, Any]) -> Callable[[Target], dict[str, Any]]:
    """Return what carries the action out, with its data validated.

    :raises InvalidSliver: if there is no such action, or its data are wrong.
    """
    values = action_data({name: model for name, (model, _) in _ACTIONS.items()}, action, data)
    _, function = _ACTIONS[action]
    return lambda target: function(target, values)
