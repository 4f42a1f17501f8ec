"""Requests to Ironic about a node that something else works on meanwhile.

Ironic answers 409 in two cases: a node is locked, which passes, or there is a conflict that does not, as
with a name that is taken. Only its words tell which.
"""

from collections.abc import Callable
from typing import TypeVar

from openstack.exceptions import ConflictException
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from fabric_direct.calls.deadline import time_left, trying_again
from fabric_direct.drivers.openstack.client.errors import words

T = TypeVar("T")
_LOCKED = ("is locked by host", "while a state transition is in progress")


def is_locked(error: BaseException) -> bool:
    """Return whether a node could not be changed because Ironic works on it just now."""
    return isinstance(error, ConflictException) and any(each in words(error) for each in _LOCKED)


def once_unlocked(request: Callable[[], T], limit: float) -> T:
    """Send a request that changes a node, again as long as the node is locked.

    A request that was answered so has changed nothing.

    :param limit: seconds for which it is sent again, at most until the driver's call is given up.
    """
    retrying = Retrying(
        retry=retry_if_exception(is_locked),
        wait=wait_random_exponential(multiplier=0.2, max=5.0),
        stop=stop_after_delay(time_left(limit)),
        before_sleep=trying_again,
        reraise=True,
    )
    return retrying(request)
