"""The cloud's errors as ours, and what to do when it is unclear whether a request was carried out."""

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import urlsplit

import requests
from keystoneauth1 import exceptions as keystone
from openstack import exceptions as sdk
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay
from tenacity import wait_exponential as exponential

from fabric_direct.calls.deadline import noting
from fabric_direct.drivers.openstack.client.transport import uncached, unsent
from fabric_direct.errors import (
    Conflict,
    Denied,
    DriverError,
    FabricDirectError,
    InvalidSite,
    NotFound,
    PoolExhausted,
    QuotaExceeded,
    TimedOut,
    Unreachable,
    Unsupported,
)

T = TypeVar("T")
_NATIVE = (sdk.SDKException, keystone.ClientException, requests.RequestException)

# Errors of reading an answer of another form: openstacksdk takes its form for granted.
NONSENSE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_LIBRARIES, _OURS = {"openstack", "keystoneauth1"}, __name__.split(".")[0]

_CREDENTIALS = "check the credentials of the cloud in clouds.yaml"
_RIGHTS = (
    "it needs an administrator's right, or a policy that lets this user do it; doctor says which"
)
_UP = "check that the API is up and that this machine reaches it"

_BY_STATUS: dict[int, tuple[type[FabricDirectError], str]] = {
    401: (Denied, _CREDENTIALS),
    403: (Denied, _RIGHTS),
    404: (NotFound, ""),
    405: (Unsupported, ""),
    409: (Conflict, ""),
    429: (Unreachable, "the API has too much to do; try again later"),
    501: (Unsupported, ""),
    502: (Unreachable, _UP),
    503: (Unreachable, _UP),
    504: (Unreachable, _UP),
}
_Types = type[Exception] | tuple[type[Exception], ...]
# The first match counts.
_BY_TYPE: tuple[tuple[_Types, type[FabricDirectError], str], ...] = (
    (sdk.ServiceDisabledException, Unsupported, "the cloud does not have this service"),
    (keystone.EndpointNotFound, Unsupported, "the cloud does not have this service"),
    ((keystone.ConnectTimeout, sdk.ResourceTimeout, requests.Timeout), TimedOut, _UP),
    ((keystone.ConnectionError, keystone.DiscoveryFailure), Unreachable, _UP),
    ((requests.ConnectionError, sdk.ServiceDiscoveryException), Unreachable, _UP),
    (keystone.AuthorizationFailure, Denied, _CREDENTIALS),
    ((sdk.ConfigException, keystone.AuthPluginException), InvalidSite, "see clouds.yaml"),
    ((sdk.NotSupported, sdk.MethodNotSupported), Unsupported, ""),
    (sdk.DuplicateResource, Conflict, "use the id"),
)
_QUOTA = re.compile(r"quota.*exceed|exceed.*quota|maximum number of", re.IGNORECASE | re.DOTALL)
_NO_ADDRESS = re.compile(r"no more (floating )?ip addresses|unable to find any ip", re.IGNORECASE)


@contextmanager
def translated(what: str, where: str = "") -> Iterator[None]:
    """Turn the errors of openstacksdk and keystoneauth into ours; the API's words are the reason.

    An error of ours that does not say where it happened gets ``where``.

    :param what: what is being done, as an infinitive: ``make the port of s/n``.
    :param where: the cloud it is done at; the API's host and port if absent.
    """
    try:
        yield
    except _NATIVE as error:
        raise _translate(_original(error), what, where) from error
    except FabricDirectError as error:
        error.where = error.where or where
        raise
    except NONSENSE as error:
        if not in_library(error):
            raise
        why = f"the API's answer is invalid: {type(error).__name__}"
        raise DriverError(f"cannot {what}", where=where, why=why) from error


def in_library(error: Exception) -> bool:
    """Return whether openstacksdk or keystoneauth raised an error, or called what did.

    One of our own is a mistake.
    """
    frames = (frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__))
    packages = [name.split(".")[0] for name in frames]
    return next((p in _LIBRARIES for p in reversed(packages) if p in {_OURS, *_LIBRARIES}), False)


@contextmanager
def refused_as(what: str, remedy: str) -> Iterator[None]:
    """Raise Denied, in these words and with the API's own as the reason, where it forbids something."""
    try:
        yield
    except sdk.ForbiddenException as error:
        raise Denied(what, why=words(error), remedy=remedy) from error


