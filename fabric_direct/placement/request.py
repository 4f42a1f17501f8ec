"""The needs of one instance."""

from collections import Counter
from typing import Annotated, Self

from pydantic import Field, model_validator

from fabric_direct.model import (
    Capacities,
    ComponentId,
    Frozen,
    ImageName,
    LinkName,
    ModelName,
    Name,
    PciAddress,
    PlacementRules,
    SliverId,
    refuse_twice,
)

MOST_WAYS = 8
"""Number of distinct ways (models, uplinks) in which an instance may request devices of one type."""


class DeviceNeed(Frozen):
    """One device: all functions of a GPU, a drive or a NIC, or one VF."""

    component: ComponentId
    type: Name
    model: ModelName | None = None
    """Any model if absent."""
    bdf: tuple[PciAddress, ...] = ()
    """Exactly these functions; chosen by placement if absent."""
    uplink: LinkName | None = None
    """Require a VF of this uplink."""
    vepa: bool = False
    """Require a VF of an uplink in VEPA."""


class Needs(Frozen):
    """The needs of an instance, without its identity."""

    owner: Name | None = None
    """The project that owns it."""
    capacities: Capacities
    image: ImageName
    architecture: Name | None = None
    """``x86_64``, for example; any if absent."""
    devices: Annotated[tuple[DeviceNeed, ...], Field(max_length=128)] = ()
    host: Name | None = None
    """The required host; any if absent."""
    rules: PlacementRules = PlacementRules()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.host is not None and self.host in self.rules.exclude_hosts:
            raise ValueError(f"exclude_hosts: {self.host} is the requested host")
        refuse_twice("devices: component", [need.component for need in self.devices])
        self._refuse_many_ways()
        return self

    def _refuse_many_ways(self) -> None:
        asked = {(d.type, d.model, d.uplink, d.vepa) for d in self.devices if not d.bdf}
        for type_, ways in Counter(way[0] for way in asked).items():
            if ways > MOST_WAYS:
                raise ValueError(f"devices: {ways} ways to ask for {type_}, more than {MOST_WAYS}")


class Request(Frozen):
    """An instance to be placed."""

    id: SliverId
    needs: Needs
