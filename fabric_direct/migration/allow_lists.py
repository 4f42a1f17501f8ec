"""The allow-lists of the workers, by FABRIC's resource model of the site."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fabric_direct.migration.arm import CARDS, ResourceModel
from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.inventory import InventoryHost
from fabric_direct.migration.values import FileLine
from fabric_direct.site.config import AllowedDevice


def translate(hosts: Iterable[InventoryHost], draft: SiteDraft) -> None:
    """Put the devices of each worker into the draft, or report that no file names them.

    A worker that the draft does not have, because how it is reached is not known, was reported.
    """
    model = draft.resources
    places = {host.name: host.place for host in hosts}
    named = model.workers_of(places) if model else {}
    for host, place in places.items():
        devices = model.workers[named[host]] if model and host in named else ()
        if model and devices and host in draft.site.get("hosts", {}):
            source = FileLine(model.file)
            draft.put(("hosts", host, "devices"), list(map(_entry, devices)), source)
            _tell_of_cards(host, devices, source, draft)
        elif not devices:
            why = "the list of devices that may be passed through is in none of these files"
            if model:
                why = "the resource model has no worker that is this host, and no other"
            if host in named:
                why = f"the resource model has no device of {named[host]}"
            listed = f"fabric-direct devices {host} --all lists what is there"
            remedy = f"{listed}; name what may be given away"
            draft.to_do(place, f"hosts.{host}.devices", why, remedy)


def report(model: ResourceModel, hosts: Iterable[str], draft: SiteDraft) -> None:
    """Report what of the resource model is in no allow-list: workers without a host, and components.

    :param hosts: the workers of the inventory.
    """
    place = FileLine(model.file)
    if not model.workers and not model.unread:
        why = "has no worker (a NetworkNode of type Server)"
        remedy = "give that of the site's own AM, if it has workers"
        draft.skip(place, "resource model", why, remedy)
    there = draft.site.get("hosts", {})
    taken = {worker for host, worker in model.workers_of(hosts).items() if host in there}
    for name in sorted(model.workers.keys() - taken):
        why = "how this worker is reached is in none of these files, or several hosts have its name"
        remedy = "name it in site.yaml: hosts, as here or without its domain, with its devices"
        draft.skip(place, f"worker {name}", why, remedy)
    for part in model.unread:
        remedy = "correct the resource model, or name its functions in site.yaml: hosts: devices"
        draft.skip(place, part.what, part.why, remedy)


def _entry(device: AllowedDevice) -> dict[str, Any]:
    return device.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


def _tell_of_cards(
    host: str, devices: Iterable[AllowedDevice], place: FileLine, draft: SiteDraft
) -> None:
    """Report the cards of which the model has one function: the others are not known here."""
    cards = [(d.bdf.slot_address, d.bdf) for d in devices if d.bdf and d.type in CARDS]
    functions = Counter(slot for slot, _ in cards)
    alone = [str(address) for slot, address in cards if functions[slot] == 1]
    if alone:
        why = (
            "a card may have more functions than the one that the resource model has of"
            f" {', '.join(alone)}: those in its IOMMU group must be free, too, and an FPGA is given away"
            " with those that are allowed"
        )
        listed = f"if fabric-direct devices {host} --all lists others in these slots"
        remedy = f"{listed}, add them as the same type"
        draft.to_do(place, f"hosts.{host}.devices", why, remedy)
