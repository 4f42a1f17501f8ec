"""Provision the slivers of a FABRIC site's Aggregate Manager by talking straight to the APIs.

The names below are the public interface. They are imported at first use, so that ``import
fabric_direct`` costs next to nothing in a process that only may need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabric_direct.adoption import Adoption, Adoptions, ServiceAdoption
    from fabric_direct.config import Site, load_site
    from fabric_direct.errors import FabricDirectError, Refused
    from fabric_direct.model import NodeSliver, Observed, Outcome, PciAddress, SliverRef, Status
    from fabric_direct.processor import HandlerProcessor

__all__ = [
    "Adoption",
    "Adoptions",
    "FabricDirectError",
    "HandlerProcessor",
    "NodeSliver",
    "Observed",
    "Outcome",
    "PciAddress",
    "Refused",
    "ServiceAdoption",
    "Site",
    "SliverRef",
    "Status",
    "load_site",
]

_HOMES = {
    "adoption": ("Adoption", "Adoptions", "ServiceAdoption"),
    "config": ("Site", "load_site"),
    "errors": ("FabricDirectError", "Refused"),
    "model": ("NodeSliver", "Observed", "Outcome", "PciAddress", "SliverRef", "Status"),
    "processor": ("HandlerProcessor",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
