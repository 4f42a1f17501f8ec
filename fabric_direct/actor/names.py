"""Translate FIM's names, 255 characters of any script, to names that libvirt and DNS accept."""

import re

from pydantic import TypeAdapter, ValidationError

from fabric_direct.model import ComponentId, Name
from fabric_direct.model.hashed_names import hashed, readable_part

_COMPONENT: TypeAdapter[str] = TypeAdapter(ComponentId)
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_MOUNT = re.compile(r"/[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
MANAGEMENT = "management"
"""The component id of each VM's management NIC, which no component of FIM gets."""


def component_id(name: str) -> str:
    """Return a component's id: its name if that is valid, else its readable part with a hash.

    The same name always gives the same id; different names give different ids.
    """
    taken = name == MANAGEMENT or _has_hash(name)
    return name if is_valid(_COMPONENT, name) and not taken else hashed(name, 17)


def host_name(name: str) -> str:
    """Return a VM's name if it is a valid host name, else its readable part with a hash."""
    plain = is_valid(_NAME, name) and not _has_hash(name)
    return name if plain else hashed(name, 48)


def mount_point(volume: str) -> str:
    """Return where a volume is mounted: at its name, or else the readable part of that with a hash."""
    plain = _MOUNT.fullmatch(f"/{volume}") and not _has_hash(volume)
    return f"/{volume if plain else hashed(volume, 48)}"


def is_valid(kind: TypeAdapter[str], text: str) -> bool:
    """Return whether a text is one of its kind."""
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True


def _has_hash(name: str) -> bool:
    """Return whether a name looks like one with a hash, so that it might be that of another name."""
    return readable_part(name) is not None
