"""Translate the inventory's workers to hosts of the site."""

import re
from pathlib import Path
from urllib.parse import quote

from fabric_direct.migration import cloud
from fabric_direct.migration.draft import Draft
from fabric_direct.migration.inventory import Inventory, Variables
from fabric_direct.migration.values import Place, Value, as_path, as_text

Names = tuple[str, ...]

# The last one that is set wins; the others are Ansible's old names.
_HOST = ("ansible_ssh_host", "ansible_host")
_USER = ("ansible_ssh_user", "ansible_user")
_PORT = ("ansible_ssh_port", "ansible_port")
_KEY = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_TAKEN = {*_HOST, *_USER, *_PORT, *_KEY, "ansible_connection"}
_NOT_NEEDED = {
    "ansible_python_interpreter": "there is no Ansible; Python 3.9 or newer is found by itself",
    "ansible_shell_type": "no shell is used",
}
_PASSWORD = re.compile(r"ansible_\w*pass(word)?|ansible_\w*secret\w*")
_BECOME = re.compile(r"ansible_become\w*")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:]+(%[A-Za-z0-9._-]+)?")
_HOST_KEYS = re.compile(r"\s*(-o\s*(StrictHostKeyChecking|UserKnownHostsFile)=\S+(\s+|$))*")


def translate(inventory: Inventory, path: Path, draft: Draft) -> None:
    """Put the workers into the draft, and report groups of other hosts."""
    found = inventory.workers()
    for name in found:
        _worker(name, inventory.places[name], inventory.variables(name), draft)
    if not found:
        why = "has no group whose name ends with 'worker'"
        draft.skip(Place(str(path)), "workers", why, "add the workers to site.yaml: hosts")
    _others(inventory, draft)


def _worker(name: str, place: Place, variables: Variables, draft: Draft) -> None:
    local = variables.get("ansible_connection")
    if local and local.content == "local":
        draft.put(("hosts", name), {"libvirt": "qemu:///system"}, place)
    else:
        _remote(name, place, variables, draft)
    remedy = f"fabric-direct devices {name} --all lists what is there; name what may be given away"
    why = "the list of devices that may be passed through is in none of these files"
    draft.to_do(place, f"hosts.{name}.devices", why, remedy)
    for variable, value in variables.items():
        _other(variable, value, draft)


def _remote(name: str, place: Place, variables: Variables, draft: Draft) -> None:
    address, user, port, key = (
        _plain(names, name, variables, draft) for names in (_HOST, _USER, _PORT, _KEY)
    )
    if address is None or user is None or port is None:
        return
    where = _where(address or name, user or "root", port)
    if not where:
        why = "its address is not a host name or IP address, or its port is not a number"
        draft.skip(place, f"hosts.{name}", why, _yourself(name))
        return
    host = {"libvirt": f"qemu+ssh://{where}/system", "ssh": f"ssh://{where}"}
    if key:
        host = {**host, "libvirt": f"{host['libvirt']}?keyfile={quote(key)}", "ssh_key": key}
    draft.put(("hosts", name), host, place)
    _rights(user, variables, draft)


def _plain(names: Names, host: str, variables: Variables, draft: Draft) -> str | None:
    """Return the value of a variable; empty if it is not set, None if it cannot be known."""
    variable = next((name for name in reversed(names) if name in variables), None)
    if not variable:
        return ""
    value = variables[variable]
    if not draft.usable(variable, value, _yourself(host)):
        return None
    try:
        return as_path(value.content) if names is _KEY else as_text(value.content)
    except ValueError as error:
        draft.skip(value.place, variable, str(error), _yourself(host))
        return None


def _yourself(host: str) -> str:
    return f"complete hosts.{host} in site.yaml yourself: libvirt, ssh, ssh_key"


def _where(address: str, user: str, port: str) -> str:
    """Return ``user@host:port`` for a URI; empty if it would mean something else there."""
    if not _ADDRESS.fullmatch(address) or (port and not port.isdecimal()):
        return ""
    host = f"[{address}]" if ":" in address else address
    return f"{quote(user, safe='')}@{host}" + (f":{port}" if port else "")


def _rights(user: str, variables: Variables, draft: Draft) -> None:
    if user not in ("", "root"):
        value = variables[next(name for name in reversed(_USER) if name in variables)]
        why = "a worker's devices and links need root, and nothing here becomes another user"
        remedy = "let root in by key, and name it in site.yaml: hosts: libvirt, ssh"
        draft.to_do(value.place, "ansible_user", why, remedy)


def _other(name: str, value: Value, draft: Draft) -> None:
    """Report a variable that is not translated."""
    if name in _NOT_NEEDED:
        draft.not_needed(value.place, name, _NOT_NEEDED[name])
    elif _PASSWORD.fullmatch(name):
        hidden = value.hidden()
        why = "a password is not used for workers" + (f", and this one {hidden}" if hidden else "")
        draft.skip(value.place, name, why, "let the AM's user in by key: hosts: ssh_key")
    elif _BECOME.fullmatch(name):
        why = "nothing here becomes another user"
        draft.skip(value.place, name, why, "name a user who is root: hosts: libvirt, ssh")
    elif name in _ARGUMENTS:
        _arguments(name, value, draft)
    elif name not in _TAKEN | cloud.VARIABLES:
        why = "is not read by fabric_am's playbooks, or has no counterpart"
        draft.skip(value.place, name, why, "check whether something of yours relies on it")


def _arguments(name: str, value: Value, draft: Draft) -> None:
    if isinstance(value.content, str) and _HOST_KEYS.fullmatch(value.content):
        why = "host keys are checked, always"
        remedy = "name each worker's key in site.yaml: hosts: host_key, or confirm it by ssh"
        draft.to_do(value.place, name, why, remedy)
    else:
        remedy = "for libvirt write them into ~/.ssh/config; ssh here connects directly"
        draft.skip(value.place, name, "options of ssh are not taken over", remedy)


def _others(inventory: Inventory, draft: Draft) -> None:
    """Report groups without workers, heads and NSO."""
    known = {*inventory.workers(), *inventory.heads(), *inventory.controllers()}
    for name, group in inventory.groups.items():
        hosts = set(inventory.members(name))
        if name not in ("all", "ungrouped") and hosts and not hosts & known:
            why = f"has no worker, head or NSO among its hosts ({len(hosts)})"
            draft.skip(group.place, f"group {name}", why, "leave it to the handler that needs it")
