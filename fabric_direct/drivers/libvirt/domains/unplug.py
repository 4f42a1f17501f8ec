"""Detaches a device from a domain, and confirms that the guest has released it.

libvirt answers a live detach at once, while the guest still holds the device. So the events are
registered first; then the guest is asked, the domain is read again, and the guest is asked again.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from math import ceil
from xml.etree import ElementTree

import libvirt

from fabric_direct.calls import forks
from fabric_direct.calls.deadline import Deadline, wait_until
from fabric_direct.calls.waiting import waiting_for
from fabric_direct.drivers.libvirt.connection.connections import translated
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.domains.claims import passed_through
from fabric_direct.drivers.libvirt.xml import attribute
from fabric_direct.errors import NotVerified, TimedOut
from fabric_direct.model import PciAddress

# Seconds until the guest is asked again; Nova asks eight times, 20 s apart.
ASK_AGAIN = 20.0
# Seconds between two looks at the domain: no event tells that it stopped, or that none will come.
LOOK_AGAIN = 0.5
# Seconds of rest after a guest has refused, so that it is not asked in a tight loop.
REST = 2.0
# Seconds until libvirt sees that a QEMU has ended, after it could not write to it.
ENDING = 5.0

_UNPLUG_PENDING = "already in the process of unplug"


class _Device:
    """A device of a domain with a user alias."""

    def __init__(self, alias: str) -> None:
        self.alias = self.name = alias
        """Its alias while the domain runs, by which events name it; and what messages call it."""

    def is_in(self, text: str) -> bool:
        """Return whether a domain's XML has it."""
        return lookup.has_alias(text, self.alias)

    def ask(self, domain: libvirt.virDomain, scope: int) -> None:
        """Ask for it."""
        domain.detachDeviceAlias(self.alias, scope)


class _Strange(_Device):
    """A PCI function that others plugged into a domain: its address is the same in any XML."""

    def __init__(self, domain: libvirt.virDomain, address: PciAddress) -> None:
        live = lookup.definitions(domain).get(libvirt.VIR_DOMAIN_AFFECT_LIVE, "")
        self._address = address
        element = self._element(live)
        super().__init__((attribute(element, "alias", "name") if element is not None else "") or "")
        self.name = f"{address} of domain {domain.name()}"

    def is_in(self, text: str) -> bool:
        """Return whether a domain's XML has it."""
        return self._element(text) is not None

    def ask(self, domain: libvirt.virDomain, scope: int) -> None:
        """Ask for it by its XML: the definition has no alias of it."""
        element = self._element(lookup.definitions(domain).get(scope, ""))
        if element is not None:
            domain.detachDeviceFlags(ElementTree.tostring(element, encoding="unicode"), scope)

    def _element(self, text: str) -> ElementTree.Element | None:
        return passed_through(text, self._address)


