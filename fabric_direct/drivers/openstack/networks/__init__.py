"""Neutron's networks, ports and floating IPs.

``driver`` serves vNICs, ``bridge`` serves networks that are slivers. ``desired_network`` describes a
network in Neutron's terms, ``own_networks`` creates and deletes it, ``orphans`` finds those without a
user, ``port_records`` reads the ports and floating IPs of a sliver.
"""
