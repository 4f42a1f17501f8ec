"""Translate the inventory's NSO, by which NetHandler makes services, to services.nso of site.yaml."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabric_direct.migration import cloud
from fabric_direct.migration.draft import Draft
from fabric_direct.migration.inventory import Inventory, Variables
from fabric_direct.migration.values import Place, Value, as_bool, as_list, as_text

PASSWORD_FILE = Path("/etc/fabric-direct/nso-password")
"""Where the operator writes the password."""

_PATH = ("services", "nso")
_VARIABLES = {"url", "username", "password", "validate_certs"}
_YOURSELF = "write services.nso in site.yaml yourself: url, user, password_file, border_routers"
_JSONRPC = "/jsonrpc"


def translate(inventory: Inventory, path: Path, draft: Draft) -> None:
    """Put the NSO into the draft; report it as missing if a resource type needs it."""
    found = inventory.controllers()
    if found:
        first, *others = found
        _controller(inventory.places[first], inventory.variables(first), draft)
        for name in others:
            why = f"the NSO was read from {first}"
            draft.skip(inventory.places[name], f"NSO {name}", why, "check whether they differ")
    elif "nso" in draft.site.get("drivers", {}).values():
        draft.skip(Place(str(path)), "NSO", "has no group whose name ends with 'nso'", _YOURSELF)


def _controller(place: Place, variables: Variables, draft: Draft) -> None:
    url = _read("url", variables, place, draft, _restconf)
    user = _read("username", variables, place, draft, as_text)
    if url and user:
        settings = {"url": url, "user": user, "password_file": str(PASSWORD_FILE)}
        draft.put(_PATH, settings, place)
        routers = draft.border_routers
        draft.take((*_PATH, "border_routers"), "network.border_routers", routers, as_list)
        _differences(variables["url"].place, draft)
    _password(variables.get("password"), place, draft)
    _certificates(variables.get("validate_certs"), place, draft)
    cloud.others(variables, _VARIABLES, "NSO's API is asked, not its machine", draft)


def _read(
    name: str, variables: Variables, place: Place, draft: Draft, convert: Callable[[Any], str]
) -> str:
    """Return a variable's value; empty, and reported, if it cannot be known."""
    value = variables.get(name)
    if value is None:
        draft.skip(place, name, "is not set for this NSO", _YOURSELF)
    elif draft.usable(name, value, _YOURSELF):
        try:
            return convert(value.content)
        except ValueError as error:
            draft.skip(value.place, name, str(error), _YOURSELF)
    return ""


def _restconf(content: object) -> str:
    url = cloud.address(as_text(content)).rstrip("/")
    if not url.endswith(_JSONRPC):
        raise ValueError(f"does not end with {_JSONRPC}, so the place of RESTCONF is unknown")
    return f"{url.removesuffix(_JSONRPC)}/restconf"


def _differences(place: Place, draft: Draft) -> None:
    why = "RESTCONF is spoken there instead of JSON-RPC"
    draft.to_do(place, "services.nso.url", why, "enable restconf in NSO's ncs.conf if it is not")
    why = "NSO gets the numbers of FIM's burst_size as from fabric_am; no file says what they count"
    remedy = (
        "ask who wrote the site's services; if megabytes, set MB here and in actor.burst_unit: "
        "the numbers stay"
    )
    draft.to_do(place, "services.nso.burst_unit", why, remedy)


def _password(value: Value | None, place: Place, draft: Draft) -> None:
    why = "is in none of the new files; services.nso.password_file is read for each request"
    line = cloud.typed_in("print(getpass.getpass())", PASSWORD_FILE)
    cloud.password("password of NSO", value, place, (why, line), draft)


def _certificates(value: Value | None, place: Place, draft: Draft) -> None:
    try:
        verified = value is not None and as_bool(value.content)
    except ValueError:
        verified = False
    if not verified:
        why = "NSO's certificate is verified, always"
        remedy = (
            "name who signed it in site.yaml: services.nso.ca_file, if the system does not know"
        )
        draft.to_do(value.place if value else place, "validate_certs", why, remedy)
