"""Pictures of topologies as SVG."""

from fabric_direct.topology.drawing.host import draw_host
from fabric_direct.topology.drawing.site import draw_site
from fabric_direct.topology.drawing.slivers import draw_slivers
from fabric_direct.topology.drawing.style import style_sheet
from fabric_direct.topology.values import HostTopology, SliverTopology, Topology

__all__ = ["style_sheet", "svg"]


def svg(drawing: Topology) -> str:
    """Return a picture as an SVG document, to be saved or put into a page of HTML as it is.

    It has no ids, its classes begin with ``fd-``, and it is as wide as what it is put into. Its style is
    in it: several pictures on a page have the same. All texts are escaped.
    """
    if isinstance(drawing, HostTopology):
        return draw_host(drawing)
    if isinstance(drawing, SliverTopology):
        return draw_slivers(drawing)
    return draw_site(drawing)
