"""netplan: a file of our own beside those of the image, for systemd-networkd."""

from collections.abc import Iterator
from typing import Any, ClassVar

import yaml

from fabric_direct.drivers.guests.configure.files import FileManager
from fabric_direct.drivers.guests.configure.network import HEAD, ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.drivers.guests.scripts import NETPLAN
from fabric_direct.errors import DriverError

# Characters of all files together: a guest may write anything, and reading takes its time.
_LONGEST = 262_144
_DEEPEST = 32
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class Netplan(FileManager):
    """A :class:`~fabric_direct.drivers.guests.configure.network.Manager` by a YAML file."""

    name: ClassVar[str] = "netplan"
    path: ClassVar[str] = "/etc/netplan/90-fabric-direct-{}.yaml"
    mode: ClassVar[str] = "0600"

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:
        """Return whether the file has these addresses; the guest chooses the name of the definition."""
        kind, wanted = "vlans" if link.vlan else "ethernets", texts(link.addresses)
        text = root.read(self.path.format(link.label))
        ours = (definition for _, definition in _definitions(text, kind))
        return any(_mapping(definition).get("addresses") == wanted for definition in ours)

    def content(self, root: GuestRoot, link: ConfiguredLink) -> str:
        """Return the interface's definition, or what is added to the one that the guest has of it."""
        name = _name_of(link, root.script(NETPLAN))
        nic = {} if name else _new(link)
        name = name or link.parent
        network: dict[str, Any] = {"version": 2, "ethernets": {name: nic}}
        if link.vlan:
            vlan = {"id": link.vlan, "link": name, "addresses": texts(link.addresses)}
            network["vlans"] = {link.name: vlan}
        else:
            nic["addresses"] = texts(link.addresses)
        return HEAD + yaml.safe_dump({"network": network}, sort_keys=False)

    def apply(self, root: GuestRoot, link: ConfiguredLink) -> None:  # noqa: ARG002 - all files at once
        """Apply all files."""
        root.do("netplan", "apply")

    def forget(self, root: GuestRoot, label: str) -> None:
        """Remove the file, and apply the others."""
        if self.has(root, label):
            super().forget(root, label)
            root.do("netplan", "apply")


def _new(link: ConfiguredLink) -> dict[str, Any]:
    """Define a NIC that nothing else defines; a boot does not wait for it."""
    match = {"match": {"macaddress": link.mac}} if link.mac else {}
    return {"renderer": "networkd", **match, "dhcp4": link.dhcp, "optional": True}


def _name_of(link: ConfiguredLink, files: str) -> str | None:
    """Return by what name the guest defines the NIC: files are merged by name, not by NIC."""
    for name, definition in _definitions(files, "ethernets"):
        settings = _mapping(definition)
        match = _mapping(settings.get("match"))
        mac = str(match.get("macaddress", "")).lower()
        named = (settings.get("set-name"), match.get("name"), None if match else name)
        if link.parent in named or (link.mac and mac == link.mac):
            return str(name)
    return None


def _definitions(text: str, kind: str) -> Iterator[tuple[Any, Any]]:
    for document in _loaded(text):
        yield from _mapping(_mapping(document.get("network")).get(kind)).items()


def _loaded(text: str) -> list[dict[Any, Any]]:
    try:
        _refuse_too_much(text)
        # All values as texts. The usual loader merges `<<` by copying: a few lines become gigabytes.
        return [_mapping(document) for document in yaml.load_all(text, Loader=_LOADER)]
    except (yaml.YAMLError, UnicodeError) as error:
        raise DriverError(
            "netplan's configuration in the guest is no YAML", why=str(error)
        ) from error


def _refuse_too_much(text: str) -> None:
    """Raise YAMLError if it is too long, or nested so deeply that a loader's recursion would fail."""
    if len(text) > _LONGEST:
        raise yaml.YAMLError(f"it has more than {_LONGEST} characters")
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {_DEEPEST} levels deep")


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
