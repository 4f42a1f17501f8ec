"""Domains: found, powered, unplugged.

::

    lookup.py   names, stamps and aliases; finding a domain
    claims.py   which domains claim which PCI functions
    power.py    on, off, reboot
    unplug.py   devices detached from a running domain
"""
