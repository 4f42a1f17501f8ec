"""The guest of a sliver: the wait for it; addresses of its NICs and mount points of its volumes in it.

::

    access.py    how it is reached
    waiting.py   the steps that wait for it
    readiness.py how far it must be, and a warning of what was not seen by then
    settings.py  which settings a sliver asks for; refused if the site does not access its guests
    stages.py    the stages of a flow that set them, or remove them
    nics.py      a NIC's addresses: find it, choose its network manager, set, read back
    mounts.py    a volume's file system: found, or made if empty and ours; mounted; in /etc/fstab

The network managers themselves are in :mod:`fabric_direct.drivers.guests.configure`.
"""
