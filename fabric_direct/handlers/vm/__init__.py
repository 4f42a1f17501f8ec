"""VMs: what create, modify, delete, reconcile, adopt and each action consist of.

::

    create.py, modify.py, reconcile.py, delete.py
                           the flow of each operation; handler.py has them all
    component_steps.py     the steps that the flows have in common
    comparison.py          a VM compared with what it should be
    refusal.py             slivers that cannot be served, refused before anything is made
    observe.py             a VM as found, and what it really has
    differences.py         what differs from what was asked for
    found.py               what an operation found of a sliver
    devices.py             devices that a sliver has, and those on record
    actions.py             actions of operators: reboot, rescan, pin CPUs ...
    adoption.py            VMs that others made; adoption_draft.py drafts their slivers
    steps/                 the steps of these flows
    guest/                 the guest: reached, waited for, set up
"""
