"""Neutron's networks, ports and floating IPs.

``driver`` serves vNICs, ``bridge`` networks that are slivers. ``desired_network`` says what a network
must look like, ``own_networks`` makes it so, ``port_records`` reads the ports that are held.
"""
