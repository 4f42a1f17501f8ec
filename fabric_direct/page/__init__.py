"""The site as a page for browsers: what there is, what is wrong, what is under way. It changes nothing.

::

    readings   a question to the substrate that many viewers share
    watching   what is read of a site: hosts, slivers, devices, books
    overview   what pages show, as values: rows, counts, what needs attention
    pictures   the pictures of the site, its hosts and slivers
    rendering  templates, and how values become text
    sessions   who is let in: the token, and sessions of browsers
    guard      tokens, limits and headers, in front of all routes
    events     what happens, as server-sent events
    app        the routes
    server     listens, and ends (see :mod:`fabric_direct.serving`)
"""
