"""What is set inside a guest: addresses of its NICs, and directories where its volumes are mounted.

::

    wanted.py    which settings a sliver asks for; refused if the site looks into no guest
    stages.py    the stages of a flow that set them, or take them away
    nics.py      a NIC's addresses: find it, choose what configures it, set, read back
    mounts.py    a volume's file system: found, or made on an empty one of ours; mounted; in /etc/fstab
    network.py   what an interface is given, and what each way of giving it has to do
    networkmanager.py netplan.py networkd.py ifupdown.py freebsd.py iproute.py
                 the ways; files.py is what those have in common that write a file
    root.py      commands and files of the guest's root
"""
