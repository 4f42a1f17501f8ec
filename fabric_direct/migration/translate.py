"""Translate the files of an AM, one after the other."""

from dataclasses import dataclass
from pathlib import Path

from fabric_direct.migration import (
    actor,
    al2s,
    allow_lists,
    arm,
    cloud,
    nso,
    render,
    settings,
    switches,
    workers,
)
from fabric_direct.migration.draft import Notice, SiteDraft, settle
from fabric_direct.migration.inventory import AnsibleInventory
from fabric_direct.migration.sources import read_inventory
from fabric_direct.migration.values import Fields, read_document


@dataclass(frozen=True)
class Sources:
    """The files of an AM; each is optional."""

    vm: Path | None = None
    """``vm_handler_config.yml``"""
    vnic: Path | None = None
    """``vnic_net_handler_config.yml``"""
    net: Path | None = None
    """``net_handler_config.yml``"""
    al2s: Path | None = None
    """``al2s_handler_config.yml``"""
    switch: Path | None = None
    """``switch_handler_config.yml``"""
    inventory: Path | None = None
    """The Ansible inventory: an INI or YAML file, or a directory."""
    actor_config: Path | None = None
    """The actor's own ``config.yml``."""
    arm: Path | None = None
    """FABRIC's resource model of the site (ARM): GraphML."""


@dataclass(frozen=True)
class Migration:
    """The result of a translation."""

    site: str
    """The text of ``site.yaml``, valid for :func:`fabric_direct.site.config.load_site`."""
    clouds: str
    """The text of ``clouds.yaml``, without a password; empty if no cloud was found."""
    findings: tuple[Notice, ...]


def migrate(sources: Sources, secure: Path) -> Migration:
    """Translate an AM's files.

    What cannot be translated is a finding, with file and line. The result contains no secrets.

    :param secure: the ``secure.yaml`` in which the operator will write the cloud's password.
    :raises Refused: if a file cannot be read or is invalid; the message names file and line.
    """
    draft = SiteDraft(secure, resources=arm.read(sources.arm) if sources.arm else None)
    config = read_document(sources.actor_config) if sources.actor_config else None
    inventory = (
        read_inventory(sources.inventory, draft) if sources.inventory else AnsibleInventory()
    )
    draft.name = _name(config, inventory)
    for path in (sources.vm, sources.vnic, sources.net, sources.al2s, sources.switch):
        if path:
            on_workers = path in (sources.vm, sources.vnic)
            settings.translate(read_document(path), draft, on_workers=on_workers)
    _servers_of_vnics(draft)
    if sources.inventory:
        for part in (cloud, al2s, nso, switches, workers):
            part.translate(inventory, draft)
    else:
        remedy = "give it: --inventory, for cloud, workers, NSO and AL2S"
        draft.skip(None, "inventory", "was not given", remedy)
    if draft.resources:
        allow_lists.report(draft.resources, inventory.of_role("worker"), draft)
    if config:
        actor.translate(config, draft)
    site = settle(draft)
    clouds = render.clouds(draft.name, draft.auth) if "openstack" in draft.site else ""
    return Migration(site, clouds, draft.told())


def _servers_of_vnics(draft: SiteDraft) -> None:
    """Report vNICs without the servers that they are plugged into."""
    drivers = draft.site.get("drivers", {})
    if "vNIC" in drivers and "VM" not in drivers:
        why = "vNICs are plugged into servers, of which the given files say nothing"
        remedy = f"give the VMs' file, too: --vm; or set VM: {drivers['vNIC']}, and guest: none"
        draft.to_do(draft.origins["drivers", "vNIC"], "drivers.VM", why, remedy)


def _name(config: Fields | None, inventory: AnsibleInventory) -> str:
    """Return a name for the site: the actor's, or the common prefix of its heads and workers."""
    hosts = (*inventory.of_role("worker"), *inventory.of_role("head"))
    found = actor.name(config) if config else None
    return found or render.common_name(hosts) or "fabric"
