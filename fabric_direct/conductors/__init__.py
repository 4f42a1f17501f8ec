"""Conductors: processes that carry out the operations of a site, on any machine.

::

    conductor.py   takes operations from the queue, and writes what comes of them

The queue is :mod:`fabric_direct.state.postgresql.queue`; who asks posts to it
(:mod:`fabric_direct.operations.front`).
"""

from typing import TYPE_CHECKING

from fabric_direct.errors import InvalidSite

if TYPE_CHECKING:
    from fabric_direct.site.config import Conductors, Site, StateDatabase


def settings_of(site: "Site") -> "tuple[Conductors, StateDatabase]":
    """Return what site.yaml says of conductors, and of the database that they need.

    :raises InvalidSite: if operations of the site are carried out by who asks for them.
    """
    if site.conductors is None or site.state_database is None:
        raise InvalidSite(
            "is missing: operations are carried out by who asks for them",
            field="conductors",
            remedy="add `conductors: {}`, beside state_database",
        )
    return site.conductors, site.state_database
