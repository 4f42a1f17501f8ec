"""VMs: what create, modify, delete, reconcile, adopt and each action consist of.

::

    handler.py             the flow of each operation
    refusal.py             slivers that cannot be served, refused before anything is made
    observe.py             what a VM really has
    differences.py         what differs from what was asked for
    found.py               what an operation found of a sliver
    device_records.py      devices that a sliver has or had
    actions.py             actions of operators: reboot, rescan, pin CPUs ...
    adoption.py            VMs that others made; adoption_draft.py drafts their slivers
    steps/                 the steps of these flows
    guest/                 settings within the guest
"""
