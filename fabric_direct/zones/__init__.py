"""Zones: sites that offer their hosts to other sites over HTTP, without naming the hosts.

::

    wire            requests and answers between zones
    sealing         encrypted blobs that only the zone that made them can read
    source          where offers come from: the local hosts or a child zone (the contract)
    local_source    the site's own hosts
    instances       instances on the local hosts, on disk
    child           a child zone: queried over HTTP, its answers checked
    client          HTTP requests to a zone
    fan_out         many sources queried at once, within one deadline
    source_health   what each source last reported; sources that went silent are skipped
    merging         the offers of all sources as one list
    booting         accepts offers; selects again what a source refuses
    deletion_retry  repeats deletions until every source has confirmed
    store           reservations and accepted offers, on disk
    zone            the zone itself: selects, boots, keeps reservations
    app             the HTTP interface and its OpenAPI document
    server          listens, and ends (see :mod:`fabric_direct.serving`)

A zone knows its children, not its parents. Zones may nest.
"""
