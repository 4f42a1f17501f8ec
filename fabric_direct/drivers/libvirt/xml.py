"""XML for libvirt: written from the package's Jinja2 templates, which escape every value, and read."""

from functools import cache
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment

from fabric_direct.templates import environment

# Marks what we made: the namespace of our element in libvirt's <metadata>.
STAMP_NAMESPACE = "https://fabric-testbed.net/xmlns/fabric-direct/1"


def render(template: str, **values: Any) -> str:
    """Return the template filled in; a value that is not given is an error."""
    return _environment().get_template(template).render(stamp_namespace=STAMP_NAMESPACE, **values)


def attribute(element: ElementTree.Element, path: str, name: str) -> str | None:
    """Return an attribute of the first element at the path; None if there is none."""
    found = element.find(path)
    return None if found is None else found.get(name)


@cache
def _environment() -> Environment:
    return environment("libvirt")
