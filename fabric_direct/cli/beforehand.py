"""Slivers that the site cannot serve, found before any of several is begun."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from fabric_direct.errors import Refused

if TYPE_CHECKING:
    from fabric_direct.model import Operation, Outcome, Sliver
    from fabric_direct.processor import HandlerProcessor
    from fabric_direct.site.config import Site


def refusals(
    processor: "HandlerProcessor", slivers: "Sequence[Sliver]", operation: "Operation"
) -> "list[Future[Outcome]]":
    """Return the outcomes of an operation that is not begun, because some of the slivers are refused.

    Those that name a host, an image or a network that neither site.yaml nor another of the slivers has
    are planned: a cloud may have it. Nothing is returned if none is refused, or if there is only one,
    which its operation refuses.
    """
    if len(slivers) < 2:
        return []
    from fabric_direct.model import Status  # noqa: PLC0415 - see the package
    from fabric_direct.model.references import needs  # noqa: PLC0415
    from fabric_direct.operations.outcomes import failed  # noqa: PLC0415

    after = needs(slivers)  # what others are made first for cannot be planned yet
    doubtful = [s for s in slivers if not after[s.id] and _names_unknown(processor.site, s)]
    planned = [future.result() for future in [processor.plan(sliver) for sliver in doubtful]]
    refused = {each.sliver.id: each for each in planned if each.status is Status.REFUSED}
    if not refused:
        return []
    why = Refused("was not begun", why=f"refused: {', '.join(refused)}")
    return [
        _ended(
            refused[sliver.id].model_copy(update={"operation": operation})
            if sliver.id in refused
            else failed(operation, sliver, why)
        )
        for sliver in slivers
    ]


def _names_unknown(site: "Site", sliver: "Sliver") -> bool:
    """Return whether a sliver names a host, an image or a network that site.yaml does not have."""
    from fabric_direct.model import AUTO, NodeSliver  # noqa: PLC0415 - see the package

    if not isinstance(sliver, NodeSliver):
        return False
    return (
        sliver.host not in {None, AUTO, *site.hosts}
        or sliver.image not in site.images
        or any(vnic.network not in site.networks for vnic in sliver.vnics())
    )


def _ended(outcome: "Outcome") -> "Future[Outcome]":
    future: Future[Outcome] = Future()
    future.set_result(outcome)
    return future
