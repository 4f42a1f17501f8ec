"""Handlers that the FABRIC AM actor (fabric_cf) loads, and a processor without a process pool.

In the actor's configuration, below ``resources: - resource:``::

    handler:
      module: fabric_direct.actor
      class: VMHandler     # or ServerHandler, VnicNetHandler, NetworkServiceHandler, SwitchHandler
      properties:
        config.properties.file: /etc/fabric-direct/site.yaml

Loading the handlers imports nothing of fabric_cf or of fabric-fim, and neither is a dependency:
slivers are read by attribute (docs/decisions/0029). The names are imported at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabric_direct.actor.handlers import (
        NetworkServiceHandler,
        ServerHandler,
        SwitchHandler,
        VMHandler,
        VnicNetHandler,
    )
    from fabric_direct.actor.processor import DirectHandlerProcessor

__all__ = [
    "DirectHandlerProcessor",
    "NetworkServiceHandler",
    "ServerHandler",
    "SwitchHandler",
    "VMHandler",
    "VnicNetHandler",
]

_HOME_OF = {
    "DirectHandlerProcessor": "processor",
    "NetworkServiceHandler": "handlers",
    "ServerHandler": "handlers",
    "SwitchHandler": "handlers",
    "VMHandler": "handlers",
    "VnicNetHandler": "handlers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
