"""Servers, networks, volumes and PCI devices by libvirt. ``xml`` renders all XML."""
