"""Compare the allow-lists of a site with what its AM advertises: FABRIC's resource model (ARM)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fabric_direct.doctor.diagnosis import Diagnosis, fail, failed, ok, warn
from fabric_direct.drivers.contract import HostDevice
from fabric_direct.errors import FabricDirectError
from fabric_direct.migration.arm import CARDS, ResourceModel, read
from fabric_direct.model import DeviceState, PciAddress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, Site

_SUBJECT = "resource model"
_SHOWN = 8
"""Functions that a diagnosis names; the others are counted."""


def check_resource_model(site: Site, path: Path) -> Iterator[Diagnosis]:
    """Compare each host; a host that does not answer is named."""
    try:
        model = read(path)
    except FabricDirectError as error:
        yield failed(_SUBJECT, error, "name the file that the AM loads")
        return
    for component in model.unread:
        found = f"component {component.component} {component.why}"
        yield warn(_SUBJECT, found, "correct the resource model")
    for worker in sorted(model.workers.keys() - {model.worker(host) for host in site.hosts}):
        found = f"worker {worker} is not a host of site.yaml: slivers that come to it are refused"
        yield fail(_SUBJECT, found, "add it to site.yaml: hosts")
    with HandlerProcessor(site) as processor:
        for host in site.hosts:
            yield from _check_host(host, model, site, processor)


def _check_host(
    host: str, model: ResourceModel, site: Site, processor: HandlerProcessor
) -> Iterator[Diagnosis]:
    subject, worker = f"{_SUBJECT} of {host}", model.worker(host)
    if worker is None:
        yield warn(subject, "it has no such worker", "add it there, or leave it out of site.yaml")
        return
    try:
        there = {device.address: device for device in processor.devices(host)}
    except FabricDirectError as error:
        yield warn(
            subject, f"not known: {error}", "see to it that the host answers, then ask again"
        )
        return
    wanted = {entry.bdf: entry for entry in model.workers[worker] if entry.bdf}
    unlike = [
        *_refused(subject, wanted, there, site.hosts[host].devices),
        *_not_advertised(subject, wanted, there),
        *_other_macs(subject, wanted, site.hosts[host].devices),
    ]
    yield from unlike or [ok(subject, f"{len(wanted)} functions are allowed as it has them")]


def _refused(
    subject: str,
    wanted: Mapping[PciAddress, AllowedDevice],
    there: Mapping[PciAddress, HostDevice],
    entries: Iterable[AllowedDevice],
) -> Iterator[Diagnosis]:
    """Yield what is advertised, and would be refused to a sliver that gets it."""
    listed = {entry.bdf for entry in entries}
    reasons: dict[str, list[PciAddress]] = {}
    for address, entry in wanted.items():
        device = there.get(address)
        if reason := _reason(entry, device, listed=address in listed):
            reasons.setdefault(reason, []).append(address)
    for reason, addresses in reasons.items():
        found = f"advertised, and {reason}: {_named(addresses)}"
        remedy = "correct hosts: devices of site.yaml, or the resource model"
        yield fail(subject, found, remedy)


def _reason(entry: AllowedDevice, device: HostDevice | None, *, listed: bool) -> str:
    """Return why an advertised function would be refused; empty if it would not."""
    if device is None:
        return f"not on the host{'' if listed else ', nor in the allow-list'}"
    if device.type is None:
        return "not in the allow-list"
    if device.type != entry.type:
        return f"allowed as {device.type}, not as {entry.type}"
    if device.model and entry.model and device.model != entry.model:
        return f"allowed as {device.model}, not as {entry.model}"
    return device.why if device.state is DeviceState.NOT_ALLOWED else ""


def _not_advertised(
    subject: str,
    wanted: Mapping[PciAddress, AllowedDevice],
    there: Mapping[PciAddress, HostDevice],
) -> Iterator[Diagnosis]:
    """Yield what is allowed, and nobody is given: but for the other functions of advertised cards."""
    cards = {(e.type, _slot(a)) for a, e in wanted.items() if e.type in CARDS}
    allowed = {a: d for a, d in there.items() if d.type and a not in wanted}
    alone = [a for a, d in allowed.items() if (d.type, _slot(a)) not in cards]
    if alone:
        found = f"allowed, and not advertised: {_named(alone)}"
        yield warn(subject, found, "leave them out of site.yaml, or add them to the resource model")


def _other_macs(
    subject: str, wanted: Mapping[PciAddress, AllowedDevice], entries: Iterable[AllowedDevice]
) -> Iterator[Diagnosis]:
    """Yield the functions of which site.yaml names another MAC: their addresses may have changed."""
    own = {entry.bdf: entry.mac for entry in entries if entry.bdf and entry.mac}
    theirs = {address: entry.mac for address, entry in wanted.items() if entry.mac}
    unlike = [a for a in own.keys() & theirs.keys() if own[a] != theirs[a]]
    if unlike:
        found = f"advertised with another MAC than site.yaml has: {_named(unlike)}"
        yield warn(subject, found, "compare both with the NIC: a PCI address may have changed")


def _named(addresses: Iterable[PciAddress]) -> str:
    every = sorted(addresses)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(map(str, every[:_SHOWN])) + more


def _slot(address: PciAddress) -> PciAddress:
    return replace(address, function=0)
