"""Translate FIM's P4 switches, which are nodes of type Switch, to our model."""

from typing import cast

from fabric_direct.actor.fim import SSH_KEYS, ssh_keys
from fabric_direct.actor.fim_fields import label, made, refuse_other_type, text
from fabric_direct.actor.names import host_name
from fabric_direct.actor.sliver import FimSliver, Unit
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.p4_switches import Switch
from fabric_direct.site.config import Site

_FIELDS = {"id": "reservation_id", "name": "resource_name", "ssh_keys": SSH_KEYS}
_NAME = "label_allocations.local_name"


def switch(site: Site, unit: Unit) -> Switch:
    """Return a unit's switch.

    :raises InvalidSliver: with FIM's field, if one is missing or invalid.
    """
    node = cast(FimSliver, unit.get_sliver())
    which_one = which(site, node)
    return made(
        Switch,
        _FIELDS,
        id=str(unit.get_reservation_id()),
        name=host_name(text(node.get_name(), "resource_name")),
        switch=which_one,
        ssh_keys=ssh_keys(unit),
    )


def which(site: Site, sliver: object) -> str:
    """Return the switch that a sliver's labels name, or else the site's only one, as fabric_am does.

    :raises InvalidSliver: with FIM's field, if it names none of several.
    """
    refuse_other_type(sliver, ["Switch"], "label_allocations")
    node = cast(FimSliver, sliver)
    named = label(node.label_allocations, "local_name") or label(node.labels, "local_name")
    if named in site.p4_switches:
        return str(named)
    if len(site.p4_switches) == 1:
        return next(iter(site.p4_switches))
    known = ", ".join(site.p4_switches) or "none"
    raise InvalidSliver("names no switch of site.yaml", field=_NAME, why=f"known: {known}")
