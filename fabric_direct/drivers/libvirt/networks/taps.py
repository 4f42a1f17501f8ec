"""Taps: vNICs that are ports of a switch of the site, instead of being on a network.

A tap has the name of its port, and stays while the domain does not run: Open vSwitch in user space would
keep one that is gone, and not see one that is made anew. It carries a stamp in its alias. A row in
``pools.sqlite`` of ``state_dir``, written first, says which NIC it is, with which MAC and addresses.
"""

from dataclasses import dataclass, replace
from typing import Any

from fabric_direct.calls.read_cache import read
from fabric_direct.drivers.contract import HostDriver, Port, Stamped
from fabric_direct.drivers.contract.site_checks import known_tap
from fabric_direct.drivers.libvirt.networks.address_pools import derived_mac
from fabric_direct.errors import Conflict, InvalidSliver
from fabric_direct.model import VNicInterface
from fabric_direct.site.config import Site
from fabric_direct.state.service_claims import ServiceClaims
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import Transaction


@dataclass(frozen=True, slots=True)
class Tap:
    """A NIC that is a port of a switch; a row of the database."""

    sliver: str
    component: str
    host: str
    switch: str
    interface: VNicInterface
    """As asked for, with port and MAC."""

    def __str__(self) -> str:
        return f"{self.sliver}/{self.component} at {self.interface.port} of {self.switch}"

    @property
    def name(self) -> str:
        """Its link's name, which is that of the switch's port."""
        return str(self.interface.port)

    def port(self) -> Port:
        """Return it as what compute drivers plug NICs into."""
        asked = self.interface
        return Port(
            sliver=self.sliver,
            component=self.component,
            network=self.switch,
            source=self.name,
            mac=str(asked.mac),
            ipv4=asked.ipv4,
            ipv6=asked.ipv6,
            dhcp=False,
            tap=True,
            mtu=asked.mtu,
            routes=tuple((str(route.to), str(route.via)) for route in asked.routes),
            port_security=False,
        )


