"""Common parts of the HTTP servers: the zone's, and the page's.

::

    access     bearer tokens, loopback addresses
    bodies     limits for what a client sends
    listening  listening socket, TLS, signals
"""
