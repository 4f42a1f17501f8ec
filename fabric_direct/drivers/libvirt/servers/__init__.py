"""Servers on libvirt: their XML, life cycle, hot plug, tuning and inventory.

``driver`` is the entry point. Finding a domain, its power and unplugging are in
:mod:`fabric_direct.drivers.libvirt.domains`.
"""
