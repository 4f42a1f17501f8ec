"""The checks that a host, and a root disk, are large enough."""

from fabric_direct.drivers.contract import HostCapacity
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Capacities


def refuse_size(has: HostCapacity, wants: Capacities, host: str) -> None:
    """Raise InvalidSliver unless the host is large enough.

    :raises InvalidSliver: with the capacity that is too small, for example ``capacities.ram``.
    """
    limits = {
        "core": (wants.core, has.cores, ""),
        "ram": (wants.ram, has.ram // 1024, " GiB"),
        "disk": (wants.disk, has.disk, " GiB free"),
    }
    for name, (wanted, there, unit) in limits.items():
        if wanted > there:
            raise InvalidSliver(
                f"{wanted} is more than the host has",
                field=f"capacities.{name}",
                where=host,
                why=f"it has {there}{unit}",
            )


def refuse_small_disk(disk: int, least: int, image: str, field: str = "capacities.disk") -> None:
    """Raise InvalidSliver, with the field, if a root disk is smaller than its image needs, in GiB."""
    if disk < least:
        raise InvalidSliver(
            f"a disk of {disk} GiB is too small for image {image}",
            remedy=f"ask for {least} GiB or more",
            field=field,
        )
