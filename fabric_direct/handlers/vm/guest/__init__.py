"""What a sliver has set in its guest: addresses of its NICs, and directories where volumes are mounted.

::

    inside.py    the guest, asked for when its server is there
    settings.py  which settings a sliver asks for; refused if the site does not access its guests
    stages.py    the stages of a flow that set them, or remove them
    nics.py      a NIC's addresses: find it, choose its network manager, set, read back
    mounts.py    a volume's file system: found, or made on an empty one of ours; mounted; in /etc/fstab

The network managers themselves are in :mod:`fabric_direct.drivers.guests.configure`.
"""
