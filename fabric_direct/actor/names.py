"""Translate FIM's names, 255 characters of any script, to names that libvirt and DNS accept."""

import hashlib
import re

from pydantic import TypeAdapter, ValidationError

from fabric_direct.model import ComponentId, Name

_COMPONENT: TypeAdapter[str] = TypeAdapter(ComponentId)
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_FOREIGN = re.compile(r"[^A-Za-z0-9]+")
_MOUNT = re.compile(r"/[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_HASHED = re.compile(r".*--[0-9a-f]{12}")
MANAGEMENT = "management"
"""The component id of each VM's management NIC, which no component of FIM gets."""


def component_id(name: str) -> str:
    """Return a component's id: its name if that is valid, else its readable part with a hash.

    The same name always gives the same id; different names give different ids.
    """
    taken = name == MANAGEMENT or _HASHED.fullmatch(name)
    return name if is_valid(_COMPONENT, name) and not taken else _hashed(name, 17)


def host_name(name: str) -> str:
    """Return a VM's name if it is a valid host name, else its readable part with a hash."""
    plain = is_valid(_NAME, name) and not _HASHED.fullmatch(name)
    return name if plain else _hashed(name, 48)


def mount_point(volume: str) -> str:
    """Return where a volume is mounted: at its name, or else the readable part of that with a hash."""
    plain = _MOUNT.fullmatch(f"/{volume}") and not _HASHED.fullmatch(volume)
    return f"/{volume if plain else _hashed(volume, 48)}"


def is_valid(kind: TypeAdapter[str], text: str) -> bool:
    """Return whether a text is one of its kind."""
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True


def _hashed(name: str, length: int) -> str:
    readable = _FOREIGN.sub("-", name).strip("-")[:length].rstrip("-") or "x"
    return f"{readable}--{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:12]}"
