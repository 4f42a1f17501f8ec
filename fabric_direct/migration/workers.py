"""Translate the inventory's workers to hosts of the site."""

import re
from itertools import chain
from typing import Any
from urllib.parse import quote

from fabric_direct.documents.tree import Path as Steps
from fabric_direct.migration import al2s, allow_lists, cloud
from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.inventory import ROLES, AnsibleInventory, InventoryHost
from fabric_direct.migration.playbooks import OF_VMS
from fabric_direct.migration.values import Value, as_path, as_text

Names = tuple[str, ...]

# The last one that is set wins; the others are Ansible's old names.
_HOST = ("ansible_ssh_host", "ansible_host")
_USER = ("ansible_ssh_user", "ansible_user")
_PORT = ("ansible_ssh_port", "ansible_port")
_KEY = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
PYTHON = "ansible_python_interpreter"
_TAKEN = {*_HOST, *_USER, *_PORT, *_KEY, PYTHON, "ansible_connection"}
_NOT_NEEDED = {"ansible_shell_type": "sh is used, whatever the login's shell is"}
# Ansible's words for a search of its own.
_SEARCHED = ("auto", "auto_silent", "auto_legacy", "auto_legacy_silent")
_PYTHON_2 = re.compile(r"(.*/)?python2[0-9.]*")
_PASSWORD = re.compile(r"ansible_\w*pass(word)?|ansible_\w*secret\w*")
_BECOME = re.compile(r"ansible_become\w*")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:]+(%[A-Za-z0-9._-]+)?")
_HOST_KEYS = re.compile(r"\s*(-o\s*(StrictHostKeyChecking|UserKnownHostsFile)=\S+(\s+|$))*")


def translate(inventory: AnsibleInventory, draft: SiteDraft) -> None:
    """Put the workers into the draft if there are VMs, and report groups of other hosts."""
    found = inventory.of_role("worker")
    if not draft.needs(*OF_VMS):
        draft.unused(found, inventory)
    elif found:
        hosts = [inventory.resolved(name) for name in found]
        for host in hosts:
            _worker(host, draft)
        allow_lists.translate(hosts, draft)
    else:
        why = "has no group whose name ends with 'worker'"
        draft.skip(inventory.place, "workers", why, "add the workers to site.yaml: hosts")
    named = draft.site.get("hosts", {}).values()
    if draft.interpreter and not any("ssh" in host for host in named):
        why = "no worker is reached by SSH: no Python is started there"
        draft.not_needed(draft.interpreter.place, f"ansible.{PYTHON}", why)
    _others(inventory, draft)


def _worker(host: InventoryHost, draft: SiteDraft) -> None:
    name, local = host.name, host.variables.get("ansible_connection")
    if local and local.content == "local":
        draft.put(("hosts", name), {"libvirt": "qemu:///system"}, host.place)
        if PYTHON in host.variables:
            why = "the worker is this machine: no Python is started there"
            draft.not_needed(host.place_of(PYTHON), PYTHON, why)
    else:
        _remote(host, draft)
    for variable, value in host.variables.items():
        _other(variable, value, draft)


def _remote(host: InventoryHost, draft: SiteDraft) -> None:
    label = f"hosts.{host.name}"
    where = login(label, host, draft)
    key = _plain(_KEY, label, host, draft)
    if not where:
        return
    fields = {"libvirt": f"qemu+ssh://{where}/system", "ssh": f"ssh://{where}"}
    if key:
        fields |= {"libvirt": f"{fields['libvirt']}?keyfile={quote(key)}", "ssh_key": key}
    draft.put(("hosts", host.name), fields, host.place)
    _python(host, draft)
    if not where.startswith("root@"):
        user = next(name for name in reversed(_USER) if name in host.variables)
        why = "a worker's devices and links need root, and nothing here becomes another user"
        remedy = "let root in by key, and name it in site.yaml: hosts: libvirt, ssh"
        draft.to_do(host.place_of(user), "ansible_user", why, remedy)


