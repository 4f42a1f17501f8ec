"""Values that pages show: rows, counts, and what needs attention. Nothing is read here."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from fabric_direct.drivers.contract import HostDevice, Server
from fabric_direct.model import DeviceState, State
from fabric_direct.page.readings import CachedReading
from fabric_direct.page.watching import Look, OperationUnderWay, StateView, Watching
from fabric_direct.upkeep.services import SiteServices

SLIVER_STATES = tuple(state.value for state in State if state is not State.ABSENT)
DEVICE_STATES = tuple(state.value for state in DeviceState)
_UNFIT = {DeviceState.UNCLEAN, DeviceState.LOST, DeviceState.QUARANTINED}
_SLOW = 2.0
"""Seconds after which an answer that has not come is worth a word."""
ANSWERS, SILENT, ASKED, NOT_ASKED = "answers", "silent", "no answer yet", "not asked"


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that needs attention."""

    text: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host."""

    name: str
    state: str
    """``answers``, ``silent``, ``no answer yet``, or ``not asked``."""
    why: str
    """What it says, or does not: an error."""
    maintenance: str
    slivers: int | None
    """None: not known."""
    devices: Mapping[str, int]
    """How many are in each state."""
    age: float | None
    """Seconds since it answered; None if it never did."""

    @property
    def link(self) -> str:
        """The path of its page."""
        return host_link(self.name)


@dataclass(frozen=True, slots=True)
class SliverRow:
    """A sliver."""

    id: str
    name: str
    type: str
    state: str
    host: str
    differences: tuple[str, ...] = ()
    server: Server | None = None
    """None of what is no server: a network service, a switch."""
    compared: bool = True
    """Whether it is known how it differs."""
    old: bool = False
    """Whether its host is silent by now: this is what was known last."""

    @property
    def link(self) -> str:
        """The path of its page."""
        return sliver_link(self.id)

    @property
    def wrong(self) -> bool:
        """Return whether it needs attention."""
        return bool(self.differences) or self.state == State.ERROR


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A PCI device of a host."""

    host: str
    device: HostDevice

    @property
    def sliver(self) -> str:
        """The sliver that has it; empty if none is named."""
        owner, slash, _ = (self.device.owner or "").rpartition("/")
        return owner if slash else ""

    @property
    def wrong(self) -> bool:
        """Return whether it needs attention."""
        return self.device.state in _UNFIT


@dataclass(frozen=True, slots=True)
class Overview:
    """A site at one moment."""

    hosts: tuple[HostRow, ...]
    slivers: tuple[SliverRow, ...]
    """Those that need attention first, then by id."""
    devices: tuple[DeviceRow, ...]
    books: StateView
    concerns: tuple[Concern, ...]
    waiting: bool
    """Whether something has never been read: what is shown is not all there is."""

    @property
    def silent(self) -> tuple[HostRow, ...]:
        """The hosts that do not answer."""
        return tuple(host for host in self.hosts if host.state == SILENT)

    @property
    def slivers_by_state(self) -> dict[str, int]:
        """Return the number of slivers in each state, in the order of the states."""
        return _counted((row.state for row in self.slivers), (*SLIVER_STATES, ""))

    @property
    def devices_by_state(self) -> dict[str, int]:
        """Return the number of devices in each state, in the order of the states."""
        return _counted((row.device.state.value for row in self.devices), DEVICE_STATES)

    @property
    def differing(self) -> int:
        """Return the number of slivers that differ from their stamps."""
        return sum(bool(row.differences) for row in self.slivers)

    def sliver(self, sliver_id: str) -> SliverRow | None:
        """Return a sliver; None if it is not known."""
        return next((row for row in self.slivers if row.id == sliver_id), None)

    def host(self, name: str) -> HostRow | None:
        """Return a host; None if it is not known."""
        return next((row for row in self.hosts if row.name == name), None)


def host_link(name: str) -> str:
    """Return the path of a host's page."""
    return f"/hosts/{quote(name, safe='')}"


def sliver_link(sliver_id: str) -> str:
    """Return the path of a sliver's page."""
    return f"/slivers/{quote(sliver_id, safe='')}"


def overview(watching: Watching) -> Overview:
    """Return what is known of a site."""
    cloud = _cloud(watching)
    known = {host: each.latest for host, each in watching.hosts.items()}
    rows = tuple(_host_rows(watching, known, cloud))
    slivers = tuple(_sliver_rows(watching, known, cloud))
    devices = tuple(
        DeviceRow(host, device)
        for host, reading in known.items()
        for device in _look(reading).devices
    )
    books = watching.books.latest.value or StateView()
    several: list[CachedReading[Any]] = [
        *known.values(),
        watching.services.latest,
        *([cloud] if cloud else []),
    ]
    concerns = tuple(_concerns(rows, slivers, devices, watching, cloud))
    waiting = any(reading.value is None and not reading.error for reading in several)
    return Overview(rows, slivers, devices, books, concerns, waiting)


def _look(reading: CachedReading[Look]) -> Look:
    return reading.value or Look()


def _cloud(watching: Watching) -> CachedReading[Look] | None:
    """Return what is known of a cloud's servers; None where there is no cloud."""
    if not (watching.cloud and watching.compared):
        return None
    listed, compared = watching.cloud.latest, watching.compared.latest.value
    if listed.value is None or compared is None:
        return listed
    return replace(listed, value=replace(listed.value, differences=compared.differences))


