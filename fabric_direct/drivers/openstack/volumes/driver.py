"""Data volumes in Cinder."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from openstack.block_storage.v3._proxy import Proxy as Cinder
from openstack.block_storage.v3.volume import Volume as CinderVolume
from openstack.connection import Connection
from openstack.exceptions import BadRequestException, NotFoundException, raise_from_response
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from fabric_direct.drivers.contract import Stamped, Volume
from fabric_direct.drivers.contract.site_checks import verify_size
from fabric_direct.drivers.openstack.client.answers import Messages, read
from fabric_direct.drivers.openstack.client.base import CloudDriver
from fabric_direct.drivers.openstack.client.errors import if_there, words
from fabric_direct.drivers.openstack.client.hidden_servers import server_by_id
from fabric_direct.drivers.openstack.client.name_cache import is_id
from fabric_direct.drivers.openstack.client.poller import wait_for
from fabric_direct.drivers.openstack.client.stamp import COMPONENT, SITE, SLIVER, volume_metadata
from fabric_direct.errors import (
    Conflict,
    DriverError,
    FabricDirectError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    NotVerified,
)

# Share of a call's limit for waiting, which must end before the call times out.
_WAIT = 0.9
# Being created or deleted.
_UNFINISHED = {"creating", "downloading", "deleting"}
# Transient states, in which Cinder refuses to delete a volume.
_PASSING = {"creating", "downloading", "attaching", "detaching"}
_ATTACHABLE = {"available", "in-use", "reserved", "attaching", "detaching"}
# First microversion of the message API with the filter ``resource_uuid``.
_MESSAGES = "3.31"


def volumes_of(
    connection: Connection, site: str, sliver_id: str | None = None
) -> list[CinderVolume]:
    """List the volumes of a sliver, or of the whole site, by their stamp: always the same request.

    Those that are attached come first, then the oldest: the answer of a request may have been lost.
    The stamp is looked at again, for a cloud may be set up to ignore the filter.
    """
    stamp = {SITE: site} if sliver_id is None else {SITE: site, SLIVER: sliver_id}
    found = _cinder(connection).volumes(details=True, properties=json.dumps(stamp))
    ours = [volume for volume in found if stamp.items() <= volume.metadata.items()]
    return sorted(ours, key=lambda v: (not v.attachments, str(v.created_at), v.id))


def _cinder(connection: Connection) -> Cinder:
    # openstacksdk also knows version 2 of the API, which Zed no longer has.
    return cast(Cinder, connection.block_storage)


class OpenStackVolume(CloudDriver):
    """The :class:`~fabric_direct.drivers.contract.VolumeDriver` of a cloud.

    Volumes of one's own are found by their metadata, with one list for each sliver. A volume that
    Cinder has put into ``error`` is there, so that it is seen and can be removed; one that is still
    being made or removed is not.
    """

    def _cinder(self) -> Cinder:
        return _cinder(self.connection())

    # --- present volumes

    def check(self, name: str, sliver_id: str | None = None) -> None:
        """Raise InvalidSliver unless there is a present volume of that name or id to attach.

        One in use by a server that is not ours is refused here. If one of ours has it, it may be that
        of the very sliver that asks; unless that is known, Nova refuses when it is attached.

        :param sliver_id: who asks: what its server has already is its own.
        :raises InvalidSliver: with the field ``volume``.
        """
        with self.translated(f"look for volume {name}"):
            found = self._present(name)
            if found.status not in _ATTACHABLE:
                raise _refusal(f"{name!r} is {found.status}, not available")
            if not found.is_multiattach:
                self._refuse_users(name, found, sliver_id)

    def existing(self, name: str) -> Volume:
        """Return a present volume by its id or exact name that we did not make.

        :raises NotFound: if there is none, or it was made for a sliver.
        :raises InvalidSliver: if several have the name.
        """
        with self.translated(f"look for volume {name}"):
            found = self._by_name(name)
            return Volume(sliver="", component="", source=found.id, size=found.size)

    def _present(self, name: str) -> CinderVolume:
        try:
            return self._by_name(name)
        except NotFound as error:
            raise _refusal(f"there is no volume {name!r}", error.why) from error

    def _by_name(self, name: str) -> CinderVolume:
        found = self._candidates(name)
        foreign = [volume for volume in found if SLIVER not in volume.metadata]
        if len(foreign) > 1:
            ids = ", ".join(volume.id for volume in foreign)
            raise _refusal(f"several volumes are named {name!r}", ids, "give the id of one")
        if not foreign:
            why = f"it was made for sliver {found[0].metadata[SLIVER]}" if found else ""
            raise NotFound(f"no volume {name!r}", why=why)
        return foreign[0]

    def _candidates(self, name: str) -> list[CinderVolume]:
        if is_id(name):
            found = if_there(self._cinder().get_volume, name)
            return [found] if found else []
        named = self._cinder().volumes(details=True, name=name)
        return [volume for volume in named if volume.name == name]

    def _refuse_users(self, name: str, volume: CinderVolume, sliver_id: str | None) -> None:
        for server_id in _servers(volume):
            server = server_by_id(self.connection(), server_id)
            metadata = server.metadata if server else {}
            ours = metadata.get(SITE) == self.site.site
            if not ours or sliver_id not in {None, metadata.get(SLIVER)}:
                raise _refusal(
                    f"{name!r} is in use by server {server.name if server else server_id}",
                    f"it serves sliver {metadata[SLIVER]}" if ours else "",
                    "detach it there first",
                )

    # --- volumes of slivers

    def find(self, sliver_id: str, component: str) -> Volume | None:
        """Return the volume made for this component, or None; one that is being made is not there."""
        with self.translated(f"look for the volume of {sliver_id}/{component}"):
            found = self._of(sliver_id, component)
        return next((_volume(v) for v in found if v.status not in _UNFINISHED), None)

    def volumes(self, sliver_id: str) -> tuple[Volume, ...]:
        """Return all volumes made for the sliver, in whatever state they are."""
        with self.translated(f"list the volumes of {sliver_id}"):
            return tuple(_volume(found) for found in self._ours(sliver_id))

    def all_volumes(self) -> tuple[Volume, ...]:
        """Return the volumes made for all slivers of the site, by one list."""
        with self.translated("list the volumes of the site"):
            return tuple(map(_volume, volumes_of(self.connection(), self.site.site)))

    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        """Return the component's volume, made empty with ``size`` GiB if it is not there.

        :raises QuotaExceeded: if the project has no room for it.
        :raises DriverError: if Cinder cannot make it, in Cinder's words; it is left for ``delete``.
        :raises NotVerified: if it is there with another size.
        """
        with self.translated(f"make the volume of {sliver_id}/{component}"):
            found = self._staying(sliver_id, component) or self._make(sliver_id, component, size)
            available = self._available(found)
            volume = _volume(available)
            verify_size(volume, size, available.name)
            return volume

    def delete(self, sliver_id: str, component: str) -> None:
        """Delete the component's volume; it is gone on return.

        :raises Conflict: if it is attached or has snapshots, in Cinder's words.
        :raises NotVerified: if Cinder could not delete it.
        """
        with self.translated(f"delete the volume of {sliver_id}/{component}"):
            for volume in self._of(sliver_id, component):
                self._delete(volume)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name every volume of the sliver that is still there."""
        with self.translated(f"list the volumes of {sliver_id}"):
            found = self._ours(sliver_id)
        return tuple(f"volume {v.name} ({v.id}, {v.status})" for v in found)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all volumes that were made for slivers, in whatever state they are."""
        with self.translated("list the volumes"):
            found = volumes_of(self.connection(), self.site.site)
        return tuple(
            Stamped(v.metadata.get(SLIVER, ""), "volume", f"{v.name} ({v.id})") for v in found
        )

    def _ours(self, sliver_id: str) -> list[CinderVolume]:
        return volumes_of(self.connection(), self.site.site, sliver_id)

    def _of(self, sliver_id: str, component: str) -> list[CinderVolume]:
        """Return the volumes of a component; what the list by stamp lacks is looked for by name."""
        wanted = volume_metadata(self.site.site, sliver_id, component).items()
        if found := [v for v in self._ours(sliver_id) if wanted <= v.metadata.items()]:
            return found
        named = self._cinder().volumes(details=True, name=f"{sliver_id}-{component}")
        return [volume for volume in named if wanted <= volume.metadata.items()]

    def _staying(self, sliver_id: str, component: str) -> CinderVolume | None:
        """Return the component's volume; block until one that is being deleted is gone."""
        found = self._of(sliver_id, component)
        for volume in found:
            if volume.status == "deleting":
                self._wait_gone(volume)
        return next((volume for volume in found if volume.status != "deleting"), None)

    def _make(self, sliver_id: str, component: str, size: int) -> CinderVolume:
        kind = self.settings.volume_type
        request = {
            "name": f"{sliver_id}-{component}",
            "size": size,
            "metadata": volume_metadata(self.site.site, sliver_id, component),
            **({"volume_type": kind} if kind else {}),
        }
        try:
            return self.once(
                lambda: self._cinder().create_volume(**request),
                lambda: next(iter(self._of(sliver_id, component)), None),
            )
        except NotFoundException as error:
            if kind is None:
                raise
            raise InvalidSite(
                f"the cloud has no volume type {kind!r}", field="openstack.volume_type"
            ) from error

    def _available(self, volume: CinderVolume) -> CinderVolume:
        """Block until Cinder has made the volume; return it."""
        settled: CinderVolume | None = volume
        if volume.status in _UNFINISHED:
            settled = self._wait(volume, _has_settled, "to be available")
        if settled is None:
            raise NotVerified(f"volume {volume.name} is gone")
        if settled.status == "error":
            why = self._message(volume.id) or "Cinder says no more than that"
            raise DriverError(f"volume {volume.name} went to error", why=why)
        return settled

    def _message(self, volume_id: str) -> str:
        """Return what Cinder tells users of the volume's failure; it may come after the failure."""
        retrying = Retrying(
            retry=retry_if_result(lambda text: not text),
            wait=wait_fixed(0.2),
            stop=stop_after_delay(1.0),
            retry_error_callback=lambda _: "",
        )
        with suppress(FabricDirectError), self.translated("ask for messages"):
            return str(retrying(self._ask_for_message, volume_id))
        return ""

    def _ask_for_message(self, volume_id: str) -> str:
        answer = self._cinder().get(
            "/messages", params={"resource_uuid": volume_id}, microversion=_MESSAGES
        )
        raise_from_response(answer)
        found = read(Messages, answer.json(), f"the messages of volume {volume_id}")
        return "; ".join(message.user_message for message in found.messages)

    def _delete(self, volume: CinderVolume) -> None:
        settled: CinderVolume | None = volume
        if volume.status in _PASSING:
            settled = self._wait(volume, _has_settled, "to be left alone")
        if settled is None:
            return
        if settled.status != "deleting":
            self._ask_to_delete(settled)
        self._wait_gone(settled)

    def _ask_to_delete(self, volume: CinderVolume) -> None:
        try:
            self._cinder().delete_volume(volume.id, ignore_missing=True)
        except BadRequestException as error:
            self._verify_deleting(volume, error)

    def _verify_deleting(self, volume: CinderVolume, error: BadRequestException) -> None:
        """Raise Conflict unless it is being deleted: a repeated request finds what the first one did."""
        found = if_there(self._cinder().get_volume, volume.id)
        if found is None or found.status == "deleting":
            return
        if found.status == "error_deleting":
            raise self._not_deleted(found) from error
        users = ", ".join(_servers(found))
        raise Conflict(
            f"volume {found.name} ({found.status}) cannot be deleted",
            why=words(error),
            remedy=f"detach it from server {users} first" if users else "",
        ) from error

    def _wait_gone(self, volume: CinderVolume) -> None:
        if left := self._wait(volume, _has_ended, "to be gone"):
            raise self._not_deleted(left)

    def _not_deleted(self, volume: CinderVolume) -> NotVerified:
        return NotVerified(
            f"volume {volume.name} ({volume.id}) is not gone",
            why=self._message(volume.id) or "Cinder could not delete it (error_deleting)",
            remedy="an administrator must reset its state and delete it",
        )

    def _wait(
        self, volume: CinderVolume, done: Callable[[CinderVolume | None], bool], what: str
    ) -> CinderVolume | None:
        limit, what = self.site.limits.call * _WAIT, f"volume {volume.name} {what}"
        return wait_for(self.connection(), "volume", volume.id, done, timeout=limit, what=what)


def _servers(volume: CinderVolume) -> list[str]:
    """Return the ids of the servers that it is attached to; Cinder can attach it to hosts, too."""
    return sorted({a["server_id"] for a in volume.attachments or () if a.get("server_id")})


def _has_settled(volume: CinderVolume | None) -> bool:
    return volume is None or volume.status not in _PASSING


def _has_ended(volume: CinderVolume | None) -> bool:
    return volume is None or volume.status == "error_deleting"


def _volume(found: CinderVolume) -> Volume:
    metadata = found.metadata
    return Volume(metadata[SLIVER], metadata.get(COMPONENT, ""), found.id, found.size)


def _refusal(what: str, why: str = "", remedy: str = "") -> InvalidSliver:
    return InvalidSliver(what, why=why, remedy=remedy, field="volume")
