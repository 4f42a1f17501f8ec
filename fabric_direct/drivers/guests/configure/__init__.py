"""How addresses are set in a guest, to stay: by each network manager that a guest may have.

::

    network.py   the interface, its addresses, and the interface of a network manager
    networkmanager.py netplan.py networkd.py ifupdown.py freebsd.py iproute.py
                 the network managers; files.py is what those that write a file have in common
    root.py      commands and files of the guest's root
"""