def _counted(states: Iterator[str], order: Collection[str]) -> dict[str, int]:
    found = Counter(states)
    return {state: found[state] for state in order if found[state]}


# --- hosts


def _host_rows(
    watching: Watching, known: Mapping[str, CachedReading[Look]], cloud: CachedReading[Look] | None
) -> Iterator[HostRow]:
    on = Counter(server.host for server in _look(cloud).servers) if cloud else None
    for name, reading in known.items():
        look = reading.value
        slivers = len(look.servers) if look else None
        asked = cloud is None or watching.site.passes_devices(name)
        yield HostRow(
            name,
            _state(reading, watching.clock()) if asked else NOT_ASKED,
            reading.error or _look(reading).unread,
            watching.site.hosts[name].maintenance or "",
            on[name] if on is not None else slivers,
            _counted((device.state.value for device in _look(reading).devices), DEVICE_STATES),
            watching.clock() - reading.at if look else None,
        )
    for name in sorted((on or Counter()).keys() - known.keys()):
        yield HostRow(name, NOT_ASKED, "", "", (on or Counter())[name], {}, None)


def _state(reading: CachedReading[Look], now: float) -> str:
    if reading.error:
        return SILENT
    late = reading.asked is not None and now - reading.asked > _SLOW
    return ASKED if late or reading.value is None else ANSWERS


# --- slivers


def _sliver_rows(
    watching: Watching, known: Mapping[str, CachedReading[Look]], cloud: CachedReading[Look] | None
) -> Iterator[SliverRow]:
    looks = [("", cloud)] if cloud else list(known.items())
    compared = watching.compared is None or watching.compared.latest.value is not None
    rows = [
        replace(row, compared=compared)
        for host, reading in looks
        for row in _of_look(host, reading)
    ]
    there = {row.id for row in rows}
    rows += [row for row in _service_rows(watching) if row.id not in there]
    yield from sorted(rows, key=lambda row: (not row.wrong, row.id))


def _of_look(host: str, reading: CachedReading[Look]) -> Iterator[SliverRow]:
    unlike = dict(_look(reading).differences)
    for server in _look(reading).servers:
        stamped = server.stamp.sliver
        yield SliverRow(
            server.sliver,
            stamped.name,
            stamped.type,
            server.state.value,
            server.host or host,
            unlike.get(server.sliver, ()),
            server,
            old=bool(reading.error),
        )


def _service_rows(watching: Watching) -> Iterator[SliverRow]:
    reading = watching.services.latest
    for each in reading.value.found if reading.value else ():
        service = each.service  # without it, a part is missing
        name, state = (service.name, service.state) if service else ("", State.ERROR)
        yield SliverRow(each.ref.id, name, each.ref.type, state.value, "", old=bool(reading.error))


# --- what needs attention


def _concerns(
    hosts: Collection[HostRow],
    slivers: Collection[SliverRow],
    devices: Collection[DeviceRow],
    watching: Watching,
    cloud: CachedReading[Look] | None,
) -> Iterator[Concern]:
    if cloud and cloud.error:
        yield Concern(f"The cloud does not answer: {cloud.error}")
    elif watching.compared and (error := watching.compared.latest.error):
        yield Concern(f"How slivers differ is not known: {error}")
    yield from _of_services(watching.services.latest)
    if error := watching.books.latest.error:
        yield Concern(f"The state directory cannot be read: {error}")
    for host in hosts:
        yield from _of_host(host)
    yield from _of_operations(watching.books.latest.value or StateView())
    for sliver in (row for row in slivers if row.wrong):
        unlike = "; ".join(sliver.differences)
        state = f"is in state {sliver.state}" if sliver.state == State.ERROR else "differs"
        yield Concern(f"Sliver {sliver.id} {state}{f': {unlike}' if unlike else ''}", sliver.link)
    for row in (row for row in devices if row.wrong):
        why = f": {row.device.why}" if row.device.why else ""
        text = f"Device {row.device.address} of {row.host} is {row.device.state}{why}"
        yield Concern(text, host_link(row.host))


def _of_services(reading: CachedReading[SiteServices]) -> Iterator[Concern]:
    if reading.error:
        yield Concern(f"Network services cannot be read: {reading.error}")
    for types, error in reading.value.silent.items() if reading.value else ():
        yield Concern(f"{types} cannot be read: {error}")


def _of_host(host: HostRow) -> Iterator[Concern]:
    if host.state == SILENT:
        yield Concern(f"Host {host.name} does not answer: {host.why}", host.link)
    elif host.why:
        yield Concern(f"Host {host.name} answers in part: {host.why}", host.link)


def _of_operations(books: StateView) -> Iterator[Concern]:
    works = {each.record.subject for each in books.under_way if each.works}
    for entry in books.unfinished:
        sliver = str(entry.sliver["id"])
        if sliver not in works:
            text = f"The {entry.operation} of {sliver} is unfinished, and no process works on it"
            yield Concern(f"{text}: fabric-direct recover", sliver_link(sliver))


# --- one host, one sliver


def under_way(books: StateView, sliver: str) -> OperationUnderWay | None:
    """Return the operation that is under way on a sliver, if any."""
    return next((each for each in books.under_way if each.record.subject == sliver), None)
