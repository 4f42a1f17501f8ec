"""Operations on slivers: from a sliver to an outcome.

::

    operations.py     create, modify, delete, reconcile, adopt, act, plan
    locate.py         where a sliver is, or goes
    stitches.py       which slivers are stitched to each other
    stitching.py      what one sliver takes from another
    whole_cards.py    cards that are named by one of their functions
    late_calls.py     calls that were given up and have not returned
    outcomes.py       outcomes of errors, and of hosts that refused a sliver
    saved_plan.py     plans in files
    site_metrics.py   metrics of a site
"""
