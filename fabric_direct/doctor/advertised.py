"""Compare the allow-lists of a site with what its AM advertises: FABRIC's resource model (ARM)."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fabric_direct.doctor.diagnosis import Diagnosis, fail, failed, ok, warn
from fabric_direct.drivers.contract import HostDevice
from fabric_direct.errors import FabricDirectError
from fabric_direct.migration.arm import CARDS, read
from fabric_direct.model import DeviceState, PciAddress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, Site

_SUBJECT = "resource model"
_GIVEN = {DeviceState.FREE, DeviceState.USED, DeviceState.LOST}
"""States of a device that is given to a sliver, or can be."""
_SHOWN = 8
"""Functions that a diagnosis names; the others are counted."""


def check_resource_model(site: Site, path: Path) -> Iterator[Diagnosis]:
    """Compare each host; a host that does not answer is named."""
    try:
        model = read(path)
    except FabricDirectError as error:
        yield failed(_SUBJECT, error, "name the file that the AM loads")
        return
    for part in model.unread:
        yield warn(_SUBJECT, f"{part.what} {part.why}", "correct the resource model")
    named = model.workers_of(site.hosts)
    for worker in sorted(model.workers.keys() - set(named.values())):
        found = f"worker {worker} is not a host of site.yaml: slivers that come to it are refused"
        yield fail(_SUBJECT, found, "add it to site.yaml: hosts")
    with HandlerProcessor(site) as processor:
        for host in site.hosts:
            subject = f"{_SUBJECT} of {host}"
            if host in named:
                devices = model.workers[named[host]]
                yield from _check_host(host, devices, site, processor, subject)
            else:
                remedy = "add it there, or leave it out of site.yaml"
                yield warn(subject, "it has no such worker", remedy)


def _check_host(
    host: str,
    devices: Iterable[AllowedDevice],
    site: Site,
    processor: HandlerProcessor,
    subject: str,
) -> Iterator[Diagnosis]:
    try:
        there = {device.address: device for device in processor.devices(host)}
    except FabricDirectError as error:
        yield warn(
            subject, f"not known: {error}", "see to it that the host answers, then ask again"
        )
        return
    wanted = {entry.bdf: entry for entry in devices if entry.bdf}
    own = site.hosts[host].devices
    unlike = [
        *_refused(subject, wanted, there, own),
        *_not_advertised(subject, wanted, there, own),
        *_other_macs(subject, wanted, own),
    ]
    yield from unlike or [ok(subject, f"{len(wanted)} functions are allowed as it has them")]


def _refused(
    subject: str,
    wanted: Mapping[PciAddress, AllowedDevice],
    there: Mapping[PciAddress, HostDevice],
    own: Iterable[AllowedDevice],
) -> Iterator[Diagnosis]:
    """Yield what is advertised, and would be refused to a sliver that gets it."""
    listed = {entry.bdf for entry in own}
    by_uplink = {entry.type for entry in own if entry.uplink}
    reasons: dict[str, list[PciAddress]] = {}
    for address, entry in wanted.items():
        if address in there:
            reason = _reason(entry, there[address], there)
        elif address in listed or entry.type in by_uplink:
            reason = "not on the host"
        else:
            reason = "not on the host, nor in the allow-list"
        if reason:
            reasons.setdefault(reason, []).append(address)
    for reason, addresses in reasons.items():
        found = f"advertised, and {reason}: {_named(addresses)}"
        remedy = "correct hosts: devices of site.yaml, or the resource model"
        yield fail(subject, found, remedy)


def _reason(
    entry: AllowedDevice, device: HostDevice, there: Mapping[PciAddress, HostDevice]
) -> str:
    """Return why an advertised function would be refused; empty if it would not."""
    if device.type is None:
        return "not in the allow-list"
    if device.type != entry.type:
        return f"allowed as {device.type}, not as {entry.type}"
    if device.model and entry.model and device.model != entry.model:
        return f"allowed as {device.model}, not as {entry.model}"
    if device.state not in _GIVEN:
        return f"{device.state}{f' ({device.why})' if device.why else ''}"
    foreign = [peer for peer in device.peers if peer in there and there[peer].type is None]
    if foreign:
        return f"in an IOMMU group with what is not in the allow-list ({_named(foreign)})"
    return ""


def _not_advertised(
    subject: str,
    wanted: Mapping[PciAddress, AllowedDevice],
    there: Mapping[PciAddress, HostDevice],
    own: Iterable[AllowedDevice],
) -> Iterator[Diagnosis]:
    """Yield what is allowed, and nobody is given: but for the other functions of advertised cards."""
    cards = {(e.type, a.slot_address) for a, e in wanted.items() if e.type in CARDS}
    allowed = {e.bdf: str(e.type) for e in own if e.bdf} | {
        a: d.type for a, d in there.items() if d.type
    }
    alone = [a for a, t in allowed.items() if a not in wanted and (t, a.slot_address) not in cards]
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
