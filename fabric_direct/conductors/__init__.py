"""Conductors: processes that carry out the operations of a site, on any machine.

::

    conductor.py   takes operations from the queue, and writes what comes of them

The queue is :mod:`fabric_direct.state.postgresql.queue`; who asks posts to it
(:mod:`fabric_direct.operations.front`).
"""
