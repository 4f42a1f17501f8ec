"""Servers as Nova's JSON: what is requested, and what is read."""

import base64
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from openstack.block_storage.v3._proxy import Proxy as Cinder
from openstack.compute.v2.server import Server as NovaServer
from openstack.connection import Connection

from fabric_direct.drivers.contract import (
    Plug,
    PluggedPort,
    PluggedVolume,
    Port,
    Server,
    ServerSpec,
    Volume,
)
from fabric_direct.drivers.openstack.client.answers import invalid
from fabric_direct.drivers.openstack.client.errors import if_there
from fabric_direct.drivers.openstack.client.stamp import (
    COMPONENT,
    SITE,
    component_of,
    description,
    is_unfinished,
    read_stamp,
    server_metadata,
    site_tag,
    sliver_tag,
)
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import NodeSliver, Stamp, State
from fabric_direct.site.config import OpenStackSettings

# Characters of base64 that Nova takes as user data.
_USER_DATA = 65_535
# Host names that Nova accepts (api/validation/parameter_types); without one it derives it from the name.
_HOST_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]")

# In all others (BUILD, REBOOT, RESIZE, VERIFY_RESIZE, MIGRATING …) the power state says whether it runs.
_STATES = {
    "ACTIVE": State.RUNNING,
    "SHUTOFF": State.STOPPED,
    "SHELVED": State.STOPPED,
    "SHELVED_OFFLOADED": State.STOPPED,
    "PAUSED": State.PAUSED,
    "SUSPENDED": State.PAUSED,
    # A rescue system runs instead of its own.
    "RESCUE": State.PAUSED,
    "ERROR": State.ERROR,
    "UNKNOWN": State.ERROR,
}
# nova/compute/power_state.py; what has none, or is off or has crashed, does not run.
_POWERED = {1: State.RUNNING, 3: State.PAUSED, 7: State.PAUSED}


def server_name(sliver: NodeSliver) -> str:
    """Return the name of the sliver's server."""
    return f"{sliver.id}-{sliver.name}"


# --- what was found


def ports_of_project(cloud: Connection) -> list[Any]:
    """Return all ports of the project: Neutron finds descriptions only by the whole of them."""
    return list(cloud.network.ports(project_id=cloud.current_project_id))


def state_of(found: NovaServer) -> State:
    """Return the state of a server.

    One that changes its state counts as running while its power is on: a server that is being built is
    stopped, one that is being rebooted is running.
    """
    return _STATES.get(found.status) or _POWERED.get(found.power_state, State.STOPPED)


def is_settled(found: NovaServer | None) -> bool:
    """Return whether Nova has no task for a server, or it is gone."""
    return found is None or not (found.task_state or found.status in {None, "BUILD"})


def attached_ids(found: NovaServer | None) -> set[str]:
    """Return the ids of a server's volumes, also of those that come or go."""
    return {volume.id for volume in found.attached_volumes or ()} if found else set()


def first_stamped(servers: Iterable[NovaServer]) -> NovaServer | None:
    """Return the first of the servers that has a stamp which can be read."""
    return next((server for server in servers if read_stamp(server)), None)


def read_server(
    found: NovaServer,
    ports: Iterable[Any],
    limits: Mapping[str, int | None],
    volumes: Iterable[PluggedVolume],
) -> Server | None:
    """Return a server as found, or None if its stamp cannot be read.

    :param ports: ports, those held for its sliver among them; of these, its NICs are those that are
        plugged into it.
    :param limits: the bandwidth that each policy of a port limits it to.
    """
    stamp, flavor = read_stamp(found), found.flavor
    if stamp is None:
        return None
    if flavor is None:
        raise invalid(found, "flavor", "it is missing")
    return Server(
        sliver=stamp.sliver.id,
        instance=found.id,
        state=state_of(found),
        cores=flavor.vcpus,
        ram=flavor.ram,
        stamp=stamp,
        host=found.compute_host or "",
        ports=tuple(_plugged(found, stamp, ports, limits)),
        volumes=tuple(volumes),
        domain=found.instance_name or None,
        flavor=flavor.original_name or flavor.name,
        unfinished=is_unfinished(found),
    )


def _plugged(
    found: NovaServer, stamp: Stamp, ports: Iterable[Any], limits: Mapping[str, int | None]
) -> Iterator[PluggedPort]:
    """Yield the server's NICs in the sliver's order, then those that the sliver does not have."""
    order = {vnic.id: number for number, vnic in enumerate(stamp.sliver.vnics())}
    held = description(found.metadata.get(SITE, ""), stamp.sliver.id)
    plugged = (p for p in ports if p.device_id == found.id and p.description == held)
    mine = {component_of(p, stamp.sliver.id): p for p in plugged}
    for component in sorted(mine, key=lambda name: order.get(name, len(order))):
        yield _nic(component, mine[component], limits)


def _nic(component: str, port: Any, limits: Mapping[str, int | None]) -> PluggedPort:
    limit = limits.get(port.qos_policy_id)
    return PluggedPort(component, port.mac_address, port.id, limit)


def read_plug(
    site: str, found: NovaServer, port: Any, limits: Mapping[str, int | None], holder: str
) -> Plug:
    """Return the NIC of a server that a port which another sliver holds is plugged into."""
    stamp = read_stamp(found)
    ours = stamp is not None and sliver_tag(site, stamp.sliver.id) in (found.tags or ())
    nic = _nic(component_of(port, holder), port, limits)
    return Plug(stamp.sliver.id if stamp and ours else "", found.id, nic)


