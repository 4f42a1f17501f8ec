"""Placement: choose hosts and devices for a batch of slivers, by filters and costs; and nodes.

::

    request          what one instance needs of a host
    state            what a host has, and what of it is used
    arrays           hosts as NumPy columns, for filters and costs
    hardware         the free devices of all hosts, numbered and grouped by kind
    devices          whether a host has the devices of an instance, how distant they are, which to take
    filters          which hosts can take an instance
    costs            what each host costs: integers from 0, lower is better
    plugins          filters and costs by entry point; one that fails is left out with a warning
    scores           the results of all filters and costs, updated as hosts fill up
    affinity_groups  requests of a batch that must share a host, or must not
    greedy_pass      assigns a batch in one order
    place            place(requests, hosts) -> BuildPlan; explain; check
    plan             the build plan, checked again before it is carried out
    inventory        the hosts of a site, read from their drivers
    nodes            bare-metal slivers on nodes, each of which has room for one
    site_nodes       the nodes of a site, without what is promised
    batch_request    the document that asks for several slivers at once
    sliver_requests  slivers -> requests, and chosen hosts and devices -> slivers
    claims           what is promised to slivers and not visible on the hosts yet
    placer           placement for the slivers of a site

Nothing here changes a host; only claims are written.
"""
