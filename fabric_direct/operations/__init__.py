"""Operations on slivers: from a sliver to an outcome.

::

    create.py  modify.py  reconcile.py  delete.py  adopt.py  recover.py  probe.py  plan.py  act.py
    operations.py     all of them, with what they share
    flow_runner.py    runs a flow, with its locks, its entry in the journal and its outcome
    progress.py       what an operation tells while it is under way
    site_hosts.py     where a sliver is, and by which drivers
    locate.py         where a sliver that leaves its host open is, or goes
    site_queries.py   what there is at a site
    sliver_ids.py     which sliver an id is
    stitches.py       which slivers are stitched to each other
    stitching.py      what one sliver takes from another
    whole_cards.py    cards that are named by one of their functions
    late_calls.py     calls that were given up and have not returned
    outcomes.py       outcomes of errors, and of hosts that refused a sliver
    saved_plan.py     plans in files
    site_metrics.py   metrics of a site
"""