def read_volumes(
    cloud: Connection, found: NovaServer, own: Iterable[Any]
) -> tuple[PluggedVolume, ...]:
    """Return the volumes that are plugged into a server, each with the component that it is for.

    Cinder says so of those that were made for the sliver. If there are others, Nova is asked: we attach
    each with its component as the tag of the device. What has no tag was attached by others: it is the
    sliver's if its stamp names the volume, and nobody's otherwise.

    :param own: the volumes that were made for the sliver.
    """
    made = {volume.id: volume for volume in own}
    if attached_ids(found) <= made.keys():
        return tuple(_as_cinder_says(found, made.values()))
    attachments = cloud.compute.volume_attachments(found.id)
    named = ((a, a.tag or _stamped_component(cloud, found, a.volume_id)) for a in attachments)
    return tuple(_disk(tag, a.volume_id, a.device) for a, tag in named if tag)


def _stamped_component(cloud: Connection, found: NovaServer, volume_id: str) -> str | None:
    """Return the component whose ``volume`` in the server's stamp is this one's id or name."""
    stamp = read_stamp(found)
    wanted = {s.volume: s.id for s in stamp.sliver.volumes() if s.volume} if stamp else {}
    if not wanted or volume_id in wanted:
        return wanted.get(volume_id)
    volume = if_there(cast(Cinder, cloud.block_storage).get_volume, volume_id)
    return wanted.get(volume.name) if volume else None


def _as_cinder_says(found: NovaServer, volumes: Iterable[Any]) -> Iterator[PluggedVolume]:
    for volume in volumes:
        for attachment in volume.attachments or ():
            if attachment["server_id"] == found.id:
                component = volume.metadata.get(COMPONENT, "")
                yield _disk(component, volume.id, attachment["device"])


def _disk(component: str, volume_id: str, device: str | None) -> PluggedVolume:
    target = (device or "").removeprefix("/dev/")
    return PluggedVolume(component, volume_id, target, serial=volume_id)


# --- what is asked for


def server_request(
    site: str, settings: OpenStackSettings, spec: ServerSpec, *, image: str, flavor: str
) -> dict[str, Any]:
    """Return the arguments of openstacksdk's ``create_server``.

    :param image: id of the image, as ``flavor`` is the flavor's.
    :raises InvalidSliver: if the boot script, or the sliver itself, is too large for Nova.
    """
    sliver = spec.sliver
    tags = [site_tag(site), sliver_tag(site, sliver.id)]
    drive = settings.config_drive or not _reaches_metadata(spec.ports)
    wanted = {
        "name": server_name(sliver),
        "hostname": sliver.name if _HOST_NAME.fullmatch(sliver.name) else None,
        "image_id": image,
        "flavor_id": flavor,
        "networks": [{"port": port.source} for port in spec.ports] or "none",
        "tags": tags,
        "metadata": server_metadata(site, sliver.stamp()),
        "host": sliver.host,
        "key_name": settings.key_name,
        "user_data": encoded(spec.user_data),
        "config_drive": drive or None,
        "block_device_mapping": _disks(spec, image),
    }
    return {key: value for key, value in wanted.items() if value}


def _reaches_metadata(ports: Iterable[Port]) -> bool:
    """Return whether each NIC gets an IPv4 address by DHCP, and there is one.

    Nova's metadata service answers over IPv4 alone, and does not configure what DHCP leaves out.
    """
    addressed = [port.dhcp and port.ipv4 is not None for port in ports]
    return bool(addressed) and all(addressed)


def encoded(user_data: str) -> str:
    """Return user data in base64, gzipped for cloud-init if they are too long otherwise.

    :raises InvalidSliver: if they are too long for Nova even so.
    """
    plain = base64.b64encode(user_data.encode()).decode()
    if len(plain) <= _USER_DATA:
        return plain
    packed = base64.b64encode(gzip.compress(user_data.encode(), mtime=0)).decode()
    if len(packed) <= _USER_DATA:
        return packed
    raise InvalidSliver(
        "the boot script and keys are too long for the cloud",
        why=f"compressed they take {len(packed)} characters of base64, {_USER_DATA} are possible",
        remedy="let the script fetch what it needs",
        field="boot_script",
    )


def _disks(spec: ServerSpec, image: str) -> list[dict[str, Any]]:
    """Return the root disk, on the worker, and the volumes; nothing if there are no volumes."""
    root = {
        "boot_index": 0,
        "uuid": image,
        "source_type": "image",
        "destination_type": "local",
        "delete_on_termination": True,
    }
    volumes = [_data_disk(component, volume) for component, volume in _components(spec)]
    return [root, *volumes] if volumes else []


def _data_disk(component: str, volume: Volume) -> dict[str, Any]:
    return {
        "boot_index": -1,
        "uuid": volume.source,
        "source_type": "volume",
        "destination_type": "volume",
        "delete_on_termination": False,
        "tag": component,
    }


def _components(spec: ServerSpec) -> Iterator[tuple[str, Volume]]:
    """Yield each volume with the component that it is for: present ones come in the sliver's order."""
    present = iter([storage.id for storage in spec.sliver.volumes() if storage.volume is not None])
    for volume in spec.volumes:
        yield volume.component or next(present), volume
