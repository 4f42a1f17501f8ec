"""NICs configured and volumes mounted in real guests: a tiny one that has ``ip`` alone, and Debian."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import libvirt
import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import GuestAddress
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.configure.ifupdown import Ifupdown
from fabric_direct.drivers.guests.configure.network import ConfiguredLink, Manager
from fabric_direct.drivers.guests.configure.networkd import Networkd
from fabric_direct.drivers.guests.configure.networkmanager import NetworkManager
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.drivers.guests.qemu_agent import AgentGuest
from fabric_direct.drivers.guests.ssh import SshGuest
from fabric_direct.drivers.libvirt.domains.lookup import domain_uuid
from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute
from fabric_direct.drivers.libvirt.storage.pool import OwnPool
from fabric_direct.drivers.ssh.known_hosts import pin
from fabric_direct.handlers.vm.guest.nics import has_addresses, manager
from fabric_direct.model import NodeSliver, Observed, Outcome, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.functional.apart import BRIDGE, NUMBER, subnet
from tests.limits import PATIENT
from tests.outcomes import done, made

# No TAG: TestDebian runs by itself, perhaps beside tests that look for all of their TAG.
MINE = f"gnet-{NUMBER:02}"
DEBIAN = Path("/var/lib/fabric-direct/images/fabric-debian.qcow2")
ADDRESSES = ("10.223.9.5/24", "fd23:9::5/64")
RED = {"type": "vNIC", "id": "nic1", "network": "red"}
YARD = {
    "type": "vNIC",
    "id": "nic2",
    "network": "yard",
    "interface": {"ipv4": ADDRESSES[0], "ipv6": ADDRESSES[1], "auto_config": True},
}
BOTH = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
NOT_OTHERS = """[keyfile]
unmanaged-devices=*,except:interface-name:eth4*,except:interface-name:eth5*
"""
NIC = "<interface type='user'><mac address='{}'/><model type='virtio'/></interface>"


@pytest.fixture(scope="module")
def site(room: Path, guest_image: Path, connection: libvirt.virConnect) -> Iterator[Site]:
    """A site with a network that hands addresses out, and one that is a bridge of the host."""
    bridge = f"{BRIDGE}yard"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", room / "key"], check=True)
    # a run that was killed may have left it
    subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)
    subprocess.run(["ip", "link", "add", bridge, "up", "type", "bridge"], check=True)
    site = Site.model_validate(
        {
            "site": MINE,
            "state_dir": str(room / "guests"),
            "volume_pool": str(room / "guests-volumes"),
            "images": {
                "tiny": {"path": str(guest_image)},
                "debian": {"path": str(DEBIAN), "user": "debian"},
            },
            "networks": {
                "red": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{subnet(214)}.0/24",
                    "forward": "open",
                },
                "yard": {
                    "strategy": "flat",
                    "bridge": bridge,
                    "subnet": "10.223.9.0/24",
                    "subnet6": "fd23:9::/64",
                },
            },
            "limits": PATIENT | {"create": 1200, "modify": 1200, "poa": 900},
            "guest_access": {"ssh_key": str(room / "key")},
        }
    )
    yield site
    subprocess.run(["ip", "link", "del", bridge], check=True)


@pytest.fixture(scope="module")
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


def sliver(name: str, image: str, *components: dict[str, Any], **values: Any) -> NodeSliver:
    return NodeSliver.model_validate(
        {
            "id": f"{MINE}-{name}",
            "name": "node",
            "image": image,
            "capacities": {"core": 2, "ram": 1, "disk": 2},
            "components": components,
            **values,
        }
    )


def without(of: NodeSliver, *ids: str) -> NodeSliver:
    left = tuple(component for component in of.components if component.id not in ids)
    return of.model_copy(update={"components": left})


def observed(outcome: Outcome) -> Observed:
    found = done(outcome).observed
    assert found
    return found


def mounted(found: Observed, component: str) -> tuple[str, ...]:
    return next(volume.mounted for volume in found.volumes if volume.component == component)


class Inside:
    """The root of a sliver's guest, who sees what is there."""

    def __init__(self, site: Site, of: NodeSliver) -> None:
        address = GuestAddress(of.id, f"{of.id}-{of.name}", "root")
        self.root = GuestRoot(Guest(AgentGuest(site, "localhost"), address))

    def __call__(self, *argv: str) -> str:
        return self.root.do(*argv)

    def macs(self) -> set[str]:
        return {link.mac for link in self.root.guest.links()}


