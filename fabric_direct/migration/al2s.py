"""Translate the inventory's AL2S, by which Al2sHandler makes services, to services.al2s of site.yaml."""

from pathlib import Path

from fabric_direct.migration import cloud
from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.inventory import AnsibleInventory, InventoryHost
from fabric_direct.migration.values import as_text

KEY_FILE = Path("/etc/fabric-direct/al2s-key")
"""Where the operator writes the access key."""

_VARIABLES = {"base_url", "api_access_key", "ownerPath"}
_YOURSELF = "write services.al2s in site.yaml yourself: url, key_file, owner"


def hosts(inventory: AnsibleInventory) -> list[str]:
    """Return the hosts that have variables of AL2S; fabric_am's is this machine."""
    return [host for host in inventory.hosts if _VARIABLES & inventory.variables(host).keys()]


def translate(inventory: AnsibleInventory, draft: SiteDraft) -> None:
    """Put AL2S into the draft if a resource type needs it; report it as missing then."""
    found = hosts(inventory)
    if not draft.needs("al2s"):
        draft.unused(found, inventory)
    elif found:
        _controller(inventory.resolved(found[0]), draft)
        draft.skip_others(found, inventory, "AL2S", "AL2S")
    elif "al2s" in draft.site.get("drivers", {}).values():
        draft.skip(inventory.place, "AL2S", "has no host with base_url", _YOURSELF)


def _controller(host: InventoryHost, draft: SiteDraft) -> None:
    url = draft.read("base_url", host, cloud.address, _YOURSELF)
    owner = draft.read("ownerPath", host, as_text, _YOURSELF)
    if url and owner:
        settings = {"url": url.rstrip("/"), "key_file": str(KEY_FILE), "owner": owner}
        draft.put(("services", "al2s"), settings, host.place)
        why = "AL2S' certificate is verified, always; fabric_am did not"
        cloud.certificate(host.place, "services.al2s.ca_file", why, "al2s", draft)
    why = "is in none of the new files; services.al2s.key_file is read for each session"
    line = cloud.typed_in("print(getpass.getpass())", KEY_FILE)
    cloud.password("access key of AL2S", "api_access_key", host, why, line, draft)
    if "api_access_key" in host.variables:
        why = "fabric_am writes the tokens that it gets for the access key into its log"
        remedy = (
            "ask Internet2 for another access key once nothing uses this one, and delete old logs"
        )
        draft.to_do(host.place_of("api_access_key"), "api_access_key", why, remedy)
    cloud.others(host, _VARIABLES, "AL2S' API is asked from here", draft)
