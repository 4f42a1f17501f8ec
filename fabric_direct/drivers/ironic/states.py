"""Ironic's provision states, and what each means for who wants to use the node.

As in its documentation of the state machine. ``available`` and ``manageable`` are not in the table: what
they mean depends on who has the node.
"""

from collections.abc import Mapping

from fabric_direct.drivers.contract.bare_metal import NodeCondition

ACTIVE = "active"
AVAILABLE = "available"
MANAGEABLE = "manageable"

CONDITIONS: Mapping[str, NodeCondition] = {
    "enroll": NodeCondition.WITHHELD,
    "verifying": NodeCondition.WITHHELD,
    "inspecting": NodeCondition.WITHHELD,
    "inspect wait": NodeCondition.WITHHELD,
    "inspect failed": NodeCondition.WITHHELD,
    "adopting": NodeCondition.CHANGING,
    "adopt failed": NodeCondition.WITHHELD,
    "deploying": NodeCondition.CHANGING,
    "wait call-back": NodeCondition.CHANGING,
    "deploy hold": NodeCondition.CHANGING,
    "deploy complete": NodeCondition.CHANGING,
    "deploy failed": NodeCondition.FAILED,
    ACTIVE: NodeCondition.ACTIVE,
    "rebuild": NodeCondition.CHANGING,
    "rescue": NodeCondition.ACTIVE,
    "rescuing": NodeCondition.CHANGING,
    "rescue wait": NodeCondition.CHANGING,
    "rescue failed": NodeCondition.FAILED,
    "unrescuing": NodeCondition.CHANGING,
    "unrescue failed": NodeCondition.FAILED,
    "servicing": NodeCondition.CHANGING,
    "service wait": NodeCondition.CHANGING,
    "service hold": NodeCondition.CHANGING,
    "service failed": NodeCondition.FAILED,
    "deleting": NodeCondition.CHANGING,
    "deleted": NodeCondition.CHANGING,
    "error": NodeCondition.FAILED,
    "cleaning": NodeCondition.CLEANING,
    "clean wait": NodeCondition.CLEANING,
    "clean hold": NodeCondition.CLEANING,
    "clean failed": NodeCondition.QUARANTINED,
}
"""``error`` is a removal that failed; it can be asked for again."""


def condition(state: str, *, taken: bool, stamped: bool, set_apart: bool) -> NodeCondition:
    """Return what a node's state means.

    :param taken: whether somebody's instance or allocation has the node.
    :param stamped: whether it carries a sliver's stamp, which stays until it is seen to be clean.
    :param set_apart: whether it is in maintenance, retired, or not to be cleaned.
    """
    if state in CONDITIONS:
        usual = CONDITIONS[state]
        unclean = usual is NodeCondition.CLEANING and set_apart
        return NodeCondition.QUARANTINED if unclean else usual
    if state == AVAILABLE and not set_apart:
        return NodeCondition.RESERVED if taken else NodeCondition.FREE
    # Whoever makes a node manageable again after a failed cleaning has not cleaned it.
    unclean = stamped and not taken and state in {AVAILABLE, MANAGEABLE}
    return NodeCondition.QUARANTINED if unclean else NodeCondition.WITHHELD


_DELETABLE = frozenset(
    {
        *("active", "deploy failed", "error", "rescue", "rescue failed", "rescue wait"),
        *("unrescue failed", "wait call-back", "deploy hold", "service failed", "service hold"),
    }
)


_DEPLOYING = frozenset({"deploying", "wait call-back", "deploy hold", "deploy complete", "rebuild"})


def is_being_deployed(state: str) -> bool:
    """Return whether a deployment, also a rebuild, is under way."""
    return state in _DEPLOYING


_REBUILDABLE = frozenset({ACTIVE, "deploy failed", "error"})


def can_be_rebuilt(state: str) -> bool:
    """Return whether Ironic takes a request to deploy a node in this state anew."""
    return state in _REBUILDABLE


def can_be_deleted(state: str) -> bool:
    """Return whether Ironic takes a request to delete what is on a node in this state."""
    return state in _DELETABLE
