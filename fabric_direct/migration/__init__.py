"""An AM's configuration of fabric_am and its Ansible inventory, as a site of this library.

::

    findings    what could not be translated, what is left to do, what is not needed
    values      values with file and line; what hides a value: a vault, Jinja2
    ranges      w[1:3] -> w1 w2 w3
    inventory   hosts, groups, and which variables count for a host
    ini, tree   the two forms of an inventory's file
    sources     an inventory's path -> its files, with group_vars and host_vars
    draft       the site that is being put together: what is put where, and from which line
    settings    vm_handler_config.yml, vnic_net_handler_config.yml
    playbooks   which driver does what a playbook did
    roles       which hosts are heads and workers
    workers     hosts
    cloud       openstack, clouds.yaml
    actor       what is to be changed in the AM actor's configuration
    render      site.yaml and clouds.yaml as text

Files are only read here. No template is evaluated, no inventory's program is run, and no secret is part
of a draft, a finding or a text.
"""

from dataclasses import dataclass
from pathlib import Path

from fabric_direct.migration import actor, cloud, render, roles, settings, workers
from fabric_direct.migration.draft import Draft, settle
from fabric_direct.migration.findings import Finding, Kind, Place
from fabric_direct.migration.inventory import Inventory
from fabric_direct.migration.sources import read_inventory
from fabric_direct.migration.values import Fields, read_document

__all__ = ["Finding", "Kind", "Migration", "Place", "Sources", "migrate"]


@dataclass(frozen=True)
class Sources:
    """The files of an AM; any of them may be missing."""

    vm: Path | None = None
    """``vm_handler_config.yml``"""
    vnic: Path | None = None
    """``vnic_net_handler_config.yml``"""
    inventory: Path | None = None
    """The Ansible inventory: an INI or YAML file, or a directory."""
    actor_config: Path | None = None
    """The actor's own ``config.yml``."""


@dataclass(frozen=True)
class Migration:
    """What an AM's files come to."""

    site: str
    """The text of ``site.yaml``, which :func:`fabric_direct.config.load_site` takes."""
    clouds: str
    """The text of ``clouds.yaml``, without a password; empty if no cloud was found."""
    findings: tuple[Finding, ...]


def migrate(sources: Sources, secure: Path) -> Migration:
    """Translate an AM's files.

    What cannot be translated is a finding, with file and line. No secret is in what is returned.

    :param secure: the ``secure.yaml`` that the operator will put the cloud's password into.
    :raises Refused: if a file cannot be read or is broken; the message names file and line.
    """
    draft = Draft(secure)
    config = read_document(sources.actor_config) if sources.actor_config else None
    inventory = read_inventory(sources.inventory, draft) if sources.inventory else Inventory()
    draft.name = _name(config, inventory)
    for path in (sources.vm, sources.vnic):
        if path:
            settings.translate(read_document(path), draft)
    if sources.inventory:
        cloud.translate(inventory, sources.inventory, draft)
        workers.translate(inventory, sources.inventory, draft)
    else:
        draft.skip(
            None, "inventory", "was not given", "give it: --inventory, for cloud and workers"
        )
    if config:
        actor.translate(config, draft)
    site = settle(draft)
    clouds = render.clouds(draft.name, draft.auth) if "openstack" in draft.site else ""
    return Migration(site, clouds, draft.told())


def _name(config: Fields | None, inventory: Inventory) -> str:
    """Return a name for the site: that of the actor, or what its heads and workers begin with."""
    hosts = (*roles.workers(inventory), *roles.heads(inventory))
    found = actor.name(config) if config else None
    return found or render.common_name(hosts) or "fabric"
