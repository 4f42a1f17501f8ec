"""The driver of network services that NSO makes."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from fabric_direct.calls import forks
from fabric_direct.calls.read_cache import current
from fabric_direct.drivers.contract import Service, Stamped
from fabric_direct.drivers.contract.service_names import (
    is_name_of,
    namesake,
    service_name,
    sliver_of,
)
from fabric_direct.drivers.http_api import await_end, change_once
from fabric_direct.drivers.nso.documents import (
    IDENTIFIERS,
    MODULES,
    WITH_IDENTIFIERS,
    Document,
    Documents,
    devices_of,
    refuse,
)
from fabric_direct.drivers.nso.instances import (
    as_sliver,
    differences,
    observed_gateway,
    observed_interfaces,
)
from fabric_direct.drivers.nso.restconf import Restconf
from fabric_direct.errors import (
    Conflict,
    DriverError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    NotVerified,
)
from fabric_direct.model import SliverRef
from fabric_direct.model.services import NetworkService
from fabric_direct.site.config import Site
from fabric_direct.site.services import KBIT, NsoSettings
from fabric_direct.state.service_claims import ServiceClaims

_SERVICES = "tailf-ncs:services"
_DEVICES = "tailf-ncs:devices"
_QUEUE = f"{_DEVICES}/commit-queue"
_TYPES = {module: kind for kind, module in reversed(MODULES.items())}
"""A type of each module, by which a sweep deletes what is in it."""
_Place = tuple[str, str]
"""A module and the name of an instance of it."""
_Change = tuple[str, str, Document]
"""Method, path and body of a request."""


class NsoService:
    """A :class:`~fabric_direct.drivers.contract.ServiceDriver` by NSO's RESTCONF.

    A service has its sliver's id in its name, as those of fabric_am do. It is made by one transaction
    with its identifiers, and changed by another.
    """

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - one controller for all hosts
        """Connect to nothing yet."""
        self._site = site

    @forks.cached_property
    def _settings(self) -> NsoSettings:
        settings = self._site.services.nso
        if settings is None:
            raise InvalidSite("must be given for the driver nso", field="services.nso")
        return settings

    @forks.cached_property
    def _api(self) -> Restconf:
        return Restconf(self._settings, self._site.limits.call)

    @property
    def _documents(self) -> Documents:
        return Documents(self._settings)

    def examine(self) -> tuple[str, ...]:
        """Return NSO's version, and how many services of each module may be read.

        What NSO's rules keep from this user (NACM) looks absent.
        """
        version = ".".join(map(str, self._api.version))
        counts = Counter(module for module, _ in self._named())
        modules = (*self._modules(), IDENTIFIERS)
        return (f"{version} at {self._api.where}", *(f"{counts[m]} {m}" for m in modules))

    def refuse_namesake(self, sliver: SliverRef, name: str) -> None:
        """Raise NotOurs if NSO has a service of the type, or identifiers, of exactly this name."""
        if sliver_of(name) == sliver.id:
            return
        module = MODULES[sliver.type]
        modules = (module, IDENTIFIERS) if module in WITH_IDENTIFIERS else (module,)
        if there := [f"{each} {name}" for each in modules if self._instance((each, name))]:
            raise namesake(f"NSO has {', '.join(there)}", self._api.where)

    # --- looking

    def check(self, sliver: NetworkService) -> None:
        """Raise an error unless NSO can make the service, or change it: by a dry run.

        :raises InvalidSliver: with the field, or with the words of NSO.
        :raises InvalidSite: if a service needs border routers and the site names none.
        """
        refuse(self._site, self._settings, sliver)
        there = self._there(sliver.id)
        if (name := _name(there)) and not is_name_of(name, sliver):
            raise InvalidSliver("cannot be changed", field="name", why=f"it is {name} in NSO")
        self._refuse_other(sliver, there)
        place, wanted = self._wanted(sliver, there)
        change = _replacement if _complete(there) else _creation
        found = self._api.dry_run(*change(place, wanted))
        if reads := current():
            reads.device_changes |= found

    def find(self, sliver_id: str) -> Service | None:
        """Return the service with the sliver's id in its name, if its identifiers are there, too."""
        there = self._there(sliver_id)
        place = _service(there)
        if place is None or not _complete(there):
            return None
        instance = self._instance(place)
        return None if instance is None else self._read(sliver_id, place, instance)

    def _read(self, sliver_id: str, place: _Place, instance: Document) -> Service:
        module, name = place
        with self._api.reading(f"{module} {name}"):
            burst = KBIT[self._settings.burst_unit]
            return Service(
                sliver=sliver_id,
                source=f"{module} {name}",
                name=name,
                interfaces=observed_interfaces(instance),
                gateway=observed_gateway(instance),
                stamp=as_sliver(module, instance, sliver_id, burst),
                type=_TYPES.get(module, ""),
            )

    def differences(self, sliver: NetworkService) -> tuple[str, ...]:
        """Name what differs in NSO; if nothing does, whether the devices are as NSO says."""
        there = self._there(sliver.id)
        place = _service(there)
        instance = self._instance(place) if place else None
        if place is None or instance is None:
            return ("there is no such service",)
        if place[0] != MODULES[sliver.type]:
            return (f"it is an {place[0]}, not an {MODULES[sliver.type]}",)
        found = [*differences(self._documents.of(sliver, place[1]), instance)]
        found += [] if _complete(there) else ["its identifiers are missing"]
        if not found and not self._in_sync(place):
            found.append("its devices are not as NSO configures them")
        return tuple(found)

    def _in_sync(self, place: _Place) -> bool:
        """Return whether the devices of a service have what NSO configures there."""
        output = self._api.act(f"{_path(place)}/deep-check-sync", {"outformat": "boolean"})
        said = str(output.get("in-sync")).lower()
        if said not in {"true", "false"}:
            why = "deep-check-sync says neither true nor false"
            raise DriverError(f"cannot check {place[1]}", where=self._api.where, why=why)
        return said == "true"

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the service and its identifiers, as far as they are there."""
        return tuple(f"{module} {name}" for module, name in self._there(sliver_id))

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the services that this site has claims for: NSO does not say whose they are."""
        ours = ServiceClaims(self._site).slivers()
        return tuple(
            Stamped(sliver, _TYPES[module], name)
            for module, name in self._named()
            if module in _TYPES and (sliver := sliver_of(name)) in ours
        )

    # --- changing

    def apply(self, sliver: NetworkService) -> Service:
        """Make the service by one PATCH with its identifiers, or change it by a PUT.

        Where nothing has to be changed in NSO, and its devices differ, it is deployed again.

        :raises Conflict: if a service of another type has the sliver's id.
        """
        refuse(self._site, self._settings, sliver)
        there = self._there(sliver.id)
        self._refuse_other(sliver, there)
        place, wanted = self._wanted(sliver, there)
        so = partial(self._is, place, wanted)
        if not _complete(there):
            self._commit(sliver.id, _creation(place, wanted), so)
        if not so():
            self._commit(sliver.id, _replacement(place, wanted), so)
        elif _complete(there) and not self._in_sync(place):
            self._restore(place, wanted)
        return self._found(sliver.id)

    def _restore(self, place: _Place, wanted: Document) -> None:
        """Deploy a service again. NSO sends what its copies of the devices lack: it reads them first."""
        for device in dict.fromkeys(devices_of(wanted)):
            path = f"{_DEVICES}/device={quote(device, safe='')}/sync-from"
            output = self._api.act(path, {})
            if str(output.get("result")).lower() != "true":
                what, why = f"NSO cannot read {device}", str(output.get("info", ""))
                raise DriverError(what, where=self._api.where, why=why)
        self._follow(self._api.act(f"{_path(place)}/re-deploy", {}, changes=True))

    def _found(self, sliver_id: str) -> Service:
        found = self.find(sliver_id)
        if found is None:
            raise NotVerified(f"the service of {sliver_id} is not there", where=self._api.where)
        return found

    def _is(self, place: _Place, wanted: Document) -> bool:
        """Return whether an instance is as its document, with its identifiers."""
        instance = self._instance(place)
        named = place[0] not in WITH_IDENTIFIERS or self._instance((IDENTIFIERS, place[1]))
        return bool(named) and instance is not None and not any(differences(wanted, instance))

    def _wanted(self, sliver: NetworkService, there: list[_Place]) -> tuple[_Place, Document]:
        """Return where a service is or will be, and its document."""
        name = _name(there) or service_name(sliver)
        return (MODULES[sliver.type], name), self._documents.of(sliver, name)

    def _refuse_other(self, sliver: NetworkService, there: list[_Place]) -> None:
        others = [f"{m} {n}" for m, n in there if m not in {IDENTIFIERS, MODULES[sliver.type]}]
        if others:
            why = f"NSO has {', '.join(others)}"
            raise Conflict(f"sliver {sliver.id} is of another type", where=self._api.where, why=why)

    def remove(self, sliver_id: str) -> None:
        """Delete the service, then its identifiers; both are seen to be absent on return.

        :raises NotVerified: if any of it is still there.
        """
        for place in self._there(sliver_id):
            with suppress(NotFound):
                self._commit(
                    sliver_id, ("DELETE", _path(place), None), partial(self._is_absent, place)
                )
        if left := self.leftovers(sliver_id):
            what = f"still there: {', '.join(left)}"
            raise NotVerified(what, where=self._api.where)

    def _is_absent(self, place: _Place) -> bool:
        return self._instance(place) is None

    def _commit(
        self, sliver_id: str, change: tuple[str, str, Document | None], so: Callable[[], bool]
    ) -> None:
        """Change something once, and follow it to its end.

        :param so: returns whether it is done.
        """
        method, path, body = change
        stamp = f"{self._site.site}/{sliver_id}"
        commit = partial(self._api.commit, method, path, body, stamp)
        self._follow(change_once(commit, so, self._site.limits.call) or {})

    # --- the commit queue

    def _follow(self, answer: Document) -> None:
        """Wait for the end of the queue item that an answer names, if it names one.

        :raises DriverError: if it failed.
        :raises Conflict: if a device is not as NSO knows it, or is locked.
        """
        with self._api.reading("the answer to a commit"):
            item = next(_queued(answer), None)
        if item is None:
            return
        what = f"item {item} of NSO's commit queue"
        await_end(what, lambda: self._queue_item("", item) is None, self._site.limits.create)
        done = self._queue_item("/completed", item)
        if done and str(done.get("status")) != "completed":
            why = "; ".join(_failures(done)) or str(done.get("status"))
            self._api.raise_said(f"{what} failed", why)
            raise DriverError(f"{what} failed", where=self._api.where, why=why)

    def _queue_item(self, below: str, item: str) -> Document | None:
        answer = self._api.read(f"{_QUEUE}{below}/queue-item={quote(item, safe='')}")
        with self._api.reading("the commit queue"):
            return answer and dict(next(iter(answer.values()))[0])

    # --- what is there

    def _there(self, sliver_id: str) -> list[_Place]:
        """Return what carries the sliver's id; identifiers last, as what needs them goes first."""
        return [place for place in self._named() if sliver_of(place[1]) == sliver_id]

    def _named(self) -> Iterator[_Place]:
        """Yield all instances of the modules of the types that the site has NSO make."""
        for module in (*self._modules(), IDENTIFIERS):
            answer = self._api.read(f"{_SERVICES}/{module}:{module}", "?fields=name")
            with self._api.reading(f"the names of {module}"):
                entries = answer[f"{module}:{module}"] if answer else []
                names = [str(entry["name"]) for entry in entries]
            yield from ((module, name) for name in names)

    def _modules(self) -> tuple[str, ...]:
        types = [kind for kind in MODULES if self._site.driver_for(kind) == "nso"]
        return tuple(dict.fromkeys(MODULES[kind] for kind in types))

    def _instance(self, place: _Place) -> Document | None:
        module, name = place
        answer = self._api.read(_path(place), "?content=config")
        with self._api.reading(f"{module} {name}"):
            return answer and dict(answer[f"{module}:{module}"][0])


