"""Workers: their programs, files and netlink sockets.

``choice`` gives the driver of a host: ``local`` for this machine, ``ssh`` for another one, by ``relay``.
``agent/`` is what runs on the worker.
"""
