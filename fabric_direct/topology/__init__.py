"""Pictures of what is there: of a host, of slivers, of a site.

::

    values     what is shown, as plain values
    networks   networks and network services, and which NICs meet them
    host, slivers, site   the values, read by a processor
    drawing/   the values as SVG: style and text, canvas; host with its devices,
               slivers and site with their wires

All comes from what a processor tells of devices, servers, services and slivers.
"""

from fabric_direct.topology.drawing import style_sheet, svg
from fabric_direct.topology.host import host_topology
from fabric_direct.topology.site import site_topology
from fabric_direct.topology.slivers import sliver_topology
from fabric_direct.topology.values import (
    AnyTopology,
    HostTopology,
    SiteTopology,
    SliverTopology,
    Topology,
)

__all__ = [
    "AnyTopology",
    "HostTopology",
    "SiteTopology",
    "SliverTopology",
    "Topology",
    "host_topology",
    "site_topology",
    "sliver_topology",
    "style_sheet",
    "svg",
]
