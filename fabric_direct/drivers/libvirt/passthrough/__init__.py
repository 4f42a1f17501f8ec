"""PCI functions of a worker: attached to domains, detached, cleaned.

::

    hostdev.py sriov.py cold_plug.py   the drivers
    attach.py        the sequence of an attach; vf_settings.py what a VF has beside its place
    release.py       the sequence of cleaning; cleaning.py erases or resets a device
    device_host.py   the worker as the drivers share it: libvirt, topology, records, locks
    topology.py      the host's functions at one point in time, and which a sliver may have
    records.py       who had a function last; domains/claims.py which domain claims which

The registry comes in by the drivers, and ``doctor`` for a survey.
"""
