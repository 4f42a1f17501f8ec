"""Report what to change in the AM actor's own configuration, which is only read."""

import re

from fabric_direct.migration import audit
from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.values import Fields

# fabric_am's classes, and those of `fabric_direct.actor` in their place.
_SERVED = {
    ("fabric_am.handlers.vm_handler", "VMHandler"): "VMHandler",
    ("fabric_am.handlers.vnic_net_handler", "VnicNetHandler"): "VnicNetHandler",
    ("fabric_am.handlers.net_handler", "NetHandler"): "NetworkServiceHandler",
    ("fabric_am.handlers.switch_handler", "SwitchHandler"): "SwitchHandler",
    ("fabric_am.handlers.al2s_handler", "Al2sHandler"): "NetworkServiceHandler",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FILE = "config.properties.file"


def name(document: Fields) -> str:
    """Return the actor's name; empty if a site cannot have that name."""
    text = document.get("actor").text("name")
    return text if _NAME.fullmatch(text) else ""


def translate(document: Fields, draft: SiteDraft) -> None:
    """Report the lines of the configuration to change, and the handlers that stay.

    :raises Refused: if the resources are not a list.
    """
    for item in document.get("actor", "resources").items():
        _resource(item.get("resource"), draft)


def _resource(resource: Fields, draft: SiteDraft) -> None:
    label = resource.text("type") or "a resource without a type"
    handler = resource.get("handler")
    named = handler.text("class")
    served = _SERVED.get((handler.text("module"), named))
    if served:
        _change(label, handler, served, draft)
    else:
        why = f"{named or 'its handler'} has no counterpart here"
        draft.skip(handler.place(), f"handler of {label}", why, "leave it as it is")


def _change(label: str, handler: Fields, served: str, draft: SiteDraft) -> None:
    why = "this line makes the actor use fabric_direct"
    draft.to_do(handler.place("module"), f"module of {label}", why, "module: fabric_direct.actor")
    if served != handler.text("class"):
        why = "the class has another name here"
        draft.to_do(handler.place("class"), f"class of {label}", why, f"class: {served}")
    why = "the handler reads the site instead of its old file"
    remedy = f"{_FILE}: /etc/fabric-direct/site.yaml"
    place = handler.get("properties").place(_FILE)
    draft.to_do(place, f"{_FILE} of {label}", why, remedy)
    if served == "VMHandler":
        audit.tell(place, draft)