def _path(place: _Place) -> str:
    module, name = place
    return f"{_SERVICES}/{module}:{module}={quote(name, safe='')}"


def _entry(module: str, instance: Document) -> Document:
    return {f"{module}:{module}": [instance]}


def _creation(place: _Place, wanted: Document) -> _Change:
    module, name = place
    services = _entry(module, wanted)
    if module in WITH_IDENTIFIERS:
        services |= _entry(IDENTIFIERS, {"name": name, "group": {"service": module}})
    return "PATCH", _SERVICES, {_SERVICES: services}


def _replacement(place: _Place, wanted: Document) -> _Change:
    return "PUT", _path(place), _entry(place[0], wanted)


def _service(there: list[_Place]) -> _Place | None:
    return next((place for place in there if place[0] != IDENTIFIERS), None)


def _name(there: list[_Place]) -> str:
    """Return NSO's name of what is there."""
    return there[0][1] if there else ""


def _complete(there: list[_Place]) -> bool:
    """Return whether a service is there, with the identifiers that it needs."""
    place = _service(there)
    if place is None:
        return False
    return place[0] not in WITH_IDENTIFIERS or (IDENTIFIERS, place[1]) in there


def _queued(value: Any) -> Iterator[str]:
    """Yield the ids of queue items in an answer."""
    if not isinstance(value, dict):
        return
    for key, each in value.items():
        if key.rpartition(":")[2] in {"commit-queue", "commit-queue-result"} and "id" in each:
            yield str(each["id"])
        else:
            yield from _queued(each)


def _failures(item: Document) -> Iterator[str]:
    failed = item.get("failed", [])
    for each in failed if isinstance(failed, list) else []:
        yield f"{each.get('name', '')}: {each.get('reason', '')}"
