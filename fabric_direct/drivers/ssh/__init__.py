"""SSH: logins to guests, workers and switches.

::

    login.py         reach a server, load a key, log in
    known_hosts.py   pinned host keys
    tcp.py           connections whose other end may be gone
"""
