"""Where a sliver lands: hosts are filtered, weighed by cost, and taken, the whole batch together.

::

    request      what one instance needs of a host, as a value
    state        what a host has, and what is taken of it
    arrays       hosts as columns, which filters and costs compute with
    filters      which hosts can
    costs        what each of them costs: integers from 0, lower is better
    plugins      filters and costs by entry point; what goes wrong in one is named, and it is left out
    place        place(requests, hosts) -> BuildPlan
    plan         the build plan: a value, checked again before it is carried out
    inventory    the hosts of a site, from the drivers' own inventories
    nodes        slivers -> requests, and an assignment -> the sliver with its host and devices

Nothing here changes anything.
"""
