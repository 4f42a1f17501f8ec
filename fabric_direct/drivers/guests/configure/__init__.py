"""Set addresses in a guest permanently, by each network manager that a guest may have.

::

    network.py   a link with its addresses, and the protocol of a network manager
    networkmanager.py netplan.py networkd.py ifupdown.py freebsd.py openbsd.py iproute.py
                 the network managers; files.py is the base of those that read a file of ours,
                 bsd.py has what the BSDs share
    root.py      commands and files of the guest's root
"""
