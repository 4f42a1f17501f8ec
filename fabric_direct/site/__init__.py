"""A site: ``site.yaml`` as values.

::

    config.py            the site, its hosts, limits and credentials
    lines.py             where in its file a field is that was found wrong later
    services.py          switches, controllers and pools of network services
    addresses.py         which addresses of its networks are reserved, and which may be given out
    drivers.py           which types and drivers it may name
    installed.py         handlers and drivers of all packages, by their entry points
    extras.py            packages that its drivers need beside this one
"""
