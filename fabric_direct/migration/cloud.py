"""Translate the head of the inventory: its cloud in site.yaml, and an entry of clouds.yaml."""

import json
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from fabric_direct.migration.draft import Draft
from fabric_direct.migration.inventory import Inventory, Variables
from fabric_direct.migration.values import Place, Value, as_list, as_text

AUTH = ("auth_url", "username", "project_name")
"""Variables of a head: how to log in to its cloud, apart from the password."""
VARIABLES = {*AUTH, "password", "ext_network", "key_name", "net_name", "security_group"}
"""All variables of a head that the playbooks read."""
_SITE = {
    "ext_network": ("openstack", "external_network"),
    "key_name": ("openstack", "key_name"),
    "net_name": ("actor", "management_network"),
}


def translate(inventory: Inventory, path: Path, draft: Draft) -> None:
    """Put the cloud into the draft."""
    found = inventory.heads()
    if not found:
        why = "has no group whose name ends with 'head'"
        draft.skip(Place(str(path)), "head", why, "write openstack: in site.yaml, and clouds.yaml")
        return
    first, *more = found
    _head(inventory.places[first], inventory.variables(first), draft)
    for name in more:
        why = f"the cloud was read from {first}"
        draft.skip(inventory.places[name], f"head {name}", why, "check whether they differ")


def _head(place: Place, variables: Variables, draft: Draft) -> None:
    draft.put(("openstack", "cloud"), draft.name, place)
    for variable in AUTH:
        _login(variable, variables.get(variable), place, draft)
    _password(variables.get("password"), place, draft)
    for variable, path in _SITE.items():
        draft.take(path, variable, variables.get(variable))
    groups = variables.get("security_group")
    draft.take(("openstack", "security_groups"), "security_group", groups, as_list)
    others(variables, VARIABLES, "OpenStack's API is asked, not its head", draft)


def _login(variable: str, value: Value | None, place: Place, draft: Draft) -> None:
    remedy = f"set clouds.{draft.name}.auth.{variable} in clouds.yaml"
    if value is None:
        draft.skip(place, variable, "is not set for this head", remedy)
    elif draft.usable(variable, value, remedy):
        try:
            text = as_text(value.content)
            draft.auth[variable] = address(text) if variable == "auth_url" else text
        except ValueError as error:
            draft.skip(value.place, variable, str(error), remedy)


def address(text: str) -> str:
    """Return the address of an API.

    :raises ValueError: if it is none, or contains more than that; its content is not in the message.
    """
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("is no address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://… or https://…")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("contains more than an address, perhaps a password")
    return text


def _password(value: Value | None, place: Place, draft: Draft) -> None:
    why = "is in none of the new files; openstacksdk reads it from a file secure.yaml"
    line = command(draft.name, draft.secure)
    password("password", value, place, (why, line), draft)


def password(
    what: str, value: Value | None, place: Place, told: tuple[str, str], draft: Draft
) -> None:
    """Report a password, which is never taken.

    :param told: where it will be read from, and the command that writes it there.
    """
    why, line = told
    hidden = value.hidden() if value else "is not set in the inventory"
    where = value.place if value else place
    whole = f"{hidden}; it {why}" if hidden else why
    draft.to_do(where, what, whole, f"run this, and type it in: {line}")


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


def others(variables: Variables, known: set[str], why: str, draft: Draft) -> None:
    """Report the variables that are not known.

    :param why: Ansible's own are not needed.
    """
    for variable, value in variables.items():
        if variable.startswith("ansible_"):
            draft.not_needed(value.place, variable, why)
        elif variable not in known:
            unread = "is not read by fabric_am's playbooks, or has no counterpart"
            draft.skip(
                value.place, variable, unread, "check whether something of yours relies on it"
            )
