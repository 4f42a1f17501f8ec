"""Servers, networks, volumes and host devices by libvirt's API."""
