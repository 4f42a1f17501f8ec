"""P4 switches in memory: each is given away whole, to one sliver at a time."""

from fabric_direct.drivers.contract import Service, Stamped
from fabric_direct.drivers.fake.substrate import Substrate
from fabric_direct.errors import Conflict, InvalidSliver
from fabric_direct.model.p4_switches import Switch
from fabric_direct.site.config import Site


class FakeSwitches:
    """The switches of a site in memory: nothing is installed, and nobody can log in."""

    def __init__(self, site: Site, substrate: Substrate) -> None:
        """Keep on a substrate who has which."""
        self._known, self._substrate = site.p4_switches, substrate

    @property
    def _held(self) -> dict[str, Switch]:
        return self._substrate.switches

    def check(self, sliver: Switch) -> None:
        """Raise an error unless the site has the switch, and it is free or the sliver's."""
        if sliver.switch not in self._known:
            why = f"known: {', '.join(self._known) or 'none'}"
            raise InvalidSliver(f"no switch {sliver.switch!r}", field="switch", why=why)
        held = self._held.get(sliver.id)
        if held and held.switch != sliver.switch:
            raise InvalidSliver("cannot be changed", field="switch", why=f"it is {held.switch}")
        for other in self._held.values():
            if other.switch == sliver.switch and other.id != sliver.id:
                why = f"sliver {other.id} has it"
                raise Conflict(f"switch {sliver.switch} is taken", why=why)

    def find(self, sliver_id: str) -> Service | None:
        """Return the switch that the sliver has."""
        held = self._held.get(sliver_id)
        return _service(held) if held else None

    def differences(self, sliver: Switch) -> tuple[str, ...]:
        """Name what differs."""
        held = self._held.get(sliver.id)
        if held is None:
            return ("it is not installed",)
        differs = [] if held.switch == sliver.switch else [f"it is on {held.switch}"]
        differs += [] if held.ssh_keys == sliver.ssh_keys else ["its keys are others"]
        return tuple(differs)

    def apply(self, sliver: Switch) -> Service:
        """Give the switch to the sliver, with its keys."""
        self.check(sliver)
        self._held[sliver.id] = sliver
        return _service(sliver)

    def remove(self, sliver_id: str) -> None:
        """Take the switch away."""
        self._held.pop(sliver_id, None)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the switch, if it is the sliver's."""
        held = self._held.get(sliver_id)
        return (f"switch {held.switch}",) if held else ()

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the switches that slivers have."""
        held = self._held.values()
        return tuple(Stamped(sliver.id, "Switch", sliver.switch) for sliver in held)


def _service(held: Switch) -> Service:
    return Service(held.id, f"switch {held.switch}", held.switch, type="Switch")