def detach(
    connection: libvirt.virConnect,
    domain: libvirt.virDomain,
    alias: str | PciAddress,
    *,
    timeout: float,
    where: str,
) -> None:
    """Detach a device from the domain; on return it is gone, live and as defined.

    The definition is changed only once the guest has released the device; until then it is the
    domain's. A device or domain that is not there is a success.

    :param alias: the user alias (``ua-…``) of the device; the address on the host of a PCI function that
        has none.
    :param timeout: seconds that the guest may take to release it; it is asked at least once.
    :param where: the URI of the connection.
    :raises TimedOut: if the guest still holds the device; it is still the domain's then.
    :raises NotVerified: if the device is there although libvirt reported that it was detached.
    :raises Unreachable: if libvirt does not answer.
    """
    with translated(f"detach {alias}", where), lookup.absent_domain_is_fine():
        device = _Device(alias) if isinstance(alias, str) else _Strange(domain, alias)
        if domain.isActive():
            _detach_live(connection, domain, device, timeout, where)
        _ask(domain, device, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
        _verify(domain, device, where)


def _detach_live(
    connection: libvirt.virConnect,
    domain: libvirt.virDomain,
    device: _Device,
    timeout: float,
    where: str,
) -> None:
    deadline, at_most = Deadline.within(timeout), ceil(timeout / ASK_AGAIN)
    listening = _listening(connection, domain, device.alias)
    with listening as answer, waiting_for(f"the guest to release {device.name}") as still:
        for asked in count(1):
            _ask(domain, device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
            still(f"removal asked {asked} of {max(asked, at_most)}")
            if _released(domain, device, answer, deadline.remaining(ASK_AGAIN)):
                return
            if deadline.remaining() <= 0:
                raise _still_held(device.name, where, timeout, answer.refused)


class _Answer:
    """The guest's answer: libvirt's event thread writes it, the detaching thread reads it."""

    def __init__(self, alias: str) -> None:
        self.alias, self.refused = alias, False
        self._heard = threading.Event()

    def tell(self, *, refused: bool) -> None:
        self.refused = self.refused or refused
        self._heard.set()

    def wait(self, seconds: float) -> None:
        if self._heard.wait(seconds):
            self._heard.clear()


class _Listener:
    """The events of one domain, for all who wait for them: libvirt takes a callback only once."""

    def __init__(self, connection: libvirt.virConnect, domain: libvirt.virDomain) -> None:
        self.answers: list[_Answer] = []
        events = {
            libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED: partial(self._tell, refused=False),
            libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED: partial(self._tell, refused=True),
        }
        with ExitStack() as stack:
            for event, callback in events.items():
                number = connection.domainEventRegisterAny(domain, event, callback, None)
                stack.callback(connection.domainEventDeregisterAny, number)
            self.close = stack.pop_all().close

    def _tell(
        self, _connection: object, _domain: object, alias: str, _: object, *, refused: bool
    ) -> None:
        for answer in tuple(self.answers):
            if answer.alias == alias:
                answer.tell(refused=refused)


_listeners: dict[tuple[int, str], _Listener] = {}
_lock = forks.Lock()
forks.in_child(_listeners.clear)


@contextmanager
def _listening(
    connection: libvirt.virConnect, domain: libvirt.virDomain, alias: str
) -> Iterator[_Answer]:
    """Register for the guest's answers within the block."""
    answer, key = _Answer(alias), (id(connection), domain.UUIDString())
    with _lock:
        listener = _listeners.get(key) or _Listener(connection, domain)
        _listeners[key] = listener
        listener.answers.append(answer)
    try:
        yield answer
    finally:
        with _lock:
            listener.answers.remove(answer)
            if not listener.answers:
                del _listeners[key]
                listener.close()


def _ask(domain: libvirt.virDomain, device: _Device, scope: int) -> None:
    """Ask for the device; it is no error if it is not there, or if the guest was asked already."""
    try:
        device.ask(domain, scope)
    except libvirt.libvirtError as error:
        pending = _UNPLUG_PENDING in (error.get_error_message() or "")
        ending = error.get_error_code() == libvirt.VIR_ERR_SYSTEM_ERROR
        if not pending and _stays(domain, device, scope, ENDING if ending else 0):
            raise


def _stays(domain: libvirt.virDomain, device: _Device, scope: int, seconds: float) -> bool:
    """Return whether a domain has a device, and still has it after a while."""
    try:
        wait_until("its end", lambda: not _is_in(domain, device, scope), timeout=seconds)
    except TimedOut:
        return True
    return False


def _is_in(domain: libvirt.virDomain, device: _Device, scope: int) -> bool:
    return device.is_in(lookup.definitions(domain).get(scope, ""))


def _released(domain: libvirt.virDomain, device: _Device, answer: _Answer, seconds: float) -> bool:
    """Return whether the guest released the device within ``seconds``, or soon after it refused."""
    until = Deadline.within(seconds)
    while _is_in(domain, device, libvirt.VIR_DOMAIN_AFFECT_LIVE):
        if until.remaining() <= 0:
            return False
        answer.wait(until.remaining(LOOK_AGAIN))
        if answer.refused:
            until = Deadline.within(until.remaining(REST))
    return True


def _verify(domain: libvirt.virDomain, device: _Device, where: str) -> None:
    if any(map(device.is_in, lookup.definitions(domain).values())):
        raise NotVerified(
            f"{device.name} is still in domain {domain.name()}",
            where=where,
            why="libvirt reported that it was detached; the domain may have been started meanwhile",
            remedy="detach it again",
        )


def _still_held(alias: str, where: str, timeout: float, refused: bool) -> TimedOut:
    asked = "the guest refused it" if refused else "the guest did not answer"
    return TimedOut(
        f"the guest still holds {alias}, so the device is still the sliver's",
        where=where,
        why=f"{asked} within {timeout:g} s",
        remedy="free the device in the guest, or stop the node, and detach it again",
    )
