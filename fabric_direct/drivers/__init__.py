"""Drivers: how each API is spoken to.

::

    contract/    what every driver promises; the bundle of drivers that serves a host
    libvirt/     servers, networks, volumes and PCI devices by libvirt
    openstack/   servers, networks and volumes by Nova, Neutron and Cinder
    hosts/       programs, files and netlink of a worker, in place or over SSH
    netlink/     uplinks (VEPA, VF settings) and VLAN interfaces
    guests/      what is seen and set inside a guest
    ovs/ linuxbridge/ gateways/   network services on switches of this site
    nso/ al2s/   network services by controllers
    p4switch/    whole P4 switches
    ironic/      whole machines by Ironic
    fake/        every driver in memory, with faults on demand
    cloudinit    what a guest reads at its first boot
    http_api     requests to a controller
    ssh/         logins by SSH

Handlers and their steps import ``contract``, ``cloudinit`` and, for what is set in a guest, ``guests``.
Concrete drivers are found by entry point and imported at first use.
"""