class Taps:
    """The taps of a host, on the switches of the site."""

    def __init__(self, site: Site, host: str, kernel: HostDriver) -> None:
        """Create nothing yet.

        :param kernel: runs functions on the host.
        """
        self._site, self._host, self._kernel = site, host, kernel
        self._claims = ServiceClaims(site)
        self._limit = limit = site.limits.call
        self._database = store_of(site).database("pools", what="the taps", timeout=limit)

    def check(self, switch: str, interface: VNicInterface, sliver_id: str | None) -> None:
        """Raise InvalidSliver or Conflict unless the NIC can be a port of the switch."""
        there = self._site.switches[switch].host or self._host
        if there != self._host:
            raise InvalidSliver(f"switch {switch} is on host {there}", field="network")
        others = [tap for tap in self._all() if sliver_id not in {None, tap.sliver}]
        connected = self._claims.ports(switch)
        known_tap(self._site, switch, interface, _ports(others, switch), connected)

    def make(self, sliver_id: str, component: str, switch: str, interface: VNicInterface) -> Port:
        """Hold a port of a switch for a NIC, and make its tap; the same NIC gets the same again.

        :raises Conflict: if the port or the MAC is another NIC's, or the NIC is another port.
        :raises PoolExhausted: if no port is free.
        :raises DriverError: if a link of the name is there that is not ours.
        """
        self.check(switch, interface, sliver_id)
        tap = self._hold(sliver_id, component, switch, interface)
        mtu = tap.interface.mtu
        self._call("taps.make", name=tap.name, alias=self._alias(tap), mtu=mtu)
        return tap.port()

    def _hold(self, sliver_id: str, component: str, switch: str, interface: VNicInterface) -> Tap:
        connected = self._claims.ports(switch)
        with self._database.changing() as db:
            there = _select(db)
            own = [tap for tap in there if (tap.sliver, tap.component) == (sliver_id, component)]
            if own:
                return _same(own[0], switch, interface)
            taken = _ports(there, switch)
            port = known_tap(self._site, switch, interface, taken, connected)
            mac = interface.mac or derived_mac(sliver_id, component)
            _refuse_mac(there, switch, mac)
            asked = interface.model_copy(update={"port": port, "mac": mac})
            row = (sliver_id, component, self._host, switch, asked.model_dump_json(), port, mac)
            db.execute("INSERT INTO tap VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            return Tap(sliver_id, component, self._host, switch, asked)

    def find(self, sliver_id: str, component: str) -> Port | None:
        """Return the port of a NIC if it is there, or None."""
        taps = (
            tap for tap in self._rows() if (tap.sliver, tap.component) == (sliver_id, component)
        )
        found = next(taps, None)
        port = self._as_it_is(found, self._there().get(found.name)) if found else None
        return port if port and port.enabled else None

    def ports(self, sliver_id: str | None = None) -> tuple[Port, ...]:
        """Return the ports of a sliver, or of all, on this host.

        One that lacks its tap, or whose tap is set down, is off; one whose tap no domain has is down.
        """
        held = tuple(tap for tap in self._rows() if sliver_id in {None, tap.sliver})
        there = self._there() if held else {}
        return tuple(self._as_it_is(tap, there.get(tap.name)) for tap in held)

    def _as_it_is(self, tap: Tap, found: tuple[str, bool, bool] | None) -> Port:
        alias, taken, up = found or ("", False, False)
        return replace(tap.port(), enabled=up and alias == self._alias(tap), down=not taken)

    def remove(self, sliver_id: str, component: str) -> None:
        """Remove the tap of a NIC, and release its port.

        :raises DriverError: if a domain has it.
        """
        for tap in self._rows():
            if (tap.sliver, tap.component) == (sliver_id, component):
                self._call("taps.remove", name=tap.name, alias=self._alias(tap))
                self._release(tap)

    def _release(self, tap: Tap) -> None:
        with self._database.changing() as db:
            where = (tap.sliver, tap.component)
            db.execute("DELETE FROM tap WHERE sliver = ? AND component = ?", where)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the ports that are held for a sliver."""
        return tuple(f"port {tap}" for tap in self._rows() if tap.sliver == sliver_id)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the ports that are held on this host."""
        return tuple(Stamped(tap.sliver, "port", str(tap)) for tap in self._rows())

    def _rows(self) -> tuple[Tap, ...]:
        return tuple(tap for tap in self._all() if tap.host == self._host)

    @read
    def _there(self) -> dict[str, tuple[str, bool, bool]]:
        """Return of each tap of the host its alias, and whether it is used, and set up."""
        return {name: tuple(each) for name, each in self._call("taps.taps").items()}

    def _alias(self, tap: Tap) -> str:
        return f"fabric-direct {self._site.site}/{tap.sliver}/{tap.component}"

    def _call(self, function: str, **arguments: object) -> Any:
        return self._kernel.call(function, timeout=self._limit, **arguments)

    @read
    def _all(self) -> tuple[Tap, ...]:
        if not self._database.exists():
            return ()
        with self._database.reading() as db:
            return _select(db)


def _select(db: Transaction) -> tuple[Tap, ...]:
    rows = db.execute(
        "SELECT sliver, component, host, switch, interface FROM tap ORDER BY sliver, component"
    )
    return tuple(
        Tap(sliver, component, host, switch, VNicInterface.model_validate_json(interface))
        for sliver, component, host, switch, interface in rows
    )


def _ports(taps: list[Tap] | tuple[Tap, ...], switch: str) -> set[str]:
    return {str(tap.interface.port) for tap in taps if tap.switch == switch}


def _same(tap: Tap, switch: str, interface: VNicInterface) -> Tap:
    asked = {"switch": switch, "port": interface.port, "mac": interface.mac}
    has = {"switch": tap.switch, "port": tap.interface.port, "mac": tap.interface.mac}
    for field, value in asked.items():
        if value not in {None, has[field]}:
            raise Conflict(f"{tap} holds another port, whose {field} is not {value}")
    return tap


def _refuse_mac(there: tuple[Tap, ...], switch: str, mac: str) -> None:
    holder = next((t for t in there if t.switch == switch and t.interface.mac == mac), None)
    if holder:
        raise Conflict(f"{mac} is held for {holder}", field="interface.mac")
