"""The result dictionaries of the actor, with the keys and the nesting that it expects."""

from collections.abc import Mapping
from typing import Any

from fabric_direct.actor.poa import plain

CREATE, MODIFY, DELETE, POA = "create", "modify", "delete", "poa"
CLEAN_RESTART = "clean_restart"
OK, EXCEPTION = 0, -1
Result = dict[str, Any]


def success(target: str) -> Result:
    """Return the result of an operation that is done."""
    return _result(target, OK)


def failure(target: str, message: str) -> Result:
    """Return the result of a failed operation; a message is text, so that any process can read it."""
    return {**_result(target, EXCEPTION), "exception.message": message}


def poa_success(asked: Mapping[str, Any], info: dict[str, Any] | None = None) -> Result:
    """Return the result of an operational action that is done.

    :param info: the answer of an action that reads; without one, the heading is nested once more.
    """
    heading = _heading(asked, OK)
    answer = {"poa_info": dict(heading)} if info is None else {"info": info}
    return {**success(POA), "poa_info": heading | answer}


def poa_failure(asked: Mapping[str, Any], message: str) -> Result:
    """Return the result of a failed operational action."""
    return {**failure(POA, message), "poa_info": _heading(asked, EXCEPTION)}


def _result(target: str, code: int) -> Result:
    return {"target.name": target, "target.code": code, "action.sequence": 0}


def _heading(asked: Mapping[str, Any], code: int) -> dict[str, Any]:
    return {
        "operation": plain(asked.get("operation")),
        "poa_id": plain(asked.get("poa_id")),
        "code": code,
    }
