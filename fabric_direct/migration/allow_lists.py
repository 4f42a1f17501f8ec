"""The allow-lists of the workers, by FABRIC's resource model of the site."""

from collections import Counter
from dataclasses import replace

from fabric_direct.migration.arm import CARDS, ResourceModel
from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.inventory import InventoryHost
from fabric_direct.migration.values import FileLine
from fabric_direct.model import PciAddress
from fabric_direct.site.config import AllowedDevice


def put(host: InventoryHost, draft: SiteDraft) -> None:
    """Put the devices of a worker into the draft, or report that no file names them.

    One that the draft does not have, because how it is reached is not known, was reported.
    """
    model = draft.resources
    worker = model.worker(host.name) if model else None
    if model and worker:
        if host.name in draft.site.get("hosts", {}):
            place, devices = FileLine(model.file), model.workers[worker]
            draft.put(("hosts", host.name, "devices"), list(map(_entry, devices)), place)
            _tell_of_cards(host.name, devices, place, draft)
        return
    remedy = (
        f"fabric-direct devices {host.name} --all lists what is there; name what may be given away"
    )
    why = "the list of devices that may be passed through is in none of these files"
    draft.to_do(host.place, f"hosts.{host.name}.devices", why, remedy)


def report(model: ResourceModel, draft: SiteDraft) -> None:
    """Report what of the resource model is in no allow-list: workers without a host, and components."""
    place = FileLine(model.file)
    if not model.workers:
        why = "has no worker (a NetworkNode of type Server)"
        draft.skip(
            place, "resource model", why, "give that of the site's own AM, if it has workers"
        )
    taken = {model.worker(host) for host in draft.site.get("hosts", {})}
    for name in sorted(model.workers.keys() - taken):
        why = "how this worker is reached is in none of these files"
        draft.skip(place, f"worker {name}", why, "add it to site.yaml: hosts, and migrate again")
    for component in model.unread:
        remedy = "correct the resource model, or name its functions in site.yaml: hosts: devices"
        draft.skip(place, f"component {component.component}", component.why, remedy)


def _entry(device: AllowedDevice) -> dict[str, str]:
    return device.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


def _tell_of_cards(
    host: str, devices: list[AllowedDevice], place: FileLine, draft: SiteDraft
) -> None:
    """Report the cards of which the model has one function: the others are not known here."""
    cards = [(_slot(d.bdf), d.bdf) for d in devices if d.bdf and d.type in CARDS]
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


def _slot(address: PciAddress) -> PciAddress:
    return replace(address, function=0)
