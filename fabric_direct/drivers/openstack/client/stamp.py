"""Stamps on resources of the cloud, which mark them as ours and name what each belongs to.

==================  =========================================================================
resource            stamp
==================  =========================================================================
server              tags of the site and of the sliver, to search by; metadata with the sliver
port, its policy,   description ``fabric-direct <site>/<sliver>``, name ``<sliver>-<component>``
floating IP
network and what    description ``fabric-direct <site>/<sliver>`` (a sliver of its own) or
belongs to it       ``fabric-direct <site> network <name>`` (a network of site.yaml)
volume              metadata ``fabric-direct:site``, ``:sliver``, ``:component``
adopted: server     the same, and metadata ``fabric-direct:adoption``: the adoption's progress
adopted: port,      the same description; a tag of the component instead of the name, which others
floating IP         may look for; a tag while other ports of an adopted sliver may lack a stamp
==================  =========================================================================

The request that creates a resource contains its whole stamp, so that no resource of ours ever lacks one.
(Neutron's tags need a separate request; its descriptions do not, and can be searched for.)
A resource that others made is stamped by several requests, the last of which makes it ours.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from pydantic import ValidationError

from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Stamp

SITE, SLIVER, COMPONENT = "fabric-direct:site", "fabric-direct:sliver", "fabric-direct:component"
_PART, _PARTS = "fabric-direct:stamp-{}", "fabric-direct:stamp-parts"
ADOPTION = "fabric-direct:adoption"
"""Metadata of a server that others made: a value of :class:`Adopted`."""
COMPONENT_TAG = "fabric-direct-component="
UNFINISHED_TAG = "fabric-direct-adoption=unfinished"
# What Nova takes: 255 characters a value, and 128 items by default (quota metadata_items).
_VALUE, _ITEMS = 255, 100
_ROOT = "https://fabric-testbed.net/fabric-direct"


def site_tag(site: str) -> str:
    """Return the tag of all of a site's servers; Nova takes 60 characters, so it is a digest."""
    return f"fabric-direct-{uuid5(NAMESPACE_URL, f'{_ROOT}/{site}')}"


def sliver_tag(site: str, sliver_id: str) -> str:
    """Return the tag of a sliver's server."""
    return f"fabric-direct-{uuid5(NAMESPACE_URL, f'{_ROOT}/{site}/{sliver_id}')}"


def description(site: str, sliver_id: str) -> str:
    """Return the description of what is made for a sliver in Neutron."""
    return f"fabric-direct {site}/{sliver_id}"


def described_sliver(site: str, found: Any) -> str | None:
    """Return the sliver in the description of a thing of Neutron; None if it is none of ours."""
    prefix, text = description(site, ""), str(found.description or "")
    return text.removeprefix(prefix) if text.startswith(prefix) else None


def network_description(site: str, name: str) -> str:
    """Return the description of a network of site.yaml, its subnets and router."""
    return f"fabric-direct {site} network {name}"


def component_of(port: Any, sliver_id: str) -> str:
    """Return the component that a port of the sliver is for."""
    return tagged_component(port) or str(port.name).removeprefix(f"{sliver_id}-")


def tagged_component(thing: Any) -> str:
    """Return the component that a tag of an adopted port or floating IP names; empty if none does."""
    tags = (tag for tag in thing.tags or () if tag.startswith(COMPONENT_TAG))
    return next((str(tag).removeprefix(COMPONENT_TAG) for tag in tags), "")


def is_unfinished(server: Any) -> bool:
    """Return whether the adoption of a server is unfinished."""
    return (server.metadata or {}).get(ADOPTION) == "unfinished"


def age(found: Any) -> tuple[str, str]:
    """Sort by age: of several things with one stamp, the oldest counts."""
    return str(found.created_at), found.id


def volume_metadata(site: str, sliver_id: str, component: str) -> dict[str, str]:
    """Return the metadata of a volume."""
    return {SITE: site, SLIVER: sliver_id, COMPONENT: component}


def server_metadata(site: str, stamp: Stamp) -> dict[str, str]:
    """Return the metadata of a server: whose it is, and the whole stamp in parts.

    A shorter stamp that replaces a longer one leaves parts of it behind; they are not read.

    :raises InvalidSliver: if the sliver is too large for Nova's metadata.
    """
    text = base64.b85encode(
        zlib.compress(stamp.model_dump_json(exclude_none=True).encode())
    ).decode()
    parts = [text[at : at + _VALUE] for at in range(0, len(text), _VALUE)]
    if len(parts) > _ITEMS:
        raise InvalidSliver(
            "the sliver is too large for the metadata of a server",
            why=f"it takes {len(parts)} values of {_VALUE} characters, {_ITEMS} are possible",
            field="ssh_keys",
        )
    named = {_PART.format(number): part for number, part in enumerate(parts)}
    return {SITE: site, SLIVER: stamp.sliver.id, _PARTS: str(len(parts)), **named}


def read_stamp(server: Any) -> Stamp | None:
    """Return the stamp in a server's metadata, or None if they hold none that can be read."""
    metadata: Mapping[str, str] = server.metadata or {}
    try:
        count = int(metadata[_PARTS])
        text = "".join(metadata[_PART.format(number)] for number in range(count))
        return Stamp.model_validate_json(zlib.decompress(base64.b85decode(text)))
    except (LookupError, ValueError, binascii.Error, zlib.error, ValidationError):
        return None
