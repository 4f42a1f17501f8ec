"""The site's Open vSwitches: their databases, and their daemons."""

from functools import lru_cache
from pathlib import PurePath

from fabric_direct.drivers.contract.link_names import service_bridge
from fabric_direct.drivers.contract.switch_search import SwitchSearch
from fabric_direct.drivers.hosts.choice import switch_host
from fabric_direct.drivers.ovs.database import ROWS, Rows, SwitchDatabase
from fabric_direct.drivers.ovs.layout import STAMP
from fabric_direct.drivers.ovs.switch import OvsSwitch, asked_once
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.site.config import Site

DRIVER = "ovs"


class Switches:
    """The switches of a site that this driver serves."""

    def __init__(self, site: Site) -> None:
        """Connect to nothing yet."""
        self._site = site
        self.search = SwitchSearch(site, DRIVER, self.rows, self._places)

    def _places(self, _device: str, rows: Rows, sliver_id: str) -> tuple[str, ...]:
        stamp = stamp_of(rows, service_bridge(self._site, sliver_id))
        return stamp.devices() if stamp else ()

    def rows(self, device: str) -> Rows:
        """Return what the database of a switch has."""
        database = self.database(device)
        return asked_once((device, self._site.switches[device].ovsdb), database.rows, ROWS)

    def database(self, device: str) -> SwitchDatabase:
        """Return the database of a switch."""
        switch = self._site.switches[device]
        return SwitchDatabase(device, switch.ovsdb, switch.datapath, self._site.limits.call / 2)

    def daemon(self, device: str) -> OvsSwitch:
        """Return the daemon of a switch."""
        settings, limit = self._site.switches[device], self._site.limits.call / 2
        return OvsSwitch(device, switch_host(self._site, device), _rundir(settings.ovsdb), limit)


def stamp_of(rows: Rows, bridge: str) -> NetworkService | None:
    """Return what a service should be, by the stamp of its bridge."""
    ids = rows.bridges[bridge].ids if bridge in rows.bridges else {}
    return _stamped(ids.get(f"{STAMP}-type", ""), ids.get(STAMP, ""))


@lru_cache(1024)
def _stamped(kind: str, stamp: str) -> NetworkService | None:
    model = SERVICES.get(kind)
    return model.model_validate_json(stamp) if model else None


def _rundir(ovsdb: str) -> str:
    """Return the directory of a switch's sockets: that of its database's, if it has one."""
    kind, _, path = ovsdb.partition(":")
    return str(PurePath(path).parent) if kind == "unix" else "/run/openvswitch"
