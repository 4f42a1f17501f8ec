"""Handlers: for each resource type, what create, modify, delete, probe and each action consist of.

::

    registry.py          resource type -> handler and drivers, by entry points
    site_drivers.py      the drivers of a site's hosts
    driver_settings.py   settings of drivers, by the models of the drivers themselves
    handler.py           the base of all handlers
    action_data.py       data of operational actions
    vm/ ports/ services/ bare_metal/   the handlers, with their steps
"""
