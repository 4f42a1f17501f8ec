"""The engine: runs a flow of steps, and undoes it if one fails.

::

    step.py            a step, and flows of steps
    run.py             plan, run, undo; a stream of events
    removal.py         a step that removes something
    verify.py          a step that waits until something is so
    field_changes.py   what a step would change, field by field
"""
