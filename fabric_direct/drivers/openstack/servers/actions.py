"""Actions on a server: requests, and how Nova says that they ended."""

import logging
from contextlib import suppress
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import SDKException, raise_from_response

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.errors import DriverError, FabricDirectError, TimedOut

log = logging.getLogger(__name__)

_REQUEST_ID = "X-Openstack-Request-Id"
# What Nova answers for the diagnostics of a server whose power is off.
_INVALID_STATE = 409
# Seconds to wait until Nova records how something ended; it does so a moment after the end.
_WRITTEN = 5.0


def act(cloud: Connection, server_id: str, action: dict[str, Any]) -> str:
    """Request an action and return the id of the request, which is also the action's.

    openstacksdk's own methods do not return that id.
    """
    response = cloud.compute.post(f"/servers/{server_id}/action", json=action)
    raise_from_response(response)
    return str(response.headers.get(_REQUEST_ID, ""))


def verify(cloud: Connection, server_id: str, request_id: str, what: str) -> None:
    """Block until Nova has recorded that the action succeeded.

    :raises DriverError: if it failed.
    :raises TimedOut: if Nova records nothing within 5 seconds.
    """
    events = _ended(cloud, server_id, request_id, what)
    failed = [event for event in events if event.result != "Success"]
    if failed:
        raise DriverError(f"cannot {what}", why=_said(failed) or "Nova says no more than that")


def why(cloud: Connection, server_id: str, action: str, *, ended: bool = False) -> str:
    """Return why a server's last action of that name failed, if Nova says so.

    Called after a failure, so it raises no other error.

    :param ended: whether the action is over, so that Nova records its end within moments.
    """
    with suppress(SDKException, FabricDirectError), uncached():
        actions = cloud.compute.server_actions(server_id)
        last = next((a for a in actions if a.action == action), None)
        if last is not None:
            if ended:
                with suppress(TimedOut):
                    _ended(cloud, server_id, last.request_id, action)
            return _said(_events(cloud, server_id, last.request_id)) or last.message or ""
    return ""


def fault(cloud: Connection, server_id: str) -> str:
    """Return why a server went to ERROR, in Nova's words, or "".

    Nova records it a moment after the ERROR, and returns it reliably only for a single server: its list
    reads the faults of one cell alone. Called after a failure, so it raises no other error.
    """
    said: list[str] = []

    def told() -> bool:
        with uncached():
            found = cloud.compute.get_server(server_id).fault or {}
        log.debug("%s: %s", server_id, found.get("details"))
        said[:] = [found["message"].strip()] if found else []
        return bool(said)

    with suppress(SDKException, FabricDirectError):
        wait_until("Nova to say what is wrong", told, timeout=_WRITTEN)
    return "".join(said)


def is_off(cloud: Connection, server_id: str) -> bool:
    """Return whether a server that Nova calls active does not run, as its worker says now.

    A resize that fails on its worker leaves it so, and Nova finds out minutes later. Only administrators
    may ask; to others it counts as running.
    """
    response = cloud.compute.get(f"/servers/{server_id}/diagnostics")
    return bool(response.status_code == _INVALID_STATE)


def trouble(cloud: Connection, host: str | None) -> str:
    """Return which compute services are disabled or down, as far as the user may know.

    :param host: the worker; all if absent.
    """
    query = {"host": host} if host else {}
    with suppress(SDKException, FabricDirectError), uncached():
        services = cloud.compute.services(binary="nova-compute", **query)
        return "; ".join(_state(s) for s in services if (s.status, s.state) != ("enabled", "up"))
    return ""


def _ended(cloud: Connection, server_id: str, request_id: str, what: str) -> list[Any]:
    """Return an action's events when all have ended; the last one does a moment after the action.

    :raises TimedOut: if one has not within 5 seconds.
    """
    events: list[Any] = []

    def ended() -> bool:
        events[:] = _events(cloud, server_id, request_id)
        return bool(events) and all(event.result for event in events)

    wait_until(f"Nova to say how it was to {what}", ended, timeout=_WRITTEN)
    return events


def _events(cloud: Connection, server_id: str, request_id: str) -> list[Any]:
    with uncached():
        return list(cloud.compute.get_server_action(request_id, server_id).events or ())


def _said(events: list[Any]) -> str:
    for event in events:
        if event.traceback:
            log.debug("%s: %s", event.event, event.traceback)
    # Each part of Nova that took part reports the same.
    return "; ".join(dict.fromkeys(event.details for event in events if event.details))


def _state(service: Any) -> str:
    reason = f" ({service.disabled_reason})" if service.disabled_reason else ""
    return f"nova-compute on {service.host} is {service.status}{reason} and {service.state}"
