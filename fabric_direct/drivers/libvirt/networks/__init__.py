"""libvirt's networks, their DHCP entries, and the pools that addresses are taken from.

``driver`` is the entry point; ``strategies`` says how each kind of network is made.
"""
