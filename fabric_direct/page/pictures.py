"""The pictures on the pages of the site, of a host and of a sliver.

Each function reads the site and returns the text of an SVG. It is called in a thread, for all viewers
together, and may raise any error. The SVG is served as an image of its own, in which no script runs and
to which nothing is loaded.
"""

from fabric_direct.processor import HandlerProcessor
from fabric_direct.topology import host_topology, site_topology, sliver_topology, svg


def site_picture(processor: HandlerProcessor) -> str:
    """Draw the hosts of a site, with their slivers and the networks between them."""
    return svg(site_topology(processor))


def host_picture(processor: HandlerProcessor, host: str) -> str:
    """Draw a host with its PCI devices and their owners."""
    return svg(host_topology(processor, host))


def sliver_picture(processor: HandlerProcessor, sliver: str) -> str:
    """Draw a sliver with what it is connected to."""
    return svg(sliver_topology(processor, [sliver]))
