"""``vNICPorts``: slivers that hold ports of other slivers' servers.

::

    handler.py    the flow of each operation
    steps.py      its steps
    adoption.py   ports that others made
"""
