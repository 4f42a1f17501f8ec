"""Drivers: how each API is spoken to.

::

    contract/    what every driver promises; the bundle of drivers that serves a host
    libvirt/     servers, networks, volumes and PCI devices by libvirt
    openstack/   servers, networks and volumes by Nova, Neutron and Cinder
    hosts/       programs, files and netlink of a worker, in place or over SSH
    netlink/     uplinks (VEPA, VF settings) and VLAN interfaces
    guests/      what is seen and set inside a guest
    fake/        every driver in memory, with faults on demand
    read_cache   answers that an operation reads once

Handlers and steps import ``contract`` and ``read_cache`` only. Concrete drivers are found by entry point
and imported at first use.
"""
