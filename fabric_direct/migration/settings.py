"""Translate ``vm_handler_config.yml``, and those of vNICs, networks and AL2S."""

from typing import Any

from fabric_direct.migration import audit, playbooks
from fabric_direct.migration.draft import Convert, SiteDraft
from fabric_direct.migration.values import Fields, Value, as_bool, as_path, as_text

_TAKEN: dict[str, tuple[tuple[str, ...], Convert[Any]]] = {
    "runtime.disable_fip": (("actor", "floating_ip"), lambda content: not as_bool(content)),
    "runtime.max_flavor": (("actor", "max_flavor"), as_text),
    "runtime.network_name_prefix": (("actor", "network_prefix"), as_text),
    "playbooks.admin_ssh_key": (("guest_access", "ssh_key"), as_path),
}
_INTERPRETER = "ansible.ansible_python_interpreter"
_NOT_NEEDED = {
    "runtime.ssh_retries": "a guest is waited for by time: limits.guest_boot, and guest_access.wait_for",
    "runtime.delete_retries": "a delete ends when nothing is left: limits.delete",
    "playbooks.location": "there are no playbooks",
    "playbooks.inventory_location": "the workers are in site.yaml",
    "playbooks.hostname_suffix": "the workers have the inventory's names",
}
_SECTIONS = ("ansible", "runtime", "playbooks", "network")


def translate(document: Fields, draft: SiteDraft, *, on_workers: bool) -> None:
    """Put a handler's configuration into the draft.

    :param on_workers: whether the handler's playbooks ran on workers.
    :raises Refused: if a section is not a mapping.
    """
    for name, value in document.values().items():
        if name not in _SECTIONS:
            _unknown(name, value, draft)
    for section in _SECTIONS:
        for name, value in document.get(section).values().items():
            if f"{section}.{name}" == _INTERPRETER:
                _interpreter(value, draft, on_workers=on_workers)
            else:
                _field(section, name, value, document, draft)
    audit.translate(document, draft)


def _field(section: str, name: str, value: Value, document: Fields, draft: SiteDraft) -> None:
    label = f"{section}.{name}"
    if label in _NOT_NEEDED:
        draft.not_needed(value.place, label, _NOT_NEEDED[label])
    elif label in _TAKEN:
        path, convert = _TAKEN[label]
        draft.take(path, label, value, convert)
    elif label == "runtime.images":
        _images(document.get("runtime", "images"), draft)
    elif label == "network.border_routers":
        draft.border_routers = value
    elif section == "playbooks":
        playbooks.translate(name, value, document.get("playbooks", name), draft)
    else:
        _unknown(label, value, draft)


def _interpreter(value: Value, draft: SiteDraft, *, on_workers: bool) -> None:
    """Keep the Python of the workers: it overrode the inventory's."""
    taken = draft.interpreter
    if not on_workers or value.empty:
        draft.not_needed(value.place, _INTERPRETER, "there is no Ansible")
    elif taken and taken.content != value.content:
        why = f"differs from {taken.place}, which was taken"
        draft.skip(value.place, _INTERPRETER, why, "check hosts.….python in site.yaml")
    else:
        draft.interpreter = taken or value


def _images(images: Fields, draft: SiteDraft) -> None:
    for name, user in images.values().items():
        draft.take(("images", name), f"runtime.images.{name}", user, _image)


def _image(user: object) -> dict[str, str]:
    return {"user": as_text(user)}


def _unknown(label: str, value: Value, draft: SiteDraft) -> None:
    why = "is not read by fabric_am's VM, vNIC and network handlers"
    draft.skip(value.place, label, why, "check whether something of yours relies on it")
