"""NSO's device manager, for the stand-in: its copies of the devices' configurations, and the devices.

As in Cisco's guide, a commit sends the difference to NSO's copy, and fails if a device is not as it was
when NSO last spoke to it (out of sync). What somebody changed on a device is therefore found by
``deep-check-sync`` alone, and ``re-deploy`` restores it only after ``sync-from``.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]
Config = dict[str, str]
"""The lines of a device, by what each is for."""
Change = tuple[frozenset[str], Config]
"""What goes, and what comes or changes."""


class DeviceRefuses(Exception):
    """A device did not take a configuration."""

    def __init__(self, device: str, words: str) -> None:
        super().__init__(f"RPC error towards {device}: {words}")
        self.device, self.words = device, words


class OutOfSync(Exception):
    """A device is not as it was when NSO last spoke to it."""

    def __init__(self, device: str) -> None:
        super().__init__(f"Network Element Driver: device {device}: out of sync")


class Network(Protocol):
    """The devices."""

    def configuration(self, module: str, instance: Json) -> dict[str, Config]:
        """Return what a service is on each of its devices; this is the service's code."""

    def read(self, device: str) -> Config:
        """Return what a device has."""

    def write(self, device: str, config: Config) -> None:
        """Make it what a device has, in one transaction, or raise DeviceRefuses."""


class Memory:
    """Devices that take everything."""

    def __init__(self) -> None:
        self._devices: dict[str, Config] = {}

    def configuration(self, module: str, instance: Json) -> dict[str, Config]:
        """Return the instance itself, for each device that it names."""
        line = {f"{module} {instance['name']}": json.dumps(instance, sort_keys=True)}
        return dict.fromkeys(_named(instance), line)

    def read(self, device: str) -> Config:
        """Return what a device has."""
        return dict(self._devices.get(device, {}))

    def write(self, device: str, config: Config) -> None:
        """Make it what a device has."""
        self._devices[device] = dict(config)


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (str(each) for key, each in value.items() if key == "device")
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from _named(each)


@dataclass
class DeviceManager:
    """What NSO knows of the devices, and does to them."""

    network: Network = field(default_factory=Memory)
    refusing: dict[str, str] = field(default_factory=dict)
    """What a device says when it is to be changed."""
    unreadable: dict[str, str] = field(default_factory=dict)
    copies: dict[str, Config] = field(default_factory=dict)
    seen: dict[str, Config] = field(default_factory=dict)
    """What each device had when NSO last spoke to it. Real ones say so by a transaction id."""

    def changes(self, before: Json, after: Json) -> dict[str, Change]:
        """Return what a change of services is on each device, by NSO's copies."""
        had, wants = self.configured(before), self.configured(after)
        changes = {d: self._change(d, had.get(d, {}), wants.get(d, {})) for d in had | wants}
        return {device: change for device, change in changes.items() if any(change)}

    def configured(self, services: Json) -> dict[str, Config]:
        """Return what services are on their devices."""
        found: dict[str, Config] = {}
        for key, instances in services.items():
            for instance in instances:
                parts = self.network.configuration(key.partition(":")[0], instance)
                for device, config in parts.items():
                    found.setdefault(device, {}).update(config)
        return found

    def _change(self, device: str, had: Config, wants: Config) -> Change:
        copy = self._copy(device)
        comes = {k: v for k, v in wants.items() if v not in (had.get(k), copy.get(k))}
        return frozenset(key for key in had.keys() - wants.keys() if key in copy), comes

    def _copy(self, device: str) -> Config:
        if device not in self.copies:
            self.sync_from(device)
        return self.copies[device]

    def send(self, changes: dict[str, Change]) -> None:
        """Change the devices, or none of them.

        :raises OutOfSync: if one is not as NSO left it.
        :raises DeviceRefuses: if one does not take it; the others are taken back.
        """
        former = {device: self.network.read(device) for device in changes}
        for device, config in former.items():
            if config != self.seen[device]:
                raise OutOfSync(device)
        try:
            for device, change in changes.items():
                self._write(device, _changed(former[device], change))
        except DeviceRefuses:
            for device, config in former.items():
                self.network.write(device, config)
            raise
        self.seen |= {device: self.network.read(device) for device in changes}

    def _write(self, device: str, config: Config) -> None:
        if device in self.refusing:
            raise DeviceRefuses(device, self.refusing[device])
        self.network.write(device, config)

    def record(self, changes: dict[str, Change]) -> None:
        """Make the changes in NSO's copies."""
        for device, change in changes.items():
            self.copies[device] = _changed(self.copies[device], change)

    def sync_from(self, device: str) -> Json:
        """Read a device into NSO's copy."""
        if device in self.unreadable:
            return {"result": False, "info": self.unreadable[device]}
        self.copies[device] = self.seen[device] = self.network.read(device)
        return {"result": True}

    def has(self, services: Json, *, deep: bool) -> bool:
        """Return whether NSO's copies, or the devices, have what services are there."""
        has = self.network.read if deep else self._copy
        wants = self.configured(services)
        return all(config.items() <= has(device).items() for device, config in wants.items())


def _changed(config: Config, change: Change) -> Config:
    goes, comes = change
    return {key: line for key, line in config.items() if key not in goes} | comes
