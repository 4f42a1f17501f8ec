"""FIM's names as ours: letters of any script, spaces and 255 characters fit neither libvirt nor DNS."""

import hashlib
import re

from pydantic import TypeAdapter, ValidationError

from fabric_direct.model import ComponentId, Name

_COMPONENT: TypeAdapter[str] = TypeAdapter(ComponentId)
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_FOREIGN = re.compile(r"[^A-Za-z0-9]+")
_FOREIGN_MODEL = re.compile(r"[^A-Za-z0-9._-]+")
_HASHED = re.compile(r".*--[0-9a-f]{12}")
MANAGEMENT = "management"
"""The component id of each VM's management NIC, which no component of FIM gets."""


def component_id(name: str) -> str:
    """Return a component's id: its name where that is one, else what can be read of it and a hash.

    The same name always gives the same id, different names give different ones.
    """
    taken = name == MANAGEMENT or _HASHED.fullmatch(name)
    return name if _is(_COMPONENT, name) and not taken else _hashed(name, 17)


def host_name(name: str) -> str:
    """Return a VM's name: its own where a host may be called so, else one with a hash."""
    plain = _is(_NAME, name) and not _HASHED.fullmatch(name)
    return name if plain else _hashed(name, 48)


def model_name(model: str | None) -> str | None:
    """Return a hardware model's name, ``Tesla-T4`` for example, by which a site names its driver."""
    return (_FOREIGN_MODEL.sub("-", model).strip("-._")[:63] or None) if model else None


def _is(kind: TypeAdapter[str], name: str) -> bool:
    try:
        kind.validate_python(name)
    except ValidationError:
        return False
    return True


def _hashed(name: str, length: int) -> str:
    readable = _FOREIGN.sub("-", name).strip("-")[:length].rstrip("-") or "x"
    return f"{readable}--{hashlib.sha256(name.encode()).hexdigest()[:12]}"
