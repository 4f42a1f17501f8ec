"""XML for libvirt, from the package's Jinja2 templates; every value is escaped."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

# Marks what we made: the namespace of our element in libvirt's <metadata>.
STAMP_NAMESPACE = "https://fabric-testbed.net/xmlns/fabric-direct/1"


def render(template: str, **values: Any) -> str:
    """Return the template filled in; a value that is not given is an error."""
    return _environment().get_template(template).render(stamp_namespace=STAMP_NAMESPACE, **values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fabric_direct.drivers.libvirt", "xml"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
