"""Zones: sites that offer their hosts to others, over HTTP, and tell no one what those are called.

::

    wire         what zones say to each other, as values
    sealing      what only its own zone can read: offers and reservations as sealed blobs
    source       where offers come from: the site's own hosts, or a child zone (the contract)
    own          the site's own hosts
    child        a child zone: asked over HTTP, and believed as far as it can be checked
    merging      the offers of all sources as one list
    zone         the zone itself: selects, boots, keeps reservations
    store        reservations and offers that were taken up, on disk
    app          the HTTP interface and its OpenAPI document
    server       listening: TLS, tokens, and the end

A zone knows its children and not its parents. Zones may nest.
"""
