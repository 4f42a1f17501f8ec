"""Zones: sites that offer their hosts to others, over HTTP, and tell no one what those are called.

::

    wire         what zones say to each other, as values
    sealing      what only its own zone can read: sealed blobs
    source       where offers come from: the site's own hosts, or a child zone (the contract)
    own          the site's own hosts
    instances    what is being made on them, on disk
    access       bearer tokens, and what only this machine reaches
    child        a child zone: asked over HTTP, and believed as far as it can be checked
    client       one question to a zone over HTTP, and its answer
    asking       many sources asked at once, each with its share of the time
    children     what was last heard of each: who is silent is not asked
    merging      the offers of all sources as one list
    booting      offers are taken up; what is refused is selected again
    clearing     sources are told to delete what shall not be there, until they have heard
    store        reservations and offers that were taken up, on disk
    zone         the zone itself: selects, boots, keeps reservations
    app          the HTTP interface and its OpenAPI document
    server       listening: TLS, tokens, and the end

A zone knows its children and not its parents. Zones may nest.
"""
