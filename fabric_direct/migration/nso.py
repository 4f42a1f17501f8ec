"""Translate the inventory's NSO, by which NetHandler makes services, to services.nso of site.yaml."""

from pathlib import Path

from fabric_direct.migration import cloud
from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.inventory import AnsibleInventory, InventoryHost
from fabric_direct.migration.values import FileLine, as_bool, as_list, as_text

PASSWORD_FILE = Path("/etc/fabric-direct/nso-password")
"""Where the operator writes the password."""

_PATH = ("services", "nso")
_VARIABLES = {"url", "username", "password", "validate_certs"}
_YOURSELF = "write services.nso in site.yaml yourself: url, user, password_file, border_routers"
_JSONRPC = "/jsonrpc"


def translate(inventory: AnsibleInventory, draft: SiteDraft) -> None:
    """Put the NSO into the draft if a resource type needs it; report it as missing then."""
    found = inventory.of_role("nso")
    if not draft.needs("nso"):
        draft.unused(found, inventory)
    elif found:
        _controller(inventory.resolved(found[0]), draft)
        draft.skip_others(found, inventory, "NSO", "the NSO")
    elif "nso" in draft.site.get("drivers", {}).values():
        draft.skip(inventory.place, "NSO", "has no group whose name ends with 'nso'", _YOURSELF)


def _controller(host: InventoryHost, draft: SiteDraft) -> None:
    url = draft.read("url", host, _restconf, _YOURSELF)
    user = draft.read("username", host, as_text, _YOURSELF)
    if url and user:
        settings = {"url": url, "user": user, "password_file": str(PASSWORD_FILE)}
        draft.put(_PATH, settings, host.place)
        routers = draft.border_routers
        draft.take((*_PATH, "border_routers"), "network.border_routers", routers, as_list)
        _differences(host.place_of("url"), draft)
    why = "is in none of the new files; services.nso.password_file is read for each request"
    line = cloud.typed_in("print(getpass.getpass())", PASSWORD_FILE)
    cloud.password("password of NSO", "password", host, why, line, draft)
    if not _verified(host):
        place, why = host.place_of("validate_certs"), "NSO's certificate is verified, always"
        cloud.certificate(place, "validate_certs", why, "nso", draft)
    cloud.others(host, _VARIABLES, "NSO's API is asked, not its machine", draft)


def _restconf(content: object) -> str:
    url = cloud.address(content).rstrip("/")
    if not url.endswith(_JSONRPC):
        raise ValueError(f"does not end with {_JSONRPC}, so the place of RESTCONF is unknown")
    return f"{url.removesuffix(_JSONRPC)}/restconf"


def _differences(place: FileLine, draft: SiteDraft) -> None:
    why = "RESTCONF is spoken there instead of JSON-RPC"
    draft.to_do(place, "services.nso.url", why, "enable restconf in NSO's ncs.conf if it is not")
    why = "NSO gets the numbers of FIM's burst_size as from fabric_am; no file says what they count"
    remedy = (
        "ask who wrote the site's services; if megabytes, set MB here and in actor.burst_unit: "
        "the numbers stay"
    )
    draft.to_do(place, "services.nso.burst_unit", why, remedy)


def _verified(host: InventoryHost) -> bool:
    value = host.variables.get("validate_certs")
    try:
        return value is not None and as_bool(value.content)
    except ValueError:
        return False
