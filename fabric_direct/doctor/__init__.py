"""Check whether a site has what it needs, and say how to fix what it lacks. Nothing is changed.

::

    libraries    the Python packages of the drivers
    drivers      the drivers that the site names
    references   the filters and costs of placement that the site names; the NICs at ports of switches
    files        state, journal, volumes, images: existence and permissions; the key for guests
    switches     what the kernels of Linux bridges can do; what Open vSwitches answer and have; the
                 programs of services that are routed
    machine      KVM, IOMMU, bridges, dnsmasq, 802.1Q of this machine
    daemon       libvirt of each host
    workers      SSH to each host that is not this machine: login, Python, root
    controllers  NSO and AL2S, if network services are made by them: login, version, what may be read;
                 P4 switches: login, rights, installer
    devices      whether servers have the devices that their stamps name
    advertised   whether the allow-lists have the devices of FABRIC's resource model
    cloud        clouds.yaml, login, services, rights, what the site names in its cloud; whether its
                 workers are the machines of the site, and have root ports for devices

Each check is a function that returns a :class:`Diagnosis`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fabric_direct.doctor import (
    advertised,
    controllers,
    daemon,
    devices,
    drivers,
    files,
    libraries,
    machine,
    references,
    workers,
)
from fabric_direct.doctor.diagnosis import Diagnosis, Verdict, fail, ok
from fabric_direct.doctor.switches import check_switches
from fabric_direct.errors import FabricDirectError
from fabric_direct.handlers import registry
from fabric_direct.site.config import Host, Site
from fabric_direct.site.extras import how_to_install

__all__ = ["Diagnosis", "Verdict", "examine"]


def examine(
    path: Path | None, load: Callable[[], Site], arm: Path | None = None
) -> Iterator[Diagnosis]:
    """Check everything that the site needs, one thing after another.

    :param path: the file of the site; None if there is none.
    :param load: loads the site.
    :param arm: FABRIC's resource model of the site (ARM), with which the allow-lists are compared.
    """
    yield libraries.check_libraries()
    try:
        site = load()
    except FabricDirectError as error:
        yield fail("site.yaml", str(error), "fix the file; nothing that depends on it was checked")
        return
    yield ok("site.yaml", str(path or "no file: this machine with its libvirt"))
    yield drivers.check_drivers(site, path)
    yield from references.check_placement(site, path)
    yield from references.check_ports(site)
    yield files.check_state_dir(site.state_dir)
    yield from _state(site)
    yield from check_switches(site)
    if site.serves_vms and drivers.guests_by(site) == "ssh" and site.guest_access.ssh_key:
        yield files.check_guest_key(site.guest_access.ssh_key)
    server = registry.server_driver(site) if site.serves_vms else None
    if "openstack" in {server, *site.drivers.values()}:
        yield from _cloud(site)
    if server == "libvirt":
        yield from _hosts(site)
    if server == "openstack":
        yield from _workers(site)
    yield from controllers.check_controllers(site)
    yield from controllers.check_switches(site)
    yield from controllers.check_bare_metal(site)
    yield from devices.check_devices(site)
    if arm:
        yield from advertised.check_resource_model(site, arm)


def _state(site: Site) -> Iterator[Diagnosis]:
    if site.state_database:
        database = files.check_state_database(site)
        yield database
        if database.verdict is Verdict.FAIL:
            return
        if site.conductors:
            yield files.check_conductors(site, site.state_database)
    yield files.check_journal(site)
    yield from files.check_notes(site)


def _cloud(site: Site) -> Iterator[Diagnosis]:
    try:
        from fabric_direct.doctor.cloud import examine_cloud  # noqa: PLC0415 - openstacksdk is large
    except ImportError as error:
        yield fail("cloud", str(error), how_to_install(error))
        return
    yield from examine_cloud(site)


def _workers(site: Site) -> Iterator[Diagnosis]:
    """Check what the cloud does not provide by itself: libvirt and SSH of each worker."""
    for name, host in site.hosts.items():
        found = daemon.check_libvirt(name, host, site.limits.call)
        needed = host.devices or found.verdict is Verdict.OK
        yield found if needed else replace(found, verdict=Verdict.WARN)
        yield from _login(site, name, host)
        if host.devices and daemon.is_local(host):
            yield machine.check_iommu(needed=True)


def _hosts(site: Site) -> Iterator[Diagnosis]:
    for name, host in site.hosts.items():
        yield daemon.check_libvirt(name, host, site.limits.call)
        yield from _login(site, name, host)
    local = [host for host in site.hosts.values() if daemon.is_local(host)]
    if local:
        yield from _this_machine(site, local[0])


def _login(site: Site, name: str, host: Host) -> Iterator[Diagnosis]:
    if workers.needs_login(host):
        yield workers.check_login(site, name)


def _this_machine(site: Site, host: Host) -> Iterator[Diagnosis]:
    user = machine.qemu_user()
    yield machine.check_kvm(host.virt_type)
    yield machine.check_kvm_permissions(user)
    yield machine.check_iommu(needed=bool(host.devices))
    yield files.check_volume_dir(site.volume_pool or site.state_dir / "volumes", user)
    for name, image in site.images.items():
        yield files.check_image(name, image.path, user)
    yield from machine.check_networks(site.networks)
