"""Cards that a sliver has whole, also if it names them by one of their functions: FPGAs.

FIM's label of an FPGA has one address, and fabric_am passes all functions of the card through.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from fabric_direct.errors import InvalidSliver
from fabric_direct.model import AUTO, Fpga, NodeSliver, PciAddress, SliverRef
from fabric_direct.site.config import Host, Site

S = TypeVar("S", bound=SliverRef)


def with_whole_cards(site: Site, sliver: S) -> S:
    """Return the sliver, with all functions of its FPGAs that ``hosts.<host>.devices`` allows.

    They are in the order of their addresses, whatever the sliver's own. An FPGA that names none is
    returned as it is; so is one of a sliver that leaves its host open, if the hosts that have such a
    card allow different functions of it.

    :raises InvalidSliver: if two components are the same card then.
    """
    if not isinstance(sliver, NodeSliver):
        return sliver
    named = {sliver.host} if sliver.host not in {AUTO, None} else site.hosts.keys()
    hosts = [host for name, host in site.hosts.items() if name in named]
    parts = (
        part.model_copy(update={"bdf": _whole(hosts, part.bdf)}) if isinstance(part, Fpga) else part
        for part in sliver.components
    )
    made = sliver.model_copy(update={"components": tuple(parts)})
    twice = [a for a, n in Counter(a for d in made.devices() for a in d.bdf).items() if n > 1]
    if twice:
        why = "an FPGA goes to one component, with all of its functions"
        raise InvalidSliver(f"{twice[0]} is of two components", field="components", why=why)
    return made


def _whole(hosts: Iterable[Host], functions: tuple[PciAddress, ...]) -> tuple[PciAddress, ...]:
    cards = {address.slot_address for address in functions}
    allowed = {frozenset(_allowed(host, cards)) for host in hosts} - {frozenset()}
    others = allowed.pop() if len(allowed) == 1 else frozenset()
    return tuple(sorted({*functions, *others}))


def _allowed(host: Host, cards: set[PciAddress]) -> Iterable[PciAddress]:
    """Return the functions of these cards that a host's allow-list has as an FPGA's."""
    named = (entry.bdf for entry in host.devices if entry.type == "FPGA" and entry.bdf)
    return (address for address in named if address.slot_address in cards)
