"""Where a sliver lands: hosts are filtered, weighed by cost, and taken, the whole batch together.

::

    request      what one instance needs of a host, as a value
    state        what a host has, and what is taken of it
    arrays       hosts as columns, which filters and costs compute with
    hardware     their free devices, and which needs a kind of devices serves
    devices      whether a host has all devices of an instance, how far apart, and which it gets
    filters      which hosts can
    costs        what each of them costs: integers from 0, lower is better
    plugins      filters and costs by entry point; what goes wrong in one is named, and it is left out
    verdicts     what all of them say of all hosts, kept up to date as hosts are taken of
    batch        what requests mean for each other: who must share a host, who must not
    attempt      one order of placing: each instance sees what those before it left
    place        place(requests, hosts) -> BuildPlan; explain; check
    plan         the build plan: a value, checked again before it is carried out
    inventory    the hosts of a site, from the drivers' own inventories
    wanted       the document that asks for several slivers at once
    nodes        slivers -> requests, and an assignment -> the sliver with its host and devices
    claims       what was promised and cannot be seen on the hosts yet
    placer       all of it for the slivers of a site

Nothing here changes a host; claims are all that is written.
"""
