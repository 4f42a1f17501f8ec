"""Translate the head of the inventory: its cloud in site.yaml, and an entry of clouds.yaml."""

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.inventory import AnsibleInventory, InventoryHost
from fabric_direct.migration.values import FileLine, Value, as_list, as_text

AUTH = ("auth_url", "username", "project_name")
"""Variables of a head: how to log in to its cloud, apart from the password."""
VARIABLES = {*AUTH, "password", "ext_network", "key_name", "net_name", "security_group"}
"""All variables of a head that the playbooks read."""
_SITE = {
    "ext_network": ("openstack", "external_network"),
    "key_name": ("openstack", "key_name"),
    "net_name": ("actor", "management_network"),
}


def translate(inventory: AnsibleInventory, draft: SiteDraft) -> None:
    """Put the cloud into the draft, if a resource type needs it."""
    found = inventory.of_role("head")
    if not draft.needs("openstack"):
        draft.unused(found, inventory)
    elif found:
        _head(inventory.resolved(found[0]), draft)
        draft.skip_others(found, inventory, "head", "the cloud")
    else:
        why = "has no group whose name ends with 'head'"
        draft.skip(inventory.place, "head", why, "write openstack: in site.yaml, and clouds.yaml")


def _head(host: InventoryHost, draft: SiteDraft) -> None:
    draft.put(("openstack", "cloud"), draft.name, host.place)
    for variable in AUTH:
        _login(variable, host, draft)
    why = "is in none of the new files; openstacksdk reads it from a file secure.yaml"
    password("password", "password", host, why, command(draft.name, draft.secure), draft)
    for variable, path in _SITE.items():
        draft.take(path, variable, host.variables.get(variable))
    groups = host.variables.get("security_group")
    draft.take(("openstack", "security_groups"), "security_group", groups, as_list)
    others(host, VARIABLES, "OpenStack's API is asked, not its head", draft)


def _login(variable: str, host: InventoryHost, draft: SiteDraft) -> None:
    remedy = f"set clouds.{draft.name}.auth.{variable} in clouds.yaml"
    convert = address if variable == "auth_url" else as_text
    text = draft.read(variable, host, convert, remedy, "is not set for this head")
    if text is not None:
        draft.auth[variable] = text


def address(content: Any) -> str:
    """Return the address of an API.

    :raises ValueError: if it is none, or contains more than that; its content is not in the message.
    """
    text = as_text(content)
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("is not an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://… or https://…")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("contains more than an address, perhaps a password")
    return text


def password(
    what: str, variable: str, host: InventoryHost, why: str, line: str, draft: SiteDraft
) -> None:
    """Report a password, which is never taken.

    :param why: where it will be read from.
    :param line: the command that writes it there.
    """
    value = host.variables.get(variable)
    hidden = value.hidden() if value else "is not set in the inventory"
    whole = f"{hidden}; it {why}" if hidden else why
    draft.to_do(host.place_of(variable), what, whole, f"run this, and type it in: {line}")


def certificate(place: FileLine, what: str, why: str, service: str, draft: SiteDraft) -> None:
    """Report that the certificate of a service of site.yaml is verified."""
    field = f"services.{service}.ca_file"
    remedy = f"name who signed it in site.yaml: {field}, if the system does not know"
    draft.to_do(place, what, why, remedy)


def command(cloud: str, secure: Path) -> str:
    """Return a shell command that asks for a cloud's password and writes it to ``secure.yaml``."""
    entry = f'{{"clouds": {{{json.dumps(cloud)}: {{"auth": {{"password": getpass.getpass()}}}}}}}}'
    return typed_in(f"print(json.dumps({entry}))", secure)


def typed_in(statement: str, path: Path) -> str:
    """Return a shell command that asks for a password and writes it to a file of mode 0600.

    The password is in no argument, and so in no history and no list of processes. An existing file is
    left unchanged.

    :param statement: in Python, with getpass and json: prints what the file is to contain.
    """
    program = shlex.quote(f"import getpass, json; {statement}")
    folder, file = shlex.quote(str(path.parent)), shlex.quote(str(path))
    return f"mkdir -p {folder}; (umask 077; set -C; python3 -c {program} > {file})"


def others(host: InventoryHost, known: set[str], why: str, draft: SiteDraft) -> None:
    """Report the variables that are not known.

    :param why: Ansible's own are not needed.
    """
    for variable, value in host.variables.items():
        if variable in known:
            continue
        if variable.startswith("ansible_"):
            draft.not_needed(value.place, variable, why)
        else:
            unread(variable, value, draft)


def unread(variable: str, value: Value, draft: SiteDraft) -> None:
    """Report a variable of which nothing is known."""
    why = "is not read by fabric_am's playbooks, or has no counterpart"
    draft.skip(value.place, variable, why, "check whether something of yours relies on it")