def if_there(get: Callable[[str], T], name: str) -> T | None:
    """Return what ``get`` returns for an id, or None if the API does not know the id."""
    try:
        return get(name)
    except sdk.NotFoundException:
        return None


def _original(error: Exception) -> Exception:
    """Return keystoneauth's own error, which openstacksdk replaces when it only logs in."""
    context = error.__context__
    replaced = type(error) is sdk.SDKException and isinstance(context, keystone.ClientException)
    return context if replaced and isinstance(context, Exception) else error


def _translate(error: Exception, what: str, where: str) -> FabricDirectError:
    kind, remedy = _kind_of(error)
    field = "openstack.cloud" if kind is InvalidSite else ""
    text = f"cannot {what}"
    return kind(text, where=where or _host(error), why=words(error), remedy=remedy, field=field)


def _kind_of(error: Exception) -> tuple[type[FabricDirectError], str]:
    status, why = status_of(error), words(error)
    if status in {403, 409, 413} and _QUOTA.search(why):
        return QuotaExceeded, "free some of it, or have the quota raised"
    if status == 409 and _NO_ADDRESS.search(why):
        return PoolExhausted, ""
    if status is not None:
        return _BY_STATUS.get(status, (DriverError, ""))
    return next(
        ((k, remedy) for t, k, remedy in _BY_TYPE if isinstance(error, t)), (DriverError, "")
    )


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status that an error, or the one it was translated from, came with."""
    if isinstance(error, FabricDirectError):
        return status_of(error.__cause__)
    status = getattr(error, "status_code", None) or getattr(error, "http_status", None)
    return status if isinstance(status, int) and status else None


def words(error: BaseException | None) -> str:
    """Return what the API, or the library, said."""
    if isinstance(error, FabricDirectError):
        return error.why
    said = getattr(error, "details", None) or getattr(error, "message", None) or str(error)
    return " ".join(str(said).split())


def _host(error: Exception) -> str:
    return urlsplit(getattr(error, "url", None) or "").netloc.rpartition("@")[2]


def unclear(error: BaseException | None) -> bool:
    """Return whether the request may have been carried out although it failed.

    It may have been if the response did not arrive, broke off or cannot be read, or if the API failed
    (5xx). It was not if nothing could be sent, or the API refused.

    :param error: a native error, or ours that was translated from one.
    """
    if isinstance(error, FabricDirectError):
        unread = type(error) is DriverError and isinstance(error.__cause__, NONSENSE)
        return unread or unclear(error.__cause__)
    status = status_of(error)
    if status is not None:
        return status >= 500
    if isinstance(error, keystone.ConnectionError):
        return not unsent(error.__context__)
    return isinstance(error, requests.RequestException) and not unsent(error)


def make_once(make: Callable[[], T], find: Callable[[], T | None], *, timeout: float) -> T:
    """Create a resource by a request that is not repeated; find it if the response was lost.

    A conflict may be with the resource itself: the request of a killed process is carried out, perhaps
    only now. What is not found may still come: the transport has noted so.

    :param make: sends the request.
    :param find: looks for the resource by its stamp; called past the read cache.
    :param timeout: how long to look, in seconds; after a conflict it is there, or never.
    :raises FabricDirectError: the error of ``make``, if it is clear or the thing was not found.
    """
    with noting() as noted:
        try:
            return _identified(make())
        except (FabricDirectError, *_NATIVE) as error:
            conflict = _kind_of(error)[0] is Conflict
            if not (conflict or unclear(error)):
                raise
            found = _look(find, 0 if conflict else timeout)
            if found is None:
                raise
    for request in noted:
        request.known()
    return found


def _identified(made: T) -> T:
    """Raise DriverError if the response to a creation does not tell the id of what was made."""
    if getattr(made, "id", made) is None:
        cause = LookupError("id")
        raise DriverError("the API's answer is invalid", why="it has no id") from cause
    return made


def _look(find: Callable[[], T | None], timeout: float) -> T | None:
    retrying = Retrying(
        retry=retry_if_result(lambda found: found is None)
        | retry_if_exception_type((FabricDirectError, *_NATIVE)),
        wait=exponential(multiplier=0.2, max=2.0),
        stop=stop_after_delay(timeout),
        retry_error_callback=lambda _: None,
    )
    with uncached():
        return retrying(find)
