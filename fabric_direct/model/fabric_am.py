"""fabric_am's names of what it makes in a cloud, and FIM's names of hardware.

===================  ============================================================================
server               ``<reservation>-<name>``, with metadata ``hostname``
its own port         made by Nova, without a name
port of a service    ``<reservation>-<name>-<interface>``: that of a network service, not of the VM
volume               ``<project>-<name>``: its user's, only attached and detached
hostdev              no alias: known by its address alone
===================  ============================================================================
"""

import re

_FOREIGN_MODEL = re.compile(r"[^A-Za-z0-9._-]+")
_RESERVATION = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(.+)", re.IGNORECASE)


def parts_of(server_name: str) -> tuple[str, str] | None:
    """Return reservation and name of a server of fabric_am; None if it is named in another way."""
    match = _RESERVATION.fullmatch(server_name)
    return (match[1], match[2]) if match else None


def is_of_a_service(port_name: str, reservation: str) -> bool:
    """Return whether a port of a reservation's server belongs to a network service."""
    return port_name.startswith(f"{reservation}-")


def model_name(model: str | None) -> str | None:
    """Return a hardware model's name in the form of site.yaml, for example ``Tesla-T4``."""
    return (_FOREIGN_MODEL.sub("-", model).strip("-._")[:63] or None) if model else None