@pytest.mark.xdist_group("tiny")
class TestATinyGuest:
    """One that has neither something to keep addresses, nor to tell file systems apart."""

    wanted = sliver("tiny", "tiny", RED, YARD)

    @pytest.fixture(scope="class")
    @classmethod
    def modified(cls, processor: HandlerProcessor) -> Iterator[Outcome]:
        try:
            done(processor.create(sliver("tiny", "tiny", RED)).result())
            yield done(processor.modify(cls.wanted).result())
        finally:
            done(processor.delete(cls.wanted.ref()).result())

    def test_gets_the_addresses_of_a_nic_whose_network_hands_none_out(
        self, modified: Outcome
    ) -> None:
        assert modified.observed
        assert set(ADDRESSES) <= set(modified.observed.interfaces[1].guest_addresses)

    def test_is_said_not_to_keep_them(self, modified: Outcome) -> None:
        [warning] = [text for text in modified.warnings if "nic2" in text]
        assert "go with its next boot" in warning

    def test_that_lost_an_address_is_told_so_and_gets_it_again_by_the_same_sliver(
        self, site: Site, processor: HandlerProcessor, modified: Outcome
    ) -> None:
        assert modified.observed
        name = modified.observed.interfaces[1].guest_name
        Inside(site, self.wanted)("ip", "addr", "del", ADDRESSES[0], "dev", str(name))

        lost = observed(processor.probe(self.wanted).result()).differences
        again = done(processor.modify(self.wanted).result())

        assert f"vNIC nic2 does not have {ADDRESSES[0]} in the guest" in lost
        assert made(again) >= {"configure nic2"}
        assert ADDRESSES[0] in observed(again).interfaces[1].guest_addresses

    def test_that_cannot_mount_a_volume_fails_the_modification_which_is_taken_back(
        self, processor: HandlerProcessor, modified: Outcome
    ) -> None:
        data = {"type": "Storage", "id": "data", "size": 1, "mount": "/data"}

        outcome = processor.modify(sliver("tiny", "tiny", RED, YARD, data)).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert "it has no blkid" in outcome.error.message
        assert observed(processor.probe(self.wanted).result()).differences == ()


def link(number: int, mac: str, vlan: int | None = None) -> ConfiguredLink:
    addresses = (f"10.224.{number}.5/24", f"fd24:{number}::5/64")
    given = tuple(map(ip_interface, addresses))
    return ConfiguredLink(f"way{number}", f"eth{number}", mac, vlan, given)


WAYS: dict[str, tuple[Manager, ConfiguredLink]] = {
    "networkd": (Networkd(), link(2, "52:54:00:0f:d2:02", 102)),
    "ifupdown": (Ifupdown(), link(3, "52:54:00:0f:d2:03", 103)),
    "NetworkManager": (NetworkManager(), link(4, "52:54:00:0f:d2:04")),
    "NetworkManager, VLAN": (NetworkManager(), link(5, "52:54:00:0f:d2:05", 105)),
}


@dataclass(frozen=True)
class HandedOut:
    """What was seen of a guest while its boot script ran, and when it had ended."""

    created: Outcome
    console: str
    stage: Boot
    ended: Boot
    errors: tuple[str, ...]


@dataclass(frozen=True)
class Restarted:
    """What was seen of a guest after its reboot."""

    observed: Observed
    files: str