def _python(host: InventoryHost, draft: SiteDraft) -> None:
    """Take over a worker's Python; that of the handlers' configuration overrides the inventory's."""
    own, over = host.variables.get(PYTHON), draft.interpreter
    if over:
        interpreter(("hosts", host.name), f"ansible.{PYTHON}", over, draft)
    elif own:
        interpreter(("hosts", host.name), PYTHON, own, draft)
    if own and over and own.content != over.content:
        draft.not_needed(own.place, PYTHON, f"{over.place} overrides it")


def interpreter(path: Steps, variable: str, value: Value, draft: SiteDraft) -> None:
    """Take over which Python runs what is sent to a host.

    :param path: of the host in site.yaml.
    """
    if value.content in _SEARCHED:
        draft.not_needed(value.place, variable, "one is searched for there, 3.6 or newer")
    else:
        draft.take((*path, "python"), variable, value, _as_python)


def _as_python(content: Any) -> str:
    python = as_path(content).removeprefix("/usr/bin/env ").strip()
    if _PYTHON_2.fullmatch(python):
        raise ValueError("is Python 2, and must be 3.6 or newer")
    return python


def login(label: str, host: InventoryHost, draft: SiteDraft) -> str:
    """Return ``user@host:port`` of a host; empty, and reported, if it cannot be known.

    :param label: what it becomes in site.yaml: ``hosts.w1``.
    """
    address, user, port = (_plain(names, label, host, draft) for names in (_HOST, _USER, _PORT))
    if address is None or user is None or port is None:
        return ""
    where = _where(address or host.name, user or "root", port)
    if not where:
        why = "its address is not a host name or IP address, or its port is not a number"
        draft.skip(host.place, label, why, _yourself(label))
    return where


def _plain(names: Names, label: str, host: InventoryHost, draft: SiteDraft) -> str | None:
    """Return the value of a variable as text; empty if it is not set, None if it cannot be known."""
    variable = next((name for name in reversed(names) if name in host.variables), None)
    if not variable:
        return ""
    convert = as_path if names is _KEY else as_text
    return draft.converted(variable, host.variables[variable], convert, _yourself(label))


def _yourself(label: str) -> str:
    return f"complete {label} in site.yaml yourself: how it is reached, and ssh_key"


def _where(address: str, user: str, port: str) -> str:
    """Return ``user@host:port`` for a URI; empty if it would mean something else there."""
    if not _ADDRESS.fullmatch(address) or (port and not port.isdecimal()):
        return ""
    host = f"[{address}]" if ":" in address else address
    return f"{quote(user, safe='')}@{host}" + (f":{port}" if port else "")


def _other(name: str, value: Value, draft: SiteDraft) -> None:
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
        cloud.unread(name, value, draft)


def _arguments(name: str, value: Value, draft: SiteDraft) -> None:
    if isinstance(value.content, str) and _HOST_KEYS.fullmatch(value.content):
        why = "host keys are checked, always"
        remedy = "name each worker's key in site.yaml: hosts: host_key, or confirm it by ssh"
        draft.to_do(value.place, name, why, remedy)
    else:
        remedy = "for libvirt write them into ~/.ssh/config; ssh here connects directly"
        draft.skip(value.place, name, "options of ssh are not taken over", remedy)


def _others(inventory: AnsibleInventory, draft: SiteDraft) -> None:
    """Report groups without workers, heads, NSO, AL2S and switches."""
    known = {*chain(*map(inventory.of_role, ROLES)), *al2s.hosts(inventory)}
    for name, group in inventory.groups.items():
        members = inventory.members(name)
        if name not in ("all", "ungrouped") and members and known.isdisjoint(members):
            why = f"has no worker, head, NSO, AL2S or switch among its hosts ({len(members)})"
            draft.skip(group.place, f"group {name}", why, "leave it to the handler that needs it")
