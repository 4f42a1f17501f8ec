"""Network services, networks and P4 switches.

::

    handler.py     the flow of each operation
    steps.py       its steps
    comparison.py  a probe of what cannot be had
"""
