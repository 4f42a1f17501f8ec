"""Translate the inventory's P4 switches to p4_switches of site.yaml."""

from collections.abc import Mapping
from typing import Any

from fabric_direct.migration import cloud, workers
from fabric_direct.migration.draft import Convert, SiteDraft
from fabric_direct.migration.inventory import AnsibleInventory, InventoryHost
from fabric_direct.migration.values import as_list, as_text

_PATH = "p4_switches"
_YOURSELF = "write p4_switches in site.yaml yourself: ssh, ssh_key, user"


def translate(inventory: AnsibleInventory, draft: SiteDraft) -> None:
    """Put the switches into the draft, if they are given away."""
    found = inventory.of_role("p4_switch")
    if not draft.needs("p4switch"):
        draft.unused(found, inventory)
        return
    for name in found:
        _switch(inventory.resolved(name), draft)


def _switch(host: InventoryHost, draft: SiteDraft) -> None:
    name, place = host.name, host.place
    user = draft.read("new_user", host, as_text, _YOURSELF)
    where = workers.login(f"{_PATH}.{name}", host, draft)
    if user and where:
        root = where.startswith("root@")
        settings = {"ssh": f"ssh://{where}", "user": user} | ({} if root else {"sudo": True})
        draft.put((_PATH, name), settings, place)
        if not root:
            why = "the administrator becomes root by sudo, without a password"
            remedy = "let sudo of the installer's image allow that (NOPASSWD)"
            draft.to_do(place, f"{_PATH}.{name}.sudo", why, remedy)
        _guard(host, draft)
        if python := host.variables.get(workers.PYTHON):
            workers.interpreter((_PATH, name), workers.PYTHON, python, draft)
        why = (
            "no password is used, and none is in the new files: the installer's image lets a key in"
        )
        remedy = f"add the key to the image, and name it: {_PATH}.{name}.ssh_key"
        draft.to_do(place, f"{_PATH}.{name}.ssh_key", why, remedy)
        why = "each switch is known by its SSH key before it is used for the first time"
        remedy = f"compare it on the switch, and name it: {_PATH}.{name}.host_key"
        draft.to_do(place, f"{_PATH}.{name}.host_key", why, remedy)
    cloud.others(host, {"new_user", workers.PYTHON, *_GUARD}, "the login is in site.yaml", draft)


def _guard(host: InventoryHost, draft: SiteDraft) -> None:
    """Take what the firewall is to let in."""
    for variable, (field, convert) in _GUARD.items():
        draft.take((_PATH, host.name, field), variable, host.variables.get(variable), convert)


def _addresses(content: Any) -> list[str]:
    """Return the addresses of a list of ``{family, address}``."""
    if not isinstance(content, list):
        return as_list(content)
    return [as_text(e["address"] if isinstance(e, Mapping) else e) for e in content]


_GUARD: dict[str, tuple[str, Convert[Any]]] = {
    "nameservers": ("nameservers", as_list),
    "allowed_subnets": ("icmp_subnets", as_list),
    "allowed_ssh_sources": ("ssh_sources", _addresses),
    "management_interface": ("interface", as_text),
}
