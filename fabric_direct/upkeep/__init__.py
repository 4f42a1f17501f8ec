"""Upkeep: what a site really has, compared with what it should have.

::

    drift.py           slivers that differ from their stamps, at a whole site
    devices.py         PCI devices of hosts, and their owners
    device_owners.py   owners of devices, by the stamps of servers
    services.py        network services of a site
    sweep/             orphaned resources
    watch.py           hears of changes by others, and repairs them
"""
