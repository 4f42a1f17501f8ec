"""Adoptions: slivers that others made, with what belongs to them.

``fabric-direct adopt FILE`` reads a document of them; ``--am`` with ``--output`` writes one of the
servers that it finds at a site. Nothing in it is created: each component must exist.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from fabric_direct.model.base import ComponentId, Frozen, refuse_twice
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.model.vm import NodeSliver

ThingName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,255}$")]
"""Name or id of something in a cloud."""
# The key of the journal's entry that has the adoption.
_JOURNAL = "adoption"


class _Adoption(Frozen):
    sliver: Any
    ports: dict[ComponentId, ThingName] = {}

    def journal_data(self) -> dict[str, Any]:
        """Return it as JSON data, with id and type of its sliver."""
        ref = self.sliver.ref().model_dump(mode="json")
        return {**ref, _JOURNAL: self.model_dump(mode="json", exclude_none=True)}


class Adoption(_Adoption):
    """A virtual machine to adopt: what it is, and where in the cloud its parts are."""

    sliver: NodeSliver
    """What it is from now on. The ids of its components are those by which it is modified later."""
    server: ThingName | None = None
    """Name or id of its server; ``<id>-<name>`` if absent."""
    ports: dict[ComponentId, ThingName] = {}
    """Names or ids of ports by component. If absent, a vNIC's port is the server's of its MAC, or else
    the only one on its network."""
    volumes: dict[ComponentId, ThingName] = {}
    """Names or ids of the volumes of components with a ``size``: they are the sliver's then, and are
    deleted with it. A component with a ``volume`` keeps that one, which is never deleted."""

    @model_validator(mode="after")
    def _of_its_components(self) -> Self:
        _refuse_unknown("ports", self.ports, {vnic.id for vnic in self.sliver.vnics()})
        own = {s.id for s in self.sliver.volumes() if s.size is not None}
        _refuse_unknown("volumes", self.volumes, own)
        if missing := sorted(own - self.volumes.keys()):
            raise ValueError(f"volumes: {missing[0]} is missing")
        return self


class ServiceAdoption(_Adoption):
    """Ports of a network service to adopt, in the servers of other slivers."""

    sliver: VNicPortsSliver
    """What they are from now on."""
    ports: dict[ComponentId, ThingName] = {}
    """Names or ids of the ports by component; by its MAC if absent."""

    @model_validator(mode="after")
    def _of_its_ports(self) -> Self:
        _refuse_unknown("ports", self.ports, {port.id for port in self.sliver.ports})
        return self


class Adoptions(Frozen):
    """A document: slivers that are adopted together."""

    slivers: Annotated[tuple[Adoption, ...], Field(max_length=10_000)] = ()
    """Virtual machines."""
    services: Annotated[tuple[ServiceAdoption, ...], Field(max_length=10_000)] = ()
    """Ports of network services."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if not self.all():
            raise ValueError("slivers: names nothing to adopt")
        refuse_twice("slivers: id", [each.sliver.id for each in self.all()])
        refuse_twice("slivers: server", [e.server for e in self.slivers if e.server])
        refuse_twice("slivers: bdf", [a for each in self.slivers for a in _functions(each.sliver)])
        return self

    def all(self) -> tuple[Adoption | ServiceAdoption, ...]:
        """Return the servers, and then the ports in them."""
        return (*self.slivers, *self.services)


def of_journal(data: Mapping[str, Any]) -> Adoption | ServiceAdoption:
    """Return the adoption in an entry of the journal."""
    ports = data["type"] == VNicPortsSliver.model_fields["type"].default
    model = ServiceAdoption if ports else Adoption
    return model.model_validate(data[_JOURNAL])


def _functions(sliver: NodeSliver) -> list[str]:
    """Return the functions of a sliver with their host: hosts number them alike."""
    return [f"{address} of {sliver.host}" for device in sliver.devices() for address in device.bdf]


def _refuse_unknown(what: str, named: Mapping[str, str], components: Collection[str]) -> None:
    """Raise ValueError if a component is named that the sliver does not have, or a thing twice."""
    for component in sorted(named.keys() - set(components)):
        raise ValueError(f"{what}: the sliver has no such component {component}")
    refuse_twice(what, list(named.values()))
