"""Which hosts of an inventory are heads and workers, and which variables the playbooks read of them."""

import re

from fabric_direct.migration.inventory import Inventory

_WORKERS = re.compile(r"(^|[_-])workers?$")
_HEADS = re.compile(r"(^|[_-])heads?$")

AUTH = ("auth_url", "username", "project_name")
"""Variables of a head: how to log in to its cloud, beside the password."""
CLOUD = {*AUTH, "password", "ext_network", "key_name", "net_name", "security_group"}
"""All variables of a head."""


def workers(inventory: Inventory) -> list[str]:
    """Return the hosts of the groups whose names end with ``worker``."""
    return inventory.matching(_WORKERS.search)


def heads(inventory: Inventory) -> list[str]:
    """Return the hosts of the groups whose names end with ``head``."""
    return inventory.matching(_HEADS.search)
