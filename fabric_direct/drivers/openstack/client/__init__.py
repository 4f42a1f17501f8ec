"""How clouds are asked: the base of the drivers, sessions, limits and retries, errors, names, waiting, stamps.

Every other room of ``openstack`` comes here.
"""
