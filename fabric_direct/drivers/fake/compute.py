"""Servers in memory."""

from dataclasses import replace
from typing import Any, ClassVar

from fabric_direct.drivers.contract import (
    HostInventory,
    Image,
    ImageNeeds,
    Plug,
    PluggedPort,
    PluggedVolume,
    Port,
    Server,
    ServerSpec,
    Stamped,
    Volume,
)
from fabric_direct.drivers.contract.capacity import refuse_size
from fabric_direct.drivers.fake.inventory import inventory, refuse_full
from fabric_direct.drivers.fake.state import Key
from fabric_direct.drivers.fake.substrate import Fake, Hears, held, public_key, the
from fabric_direct.errors import Conflict, InvalidSliver
from fabric_direct.model import NodeSliver, Stamp, State, VNicInterface


class FakeCompute(Hears, Fake):
    """A :class:`~fabric_direct.drivers.contract.ComputeDriver` in memory."""

    kind = "compute"

    cloud = False
    unserved: ClassVar[tuple[str, ...]] = ()

    def check(self, sliver: NodeSliver, image: Image) -> None:
        """Refuse what is larger than the substrate or what is free of it, and an unknown image."""
        refuse_size(self.substrate.capacity, sliver.capacities, self.host)
        self._refuse_image(image)
        self._refuse_full(sliver)

    def inventory(self) -> tuple[HostInventory, ...]:
        """Return the capacity of the substrate and what its servers use."""
        return (inventory(self.substrate, self.host),)

    def image_needs(self, image: Image) -> ImageNeeds:
        """Return the architecture that the site configures."""
        self._refuse_image(image)
        return ImageNeeds(architecture=self.site.image(image.name).architecture)

    def find(self, sliver_id: str) -> Server | None:
        """Return the server."""
        return self.substrate.servers.get(sliver_id)

    def servers(self) -> tuple[Server, ...]:
        """Return all servers."""
        return tuple(self.substrate.servers.values())

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all servers, and the NICs whose ports other slivers hold."""
        servers = (Stamped(s.sliver, "server", s.instance) for s in self.substrate.servers.values())
        plugs = (
            Stamped(holder, "NIC", f"{component} of {plug.instance}")
            for (holder, component), plug in self.substrate.plugs.items()
        )
        return (*servers, *plugs)

    def create(self, spec: ServerSpec) -> Server:
        """Make a running server."""
        sliver = spec.sliver
        self.substrate.refuse_foreign(_server_name(sliver))
        self._refuse_image(spec.image)
        self._refuse_full(sliver)
        server = Server(
            sliver=sliver.id,
            instance=_server_name(sliver),
            state=State.RUNNING,
            cores=sliver.capacities.core,
            ram=sliver.capacities.ram * 1024,
            stamp=sliver.stamp(),
            host=self.host,
            domain=_server_name(sliver),
            ports=tuple(_plug(port, _interface(spec, port)) for port in spec.ports),
            volumes=tuple(
                _plug_volume(replace(volume, component=storage.id), number)
                for number, (storage, volume) in enumerate(
                    zip(spec.sliver.volumes(), spec.volumes, strict=True)
                )
            ),
        )
        self.substrate.keys[sliver.id] = {public_key(line): line for line in sliver.ssh_keys}
        return self.substrate.servers.setdefault(sliver.id, server)

    def delete(self, sliver_id: str) -> None:
        """Forget the server; its devices are free again."""
        for plugged in self.substrate.plugged.pop(sliver_id, ()):
            self.substrate.own(plugged.host_address, None)
        if server := self.substrate.servers.pop(sliver_id, None):
            self.substrate.pins.pop(server.instance, None)
            self.substrate.nodes.pop(server.instance, None)
        self.substrate.pending.discard(sliver_id)
        self.substrate.domains.pop(sliver_id, None)
        for key in [k for k, p in self.substrate.plugs.items() if p.server == sliver_id]:
            del self.substrate.plugs[key]
        self.substrate.keys.pop(sliver_id, None)
        self.substrate.inside.pop(sliver_id, None)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the server, if it is there."""
        return tuple(s.instance for s in self.substrate.servers.values() if s.sliver == sliver_id)

    def start(self, sliver_id: str) -> None:
        """Start the server, with what waited for it."""
        self.substrate.pending.discard(sliver_id)
        self._change(sliver_id, state=State.RUNNING)

    def stop(self, sliver_id: str, *, timeout: float) -> None:  # noqa: ARG002
        """Stop the server."""
        self._change(sliver_id, state=State.STOPPED)

    def reboot(self, sliver_id: str, *, hard: bool, timeout: float) -> None:  # noqa: ARG002
        """Restart the server."""
        self._change(sliver_id, state=State.RUNNING)

    def resize(self, stamp: Stamp) -> None:
        """Give the server the size in the stamp, and the stamp.

        :raises InvalidSliver: with the field ``capacities`` or ``flavor`` if the host has no room, as
            Nova's driver; nothing was touched then.
        """
        size = stamp.sliver.capacities
        try:
            self._refuse_full(stamp.sliver)
        except Conflict as full:
            raise InvalidSliver(
                f"the server cannot be resized on {self.host}",
                why=f"{full.what}: {full.why}",
                remedy="make room there, or ask for less",
                field="flavor" if stamp.sliver.flavor else "capacities",
            ) from full
        self._change(stamp.sliver.id, cores=size.core, ram=size.ram * 1024, stamp=stamp)

    def attach_port(self, sliver_id: str, port: Port, interface: VNicInterface) -> None:
        """Plug a NIC in."""
        server, nic = the(self.substrate.servers, sliver_id), _plug(port, interface)
        if port.sliver != sliver_id:
            self._plug_in(port, Plug(sliver_id, server.instance, nic))
            return
        self._change(sliver_id, ports=(*self._ports_but(sliver_id, port.component), nic))

    def detach_port(
        self,
        sliver_id: str,
        component: str,
        *,
        timeout: float,  # noqa: ARG002
        holder: str | None = None,
    ) -> None:
        """Unplug a NIC."""
        if holder not in {None, sliver_id}:
            self._unplug(sliver_id, (str(holder), component))
        elif sliver_id in self.substrate.servers:
            self._change(sliver_id, ports=self._ports_but(sliver_id, component))

    def set_bandwidth(
        self, sliver_id: str, component: str, bandwidth: int | None, holder: str | None = None
    ) -> None:
        """Limit a NIC."""
        plug = self.substrate.plugs.get((holder or sliver_id, component))
        if plug:
            limited = replace(plug, nic=replace(plug.nic, bandwidth=bandwidth))
            self.substrate.plugs[holder or sliver_id, component] = limited
            return
        ports = the(self.substrate.servers, sliver_id).ports
        changed = (
            replace(p, bandwidth=bandwidth) if p.component == component else p for p in ports
        )
        self._change(sliver_id, ports=tuple(changed))

    def plugs(self, holder: str) -> tuple[Plug, ...]:
        """Return the NICs whose ports another sliver holds."""
        return held(self.substrate.plugs, holder)

    def attach_volume(self, sliver_id: str, component: str, volume: Volume) -> None:
        """Plug a disk in."""
        kept = self._volumes_but(sliver_id, component)
        disk = _plug_volume(replace(volume, component=component), len(kept))
        self._change(sliver_id, volumes=(*kept, disk))

    def detach_volume(self, sliver_id: str, component: str, *, timeout: float) -> None:  # noqa: ARG002
        """Unplug a disk."""
        if sliver_id in self.substrate.servers:
            self._change(sliver_id, volumes=self._volumes_but(sliver_id, component))

    def write_stamp(self, sliver_id: str, stamp: Stamp) -> None:
        """Replace the stamp."""
        self._change(sliver_id, stamp=stamp)

    def console(self, sliver_id: str, lines: int) -> str:
        """Return the last lines of a made-up console."""
        server = the(self.substrate.servers, sliver_id)
        return "\n".join(["booting", f"{server.instance} login:"][-lines:])

    def _refuse_image(self, image: Image) -> None:
        there = self.substrate.images
        known = self.site.images if there is None else there
        if image.name not in known:
            why = f"known: {', '.join(sorted(known)) or 'none'}"
            raise InvalidSliver(f"no image {image.name!r}", field="image", why=why)

    def _refuse_full(self, sliver: NodeSliver) -> None:
        ratios = self.site.placement.allocation
        refuse_full(self.substrate, sliver.capacities, sliver.id, ratios)

    def _plug_in(self, port: Port, plug: Plug) -> None:
        there = self.substrate.plugs.get((port.sliver, port.component), plug)
        if there.server != plug.server:
            raise Conflict(f"port {port.component} is plugged into the server of {there.server}")
        self.substrate.plugs[port.sliver, port.component] = plug

    def _unplug(self, sliver_id: str, key: Key) -> None:
        plug = self.substrate.plugs.get(key)
        if plug and plug.server == sliver_id:
            del self.substrate.plugs[key]

    def _change(self, sliver_id: str, **values: Any) -> None:
        server = the(self.substrate.servers, sliver_id)
        self.substrate.servers[sliver_id] = replace(server, **values)

    def _ports_but(self, sliver_id: str, component: str) -> tuple[PluggedPort, ...]:
        ports = the(self.substrate.servers, sliver_id).ports
        return tuple(p for p in ports if p.component != component)

    def _volumes_but(self, sliver_id: str, component: str) -> tuple[PluggedVolume, ...]:
        volumes = the(self.substrate.servers, sliver_id).volumes
        return tuple(v for v in volumes if v.component != component)


def _server_name(sliver: NodeSliver) -> str:
    return f"{sliver.id}-{sliver.name}"


def _interface(spec: ServerSpec, port: Port) -> VNicInterface:
    return next(v.interface for v in spec.sliver.vnics() if v.id == port.component)


def _plug(port: Port, interface: VNicInterface) -> PluggedPort:
    return PluggedPort(port.component, port.mac, port.source, interface.bandwidth)


def _plug_volume(volume: Volume, number: int) -> PluggedVolume:
    target, serial = f"vd{chr(ord('b') + number)}", volume.component[:20]
    return PluggedVolume(volume.component, volume.source, target, serial)