@pytest.mark.timeout(2400)
@pytest.mark.xdist_group("debian")
class TestDebian:
    """The real netplan, systemd-networkd, ifupdown and NetworkManager, each for a NIC of its own."""

    whole = sliver(
        "debian",
        "debian",
        RED,
        YARD,
        {"type": "Storage", "id": "data", "size": 1, "mount": "/data"},
        {"type": "Storage", "id": "stored", "volume": "stored", "mount": "/srv/stored"},
        {"type": "Storage", "id": "bare", "volume": "bare", "mount": "/srv/bare"},
        boot_script="mkfifo /run/end\nread it </run/end\nexit 3\n",
    )

    @pytest.fixture(scope="class")
    @classmethod
    def volumes(cls, site: Site, room: Path) -> dict[str, str]:
        """Two volumes that are there, one of them with a file system."""
        sources = {}
        pool = OwnPool.of(site, "localhost").pool()
        for name in ("stored", "bare"):
            raw, path = room / name, site.volume_pool / f"{name}"
            raw.write_bytes(b"")
            subprocess.run(["truncate", "-s", "16M", raw], check=True)
            if name == "stored":
                subprocess.run(["mkfs.ext4", "-q", raw], check=True)
            convert = ["qemu-img", "convert", "-O", "qcow2", raw, path]
            subprocess.run(convert, check=True)
            sources[name] = str(path)
        pool.refresh()
        return sources

    @pytest.fixture(scope="class")
    @classmethod
    def inside(cls, site: Site, processor: HandlerProcessor) -> Iterator[Inside]:
        if not DEBIAN.exists():
            pytest.skip(f"no {DEBIAN}: labs/openstack/lab image --cloud-init")
        yield Inside(site, cls.whole)
        done(processor.delete(cls.whole.ref()).result())

    @pytest.fixture(scope="class")
    @classmethod
    def handed_out(cls, processor: HandlerProcessor, inside: Inside) -> HandedOut:
        """The guest while its boot script runs, which then ends."""
        wanted = cls.whole.model_copy(update={"components": cls.whole.components[:1]})
        created = done(processor.create(wanted.model_copy(update={"wait_for": "login"})).result())
        there = "until [ -p /run/end ]; do sleep 1; done"
        inside("timeout", "600", "sh", "-c", there)
        console = LibvirtCompute(processor.site, "localhost").console(wanted.id, 2000)
        stage = inside.root.guest.boot()
        inside("sh", "-c", "echo >/run/end")
        ended = inside.root.guest.wait_boot([Boot.FINISHED], timeout=600)
        return HandedOut(created, console, stage, ended, inside.root.guest.boot_errors())

    @pytest.fixture(scope="class")
    @classmethod
    def modified(
        cls,
        processor: HandlerProcessor,
        inside: Inside,
        handed_out: HandedOut,
        volumes: dict[str, str],
    ) -> Outcome:
        return done(processor.modify(cls.whole).result())

    def test_is_handed_out_while_its_boot_script_runs(self, handed_out: HandedOut) -> None:
        warned = [text for text in handed_out.created.warnings if "boot goes on" in text]
        assert len(warned) == 1
        assert handed_out.stage is Boot.LAST_STAGE
        assert handed_out.ended is Boot.FINISHED

    def test_shows_its_host_keys_before_its_boot_script_has_ended(
        self, handed_out: HandedOut
    ) -> None:
        assert "-----BEGIN SSH HOST KEY KEYS-----" in handed_out.console

    def test_says_that_its_boot_script_has_failed(self, handed_out: HandedOut) -> None:
        assert "scripts" in " ".join(handed_out.errors)

    @pytest.fixture(scope="class")
    @classmethod
    def ways(
        cls, connection: libvirt.virConnect, modified: Outcome, inside: Inside
    ) -> dict[str, tuple[Manager, ConfiguredLink]]:
        """NICs that nobody knows of, each given its addresses in one of the ways.

        One comes after the other: the guest names them in the order that it sees them.
        NetworkManager is started for its own two alone: others' it would take, too.
        """
        inside.root.write("/etc/NetworkManager/conf.d/others.conf", NOT_OTHERS)
        inside("systemctl", "enable", "--now", "NetworkManager")
        domain = connection.lookupByUUIDString(str(domain_uuid(cls.whole.id)))
        for _, nic in WAYS.values():
            domain.attachDeviceFlags(NIC.format(nic.mac), BOTH)
            wait_until("the NIC", lambda nic=nic: nic.mac in inside.macs(), timeout=60)
        for way, nic in WAYS.values():
            way.keep(inside.root, nic)
        return WAYS

    def test_gets_the_addresses_of_a_nic_whose_network_hands_none_out(
        self, modified: Outcome
    ) -> None:
        assert modified.observed
        assert set(ADDRESSES) <= set(modified.observed.interfaces[1].guest_addresses)

    def test_gets_a_file_system_on_an_empty_volume_of_its_own_and_has_it_mounted(
        self, modified: Outcome, inside: Inside
    ) -> None:
        assert modified.observed
        assert mounted(modified.observed, "data") == ("/data",)

    def test_has_the_volume_that_has_a_file_system_mounted(
        self, modified: Outcome, inside: Inside
    ) -> None:
        assert modified.observed
        assert mounted(modified.observed, "stored") == ("/srv/stored",)
        assert " /srv/stored ext4 defaults,nofail 0 2" in inside("cat", "/etc/fstab")

    def test_does_not_format_a_volume_that_was_there(
        self, modified: Outcome, volumes: dict[str, str]
    ) -> None:
        [warning] = [text for text in modified.warnings if text.startswith("volume bare")]
        assert "bare has no file system, and is not ours to format" in warning
        checked = subprocess.run(
            ["qemu-img", "map", "-U", "--output=json", volumes["bare"]],
            check=True,
            capture_output=True,
        )
        assert b'"data": true' not in checked.stdout

    def test_that_is_busy_with_a_volume_keeps_it_and_the_modification_is_taken_back(
        self, processor: HandlerProcessor, modified: Outcome, inside: Inside
    ) -> None:
        script = "cd /data && exec sleep infinity >/dev/null 2>&1 &"
        inside("sh", "-c", script)

        outcome = processor.modify(without(self.whole, "data")).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert "umount /data failed" in outcome.error.message
        assert "busy" in outcome.error.message
        inside("pkill", "-x", "sleep")

    def test_has_a_root_that_is_reached_by_ssh_through_sudo(
        self, site: Site, modified: Outcome, inside: Inside
    ) -> None:
        seen = modified.observed
        assert seen
        assert seen.guest
        address = seen.interfaces[0].addresses[0].partition("/")[0]
        pin(site, address, str(seen.guest.ssh_host_key))
        by_ssh = GuestAddress(self.whole.id, "debian", "debian", (address,))
        driver = SshGuest(site, "localhost")
        inside.root.write("/home/debian/.ssh/authorized_keys", f"{driver.keys[0]}\n")
        root = GuestRoot(Guest(driver, by_ssh))

        root.write("/etc/by $(hostname)", "root\n", "0600")

        assert root.read("/etc/by $(hostname)") == "root\n"
        assert inside("stat", "-c", "%U %a", "/etc/by $(hostname)") == "root 600\n"

    @pytest.mark.parametrize("way", WAYS)
    def test_keeps_what_it_was_given(
        self, ways: dict[str, tuple[Manager, ConfiguredLink]], inside: Inside, way: str
    ) -> None:
        by, nic = ways[way]

        assert by.keeps(inside.root, nic)

    @pytest.fixture(scope="class")
    @classmethod
    def restarted(
        cls,
        processor: HandlerProcessor,
        ways: dict[str, tuple[Manager, ConfiguredLink]],
        inside: Inside,
    ) -> Restarted:
        """The guest after a reboot; what the other tests see of it is as before."""
        inside("touch", "/data/kept")
        done(processor.poa(cls.whole, "reboot").result())
        found = observed(processor.probe(cls.whole).result())
        return Restarted(found, files=inside("ls", "/data/kept"))

    def test_has_all_of_the_sliver_after_a_reboot(self, restarted: Restarted) -> None:
        found = restarted.observed
        assert found.differences == ("volume bare is not mounted at /srv/bare in the guest",)
        assert set(ADDRESSES) <= set(found.interfaces[1].guest_addresses)

    def test_has_the_files_on_its_volume_after_a_reboot(self, restarted: Restarted) -> None:
        assert mounted(restarted.observed, "data") == ("/data",)
        assert restarted.files == "/data/kept\n"

    @pytest.mark.parametrize("way", WAYS)
    def test_has_the_addresses_of_a_nic_after_a_reboot(
        self, restarted: Restarted, inside: Inside, way: str
    ) -> None:
        _, nic = WAYS[way]

        assert has_addresses(inside.root, nic)

    def test_keeps_nothing_of_what_is_taken_away(
        self, processor: HandlerProcessor, restarted: Restarted, inside: Inside
    ) -> None:
        done(processor.modify(without(self.whole, "nic2")).result())
        assert inside("find", "/etc", "-name", "*fabric-direct-nic2*") == ""

        done(processor.modify(without(self.whole, "nic2", "data")).result())
        table = inside("cat", "/etc/fstab")
        assert "/data" not in table
        assert "/srv/stored" in table
        done(processor.modify(self.whole).result())

    def test_is_configured_by_what_manages_the_nic(
        self, restarted: Restarted, inside: Inside
    ) -> None:
        assert manager(inside.root, "eth0").name == "netplan"
        assert manager(inside.root, "eth4").name == "networkmanager"
