"""Access to clouds: drivers' base, sessions, limits and retries, errors, names, waiting, stamps.

Every other package of ``openstack`` uses this one.
"""
