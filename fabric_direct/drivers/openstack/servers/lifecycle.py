"""The life of a sliver's server in Nova: find, start, stop, resize and delete it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server as NovaServer
from openstack.exceptions import ConflictException, NotFoundException

from fabric_direct.calls.deadline import Deadline, took_back, wait_until
from fabric_direct.drivers.openstack.client.base import CloudDriver
from fabric_direct.drivers.openstack.client.errors import make_once, refused_as, translated
from fabric_direct.drivers.openstack.client.hidden_servers import is_marked_deleted, server_by_id
from fabric_direct.drivers.openstack.client.poller import wait_for
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.client.stamp import read_stamp, sliver_tag
from fabric_direct.drivers.openstack.client.transport import server_deleted
from fabric_direct.drivers.openstack.servers import actions
from fabric_direct.drivers.openstack.servers.inventory import too_little
from fabric_direct.drivers.openstack.servers.lookup import ServerLookup
from fabric_direct.drivers.openstack.servers.request import first_stamped, is_settled
from fabric_direct.errors import (
    Conflict,
    DriverError,
    FabricDirectError,
    InvalidSliver,
    NotFound,
    NotVerified,
    TimedOut,
    Unreachable,
)
from fabric_direct.model import NodeSliver

Done = Callable[[NovaServer | None], bool]
# Seconds; Nova writes a server's metadata with the server, but its list has been seen without them.
_INCOMPLETE = 20.0


class ServerLifecycle:
    """The servers of one sliver in Nova; there should be one at most.

    The methods also raise openstacksdk's errors: call them within
    :meth:`~fabric_direct.drivers.openstack.client.base.CloudDriver.translated`.
    """

    def __init__(self, driver: CloudDriver, sliver_id: str) -> None:
        self.cloud, self.site, self.sliver = driver.connection(), driver.site.site, sliver_id
        self.limits, self._lookup = driver.site.limits, ServerLookup(driver)

    # --- found

    def servers(self) -> list[NovaServer]:
        """Return all servers that bear the sliver's tag, the oldest first.

        :raises Unreachable: if one may be in a cell that does not answer.
        """
        return self._lookup.of(self.sliver)

    def server(self) -> NovaServer | None:
        """Return the server with the sliver's stamp, or None; one that is marked as deleted is none.

        :raises Unreachable: as :meth:`servers`.
        """
        return first_stamped(s for s in self.servers() if not is_marked_deleted(s))

    def readable(self) -> list[NovaServer]:
        """Return all servers that bear the sliver's tag, the oldest first.

        Nova may show a server without its metadata when it begins to build it: read it again then.

        :raises NotVerified: if one has no stamp that can be read, or is marked as deleted.
        """
        found = self.servers()

        def complete() -> bool:
            nonlocal found
            with uncached():
                found = self.servers()
            return not any(map(_is_incomplete, found))

        if any(map(_is_incomplete, found)):
            with suppress(TimedOut):
                wait_until("Nova to show the server whole", complete, timeout=_INCOMPLETE)
        _refuse_unreadable(found)
        return found

    def the(self) -> NovaServer:
        """Return the server.

        :raises NotFound: if there is none.
        """
        found = self.server()
        if found is None:
            raise NotFound(f"there is no server of sliver {self.sliver}")
        return found

    def now(self) -> NovaServer:
        """Return the server as it is now: its state changes by itself.

        :raises NotFound: if there is none.
        """
        with uncached():
            return self.the()

    def usable(self) -> NovaServer | None:
        """Return the server to continue with, or None.

        One that went to ERROR before it was ever active was left by an interrupted call; it is deleted.

        :raises NotVerified: if a server carries the sliver's tag, but no stamp that can be read.
        """
        found = self.readable()
        stillborn = [s for s in found if s.status == "ERROR" and not s.launched_at]
        if stillborn == found:
            self.remove(stillborn)
            return None
        return found[0]

    # --- changed

    def settled(self, server: NovaServer, deadline: Deadline) -> NovaServer:
        """Block until Nova has no task for the server; return it.

        :raises NotFound: if it is gone.
        """
        if is_settled(server):
            return server
        return self._until(is_settled, server, deadline, "be left alone")

    def act(
        self,
        action: dict[str, Any],
        server: NovaServer,
        deadline: Deadline,
        done: Done = is_settled,
    ) -> tuple[NovaServer, str]:
        """Request an action; return the server afterwards, and the id of the request."""
        request_id = actions.act(self.cloud, server.id, action)
        verb = next(iter(action)).removeprefix("os-")
        return self._until(done, server, deadline, verb), request_id

    def _until(self, done: Done, server: NovaServer, deadline: Deadline, verb: str) -> NovaServer:
        found = self.wait(done, [server.id], deadline, f"server {server.id} to {verb}")
        if found is None:
            raise NotFound(f"server {server.id} is gone")
        return found

    def power_on(self, server: NovaServer, deadline: Deadline) -> None:
        """Block until the server runs: wait for one that is being built, start one that is off.

        :raises DriverError: if it is in ERROR, with Nova's words.
        :raises NotVerified: if it does not run then, for example because it is paused.
        """
        found = self.settled(server, deadline)
        if found.status == "SHUTOFF":
            found = self._switch("os-start", found, "ACTIVE", deadline)
        if found.status == "ERROR":
            raise self._in_error(found)
        if found.status != "ACTIVE":
            raise NotVerified(f"server {found.id} is {found.status}, not ACTIVE")
        self._lookup.learn(self.sliver, found)

    def power_off(self, deadline: Deadline) -> None:
        """Shut the server down; block until it is off."""
        found = self.settled(self.now(), deadline)
        if found.status != "SHUTOFF":
            self._switch("os-stop", found, "SHUTOFF", deadline)

    def reboot(self, kind: str, deadline: Deadline) -> None:
        """Restart the server, ``SOFT`` or ``HARD``, and ask Nova how that ended."""
        server = self.settled(self.now(), deadline)
        found, request_id = self.act({"reboot": {"type": kind}}, server, deadline)
        self._expect(found, "ACTIVE", "reboot")
        actions.verify(self.cloud, server.id, request_id, f"reboot server {server.id}")

    def _switch(
        self, action: str, server: NovaServer, wanted: str, deadline: Deadline
    ) -> NovaServer:
        def begun(found: NovaServer) -> bool:
            return bool(found.task_state) or found.status == wanted

        try:
            found = self._act_once({action: None}, server, deadline, begun)
        except ConflictException:
            # Someone else, or the guest itself, may have been first.
            found = self.settled(self.now(), deadline)
            if found.status != wanted:
                raise
        self._expect(found, wanted, action.removeprefix("os-"))
        return found

    def _act_once(
        self,
        action: dict[str, Any],
        server: NovaServer,
        deadline: Deadline,
        begun: Callable[[NovaServer], bool],
        done: Done = is_settled,
    ) -> NovaServer:
        """Request an action, return the server afterwards; if the answer is lost, look if it began."""

        def act() -> NovaServer:
            return self.act(action, server, deadline, done)[0]

        def look() -> NovaServer | None:
            found = self.the()
            return found if begun(found) else None

        found = make_once(act, look, timeout=self.limits.call)
        verb = next(iter(action)).removeprefix("os-")
        return found if done(found) else self._until(done, found, deadline, verb)

    def _expect(self, found: NovaServer, wanted: str, action: str) -> None:
        if found.status != wanted:
            why = actions.why(self.cloud, found.id, action)
            raise DriverError(f"server {found.id} is {found.status}, not {wanted}", why=why)

    def _in_error(self, found: NovaServer) -> DriverError:
        stamp = read_stamp(found)
        host = found.compute_host or (stamp.sliver.host if stamp else None)
        reasons = (actions.fault(self.cloud, found.id), actions.trouble(self.cloud, host))
        why = "; ".join(filter(None, reasons)) or "Nova says no more than that"
        return DriverError(f"server {found.name} went to ERROR", why=why)

    # --- resized

    def resize(
        self, server: NovaServer, flavor: Flavor, sliver: NodeSliver, deadline: Deadline
    ) -> None:
        """Resize the server to the flavor.

        One whose sliver names a worker, or has devices of it, stays there. Nova cannot be told so, as it
        can for a migration: what it moved is taken back, and runs again if it ran before.

        :raises InvalidSliver: if its worker has no room for it as Placement knows; nothing was touched.
        :raises Conflict: if Nova moved it to another worker.
        """
        bound = sliver.host is not None or bool(sliver.devices())
        if server.status == "VERIFY_RESIZE":
            worker = sliver.host or "" if bound else None
            server = self._end_resize(server, flavor, worker, deadline)
        if _flavor(server) == flavor.name:
            return
        worker = server.compute_host if bound else None
        if worker:
            self._refuse_full(worker, flavor, sliver)
        try:
            with translated(f"resize server {server.id}"):
                self._resize(server, flavor, worker, deadline)
        except FabricDirectError as error:
            error.why = "; ".join(filter(None, (error.why, self._as_before(server, deadline))))
            raise

    def _refuse_full(self, worker: str, flavor: Flavor, sliver: NodeSliver) -> None:
        """Raise InvalidSliver if the worker has no room for a second server of that size.

        It holds both sizes until the resize is confirmed.
        """
        little = too_little(self.cloud, worker, flavor)
        if little:
            raise InvalidSliver(
                f"the server cannot be resized on {worker}",
                why=f"until a resize ends, the worker holds both sizes: {'; '.join(little)}",
                remedy="make room there, or ask for less",
                field="flavor" if sliver.flavor else "capacities",
            )

    def _resize(
        self, server: NovaServer, flavor: Flavor, worker: str | None, deadline: Deadline
    ) -> None:
        def begun(found: NovaServer) -> bool:
            return bool(found.task_state) or found.status in {"RESIZE", "VERIFY_RESIZE"}

        found = self._act_once({"resize": {"flavorRef": flavor.id}}, server, deadline, begun)
        if found.status == "VERIFY_RESIZE":
            elsewhere = found.compute_host
            found = self._end_resize(found, flavor, worker, deadline)
            if _flavor(found) != flavor.name:
                raise _moved(worker, elsewhere)
        if _flavor(found) != flavor.name:
            why = actions.why(self.cloud, found.id, "resize", ended=True)
            raise DriverError(f"server {found.id} was not resized", why=why)
        self._expect(found, server.status, "confirmResize")

    def _end_resize(
        self, server: NovaServer, flavor: Flavor, worker: str | None, deadline: Deadline
    ) -> NovaServer:
        """Confirm the resize if it is as requested; revert it otherwise.

        :param worker: where it must be; empty if that is not known, None if it may be anywhere.
        """
        stays = worker is None or server.compute_host in {None, worker}
        good = stays and _flavor(server) == flavor.name
        action = {"confirmResize" if good else "revertResize": None}

        def begun(found: NovaServer) -> bool:
            return bool(found.task_state) or found.status != "VERIFY_RESIZE"

        return self._act_once(action, server, deadline, begun, _is_resized)

    def _as_before(self, server: NovaServer, deadline: Deadline) -> str:
        """Have a server run that ran before its resize failed; say what came of it.

        Called after a failure, so it raises no other error.
        """
        try:
            with translated(f"start server {server.id} again"):
                found = self.settled(self.now(), deadline)
                said = self._run_again(server, found, deadline) if server.status == "ACTIVE" else ""
                if not said and _as_it_was(found, server):
                    took_back()
                return said
        except FabricDirectError as error:
            return str(error)

    def _run_again(self, server: NovaServer, found: NovaServer, deadline: Deadline) -> str:
        if found.compute_host != server.compute_host or found.status == "VERIFY_RESIZE":
            return f"it is {found.status} on {found.compute_host} now"
        if found.status == "SHUTOFF":
            self._switch("os-start", found, "ACTIVE", deadline)
        elif found.status == "ERROR" or actions.is_off(self.cloud, found.id):
            self.reboot("HARD", deadline)
        else:
            return ""
        return "it was off, and runs again"

    # --- removed

    def remove(self, servers: Sequence[NovaServer]) -> None:
        """Delete these servers, for good; block until Nova does not know them any more.

        :raises NotVerified: if Nova cannot delete one of them, with its words.
        :raises Denied: if Nova marks one as deleted, and the user may not force its deletion.
        :raises TimedOut: if one remains.
        """
        if not servers:
            return
        deadline = Deadline.within(self.limits.delete)
        left: Sequence[NovaServer] = servers
        # Nova loses a request that arrives while it gives up an earlier one.
        for _ in range(2):
            left = self._delete(left, deadline)
            if not left:
                server_deleted()
                return
        raise self._not_deleted(left[0])

    def _delete(self, servers: Sequence[NovaServer], deadline: Deadline) -> list[NovaServer]:
        """Delete servers; return those whose deletion Nova has given up."""
        for server in servers:
            if not is_marked_deleted(server):
                self.cloud.compute.delete_server(server.id, ignore_missing=True)
        ids = [server.id for server in servers]
        left = self._until_deleted(ids, deadline)
        marked = [server.id for server in left if is_marked_deleted(server)]
        for server_id in marked:
            self._force(server_id)
        return self._until_deleted(ids, deadline) if marked else left

    def _force(self, server_id: str) -> None:
        """Request that Nova deletes a server that it has marked; it may have reclaimed it meanwhile."""
        what = f"server {server_id} is only marked as deleted, and Nova keeps it"
        remedy = "let this user force its deletion, or wait until Nova reclaims it"
        with refused_as(what, remedy), suppress(NotFoundException, ConflictException):
            actions.act(self.cloud, server_id, {"forceDelete": None})

    def _until_deleted(self, ids: Sequence[str], deadline: Deadline) -> list[NovaServer]:
        """Block until Nova has ended the deletion of each server; return those that are still there."""
        what = f"server {', '.join(ids)} to be gone"
        if len(ids) > 1:  # the list shows one of them
            return self._await_by_id(lambda left: all(map(_has_failed, left)), ids, deadline, what)
        left = self.wait(_is_gone_or_failed, ids, deadline, what)
        return [] if left is None else [left]

    def _not_deleted(self, left: NovaServer) -> NotVerified:
        why = actions.fault(self.cloud, left.id) or "Nova could not delete it"
        return NotVerified(f"server {left.name} ({left.id}) is not gone", why=why)

    def wait(
        self, done: Done, ids: Sequence[str], deadline: Deadline, what: str
    ) -> NovaServer | None:
        """Block until ``done`` accepts the server; return it, or None if it is gone.

        :param ids: the servers that the sliver has; one is gone when Nova does not know its id.
        """
        tag = sliver_tag(self.site, self.sliver)
        limit = deadline.remaining()
        found = wait_for(self.cloud, "server", tag, done, timeout=limit, what=what)
        if found is not None and found.id in ids:
            return found
        there = self._await_by_id(lambda left: any(map(done, left)), ids, deadline, what)
        return next(filter(done, there), None)

    def _await_by_id(
        self,
        ended: Callable[[list[NovaServer]], bool],
        ids: Sequence[str],
        deadline: Deadline,
        what: str,
    ) -> list[NovaServer]:
        """Block until ``ended`` accepts those of the servers that are there, or none is; return them.

        No list shows them all. A cell that does not answer is waited for.
        """
        there: list[NovaServer] = []
        why = ""

        def known() -> bool:
            nonlocal why
            try:
                with uncached():
                    found = [server_by_id(self.cloud, server_id) for server_id in ids]
            except Unreachable as error:
                why = str(error)
                return False
            there[:] = [server for server in found if server is not None]
            why = ", ".join(f"server {server.id} is {server.status}" for server in there)
            return not there or ended(there)

        try:
            wait_until(what, known, timeout=deadline.remaining())
        except TimedOut as error:
            error.why = why
            raise
        return there


def _is_incomplete(server: NovaServer) -> bool:
    return server.status == "BUILD" and read_stamp(server) is None


def _as_it_was(found: NovaServer, before: NovaServer) -> bool:
    """Return whether a server has its status, worker and flavor of before."""
    return (found.status, found.compute_host, _flavor(found)) == (
        before.status,
        before.compute_host,
        _flavor(before),
    )


def _moved(worker: str | None, elsewhere: str | None) -> Conflict:
    return Conflict(
        f"the server cannot be resized on {worker}",
        why=f"Nova moved it to {elsewhere}; it was taken back",
        remedy="leave out the sliver's host and devices, or have Nova resize on the same worker: "
        "allow_resize_to_same_host in its configuration, and room there",
    )


def _refuse_unreadable(servers: Sequence[NovaServer]) -> None:
    for server in servers:
        if is_marked_deleted(server):
            raise NotVerified(
                f"server {server.name} ({server.id}) is marked as deleted",
                why="Nova keeps it for a while, and its ports and volumes with it",
                remedy=f"restore it (openstack server restore {server.id}), or delete the sliver",
            )
        if read_stamp(server) is None:
            raise NotVerified(
                f"server {server.name} ({server.id}) has no stamp that can be read",
                why="its metadata were changed",
                remedy="delete the sliver",
            )


def _flavor(server: NovaServer) -> str:
    return str(server.flavor.original_name or server.flavor.name)


def _is_resized(found: NovaServer | None) -> bool:
    return found is None or (is_settled(found) and found.status != "VERIFY_RESIZE")


def _is_gone_or_failed(found: NovaServer | None) -> bool:
    return found is None or _has_failed(found)


def _has_failed(found: NovaServer) -> bool:
    """Return whether Nova has ended a deletion, and the server is there: in ERROR, or only marked."""
    return found.status in {"ERROR", "SOFT_DELETED"} and not found.task_state
