"""The Jinja2 templates of the package, and what loads them.

::

    libvirt/   XML of domains, devices, networks, pools and volumes
    page/      HTML of the site's page

What a guest is configured with is written by libraries (YAML, JSON) and by
:mod:`fabric_direct.drivers.guests.configure`, without templates.
"""

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(folder: str, finalize: Callable[[Any], Any] | None = None) -> Environment:
    """Return an environment for the templates of a folder.

    Every value is escaped, and one that is not given is an error.

    :param finalize: changes each value before it is escaped.
    """
    return Environment(
        loader=PackageLoader(__name__, folder),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
