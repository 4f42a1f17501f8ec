"""The login to bare-metal nodes: a scripted Ironic, and a real dropbear as the system of its node."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_string
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import HostKey, NodeAccess
from fabric_direct.drivers.guests import ssh as guest_ssh
from fabric_direct.drivers.ironic.driver import IronicBareMetal
from fabric_direct.drivers.ssh.host_keys import new_host_key
from fabric_direct.drivers.ssh.known_hosts import pin
from fabric_direct.model import SliverRef, Status
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import GuestSettings, Site
from tests.functional.ssh_server import USER, Server, new_key, start_dropbear
from tests.outcomes import done
from tests.ports import free_port
from tests.unit.ironic import Ironic, node, refusal
from tests.unit.openstack_api import OpenStackApi

REF = SliverRef(id="metal", type="BareMetal")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN"
IMAGES = {
    "probe": {"kernel": "http://192.0.2.1/kernel", "ramdisk": "http://192.0.2.1/i", "user": USER}
}


class System:
    """What runs on a node once it is deployed: an SSH server with what its config drive says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.drives = folder, list[dict[str, Any]]()
        self.impostor = False
        """Whether it has another host key than it was given."""
        home = folder / "home"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        self.server = Server(free_port(), "", home, folder / "identity")
        new_key(self.server.identity)
        self.process: subprocess.Popen[bytes] | None = None

    def boot(self, drive: dict[str, Any]) -> None:
        """Start it as a system that has read its config drive, in place of another one."""
        self.end()
        self.drives.append(drive)
        config = cloud_config(drive)
        key = config["ssh_keys"]["ed25519_private"]
        (self.folder / "private").write_text(new_host_key().private if self.impostor else key)
        convert = ["dropbearconvert", "openssh", "dropbear"]
        subprocess.run([*convert, self.folder / "private", self.folder / "host"], check=True)
        self.server.keys.write_text("\n".join(config["ssh_authorized_keys"]) + "\n")
        self.process = start_dropbear(self.server, self.folder / "host")

    def end(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None


def cloud_config(drive: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the user data that cloud-init itself reads."""
    parts = message_from_string(drive["user_data"]).walk()
    (part,) = (each for each in parts if each.get_content_type() == "text/cloud-config")
    return cast(dict[str, Any], yaml.safe_load(cast(bytes, part.get_payload(decode=True))))


@pytest.fixture
def system(tmp_path: Path, mocker: MockerFixture) -> Iterator[System]:
    system = System(tmp_path / "system")
    mocker.patch.object(guest_ssh, "PORT", system.server.port)
    yield system
    system.end()


@pytest.fixture
def ironic(api: OpenStackApi, system: System) -> Ironic:
    made = Ironic(api, node("n1"), slivers=("metal",))
    made.ports = [{"uuid": "p1", "address": "52:54:00:00:00:01", "node_uuid": "id-n1"}]
    made.boot = system.boot
    return made


@pytest.fixture
def site(api: OpenStackApi, ironic: Ironic, system: System) -> Site:
    site = api.site(
        drivers={"BareMetal": "ironic"}, ironic={"images": IMAGES}, limits={"unanswered": 0.0}
    )
    access = GuestSettings(ssh_key=system.server.identity, wait_for="login")
    return site.model_copy(update={"guest_access": access})


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


def metal(**values: Any) -> BareMetalSliver:
    nics = [{"id": "nic1", "ipv4": "127.0.0.1/8"}]
    usual = {"id": "metal", "name": "box", "image": "probe", "ssh_keys": [KEY], "nics": nics}
    return BareMetalSliver.model_validate(usual | values)


def known(site: Site) -> list[str]:
    """Return the lines of the site's known hosts."""
    file = site.state_dir / "known_hosts"
    return file.read_text().splitlines() if file.exists() else []


def test_a_node_is_logged_in_to_by_the_host_key_that_it_was_given(
    processor: HandlerProcessor, site: Site, system: System
) -> None:
    outcome = done(processor.create(metal()).result())

    (drive,) = system.drives
    config = cloud_config(drive)
    assert outcome.observed
    assert outcome.observed.guest
    assert outcome.observed.guest.reachable
    assert outcome.observed.guest.ssh_host_key == config["ssh_keys"]["ed25519_public"]
    assert known(site) == [
        f"[127.0.0.1]:{system.server.port} {config['ssh_keys']['ed25519_public']}"
    ]
    ours = " ".join(system.server.identity.with_suffix(".pub").read_text().split()[:2])
    for keys in (config["ssh_authorized_keys"], drive["meta_data"]["public_keys"].values()):
        assert {" ".join(key.split()[:2]) for key in keys} == {KEY, ours}


def test_its_private_host_key_is_kept_nowhere(
    processor: HandlerProcessor, site: Site, system: System, caplog: pytest.LogCaptureFixture
) -> None:
    done(processor.create(metal()).result())

    secret = cloud_config(system.drives[0])["ssh_keys"]["ed25519_private"].splitlines()[2]
    files = [file for file in site.state_dir.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if secret.encode() in file.read_bytes()]
    assert secret not in caplog.text
    assert secret not in repr(new_host_key_with(secret))


def new_host_key_with(secret: str) -> HostKey:
    return replace(new_host_key(), private=secret)


def test_whoever_answers_with_another_host_key_is_not_handed_out(
    processor: HandlerProcessor, site: Site, system: System, ironic: Ironic
) -> None:
    system.impostor = True

    outcome = processor.create(metal()).result()

    assert outcome.status is Status.FAILED
    assert outcome.error
    assert "is not the pinned one" in outcome.error.message
    assert outcome.left == ()
    assert (ironic.nodes["id-n1"]["provision_state"], ironic.allocations) == ("available", {})
    assert known(site) == []


def test_a_deployment_that_is_refused_leaves_no_pinned_key(
    processor: HandlerProcessor, site: Site, ironic: Ironic
) -> None:
    ironic.faults["PUT", "provision"] = [(400, refusal("it cannot"))]

    outcome = processor.create(metal()).result()

    assert (outcome.status, outcome.left) == (Status.FAILED, ())
    assert known(site) == []


def test_only_a_deployment_makes_a_host_key(site: Site, ironic: Ironic) -> None:
    """What is deployed, by whomever, keeps the one that it was given."""
    made: list[HostKey] = []

    def host_key() -> HostKey:
        made.append(new_host_key())
        return made[-1]

    driver, access = IronicBareMetal(site), NodeAccess((), host_key)
    driver.apply(metal(), access)
    driver.apply(metal(), access)
    driver.apply(metal(name="other"), access)

    assert len(made) == len(ironic.drives) == 1
    assert cloud_config(ironic.drives[0])["ssh_keys"]["ed25519_public"] == made[0].public


def test_a_deletion_forgets_the_key_while_the_node_says_where_it_was(
    processor: HandlerProcessor, site: Site, ironic: Ironic, mocker: MockerFixture
) -> None:
    """Who is killed in between finds it again, and the next one at the address has another key."""
    done(processor.create(metal()).result())
    left: list[list[str]] = []
    remove = IronicBareMetal.remove
    mocker.patch.object(
        IronicBareMetal,
        "remove",
        lambda driver, sliver: (left.append(known(site)), remove(driver, sliver)),
    )

    done(processor.delete(REF).result())

    assert left == [[]]
    assert known(site) == []


def test_a_rebuilt_node_is_logged_in_to_by_a_new_host_key(
    processor: HandlerProcessor, site: Site, system: System
) -> None:
    done(processor.create(metal()).result())
    other = new_key(site.state_dir / "other")

    outcome = done(processor.modify(metal(ssh_keys=[other], rebuild=True)).result())

    first, second = (cloud_config(drive)["ssh_keys"]["ed25519_public"] for drive in system.drives)
    assert first != second
    assert known(site) == [f"[127.0.0.1]:{system.server.port} {second}"]
    assert outcome.observed
    assert outcome.observed.guest
    assert outcome.observed.guest.ssh_host_key == second
    assert other in system.server.keys.read_text()
    assert KEY not in system.server.keys.read_text()

    done(processor.poa(REF, "rebuild").result())
    assert len({cloud_config(drive)["ssh_keys"]["ed25519_public"] for drive in system.drives}) == 3


def test_a_system_that_is_still_the_former_one_is_not_taken_for_a_rebuilt_one(
    processor: HandlerProcessor, ironic: Ironic, system: System
) -> None:
    """An API that says yes and does nothing does not bring the host key that was made for it."""
    done(processor.create(metal()).result())
    ironic.boot = lambda drive: None

    outcome = processor.modify(metal(ssh_keys=[], rebuild=True)).result()
    acted = processor.poa(REF, "rebuild").result()

    for each in (outcome, acted):
        assert each.error
        assert "is not the pinned one" in each.error.message
    assert any(left.startswith("system") for left in outcome.left)
    ironic.boot = system.boot
    done(processor.poa(REF, "rebuild").result())
    for future in processor.recover():
        done(future.result())


def test_a_rebuilt_node_is_known_at_the_addresses_that_it_has_then(
    processor: HandlerProcessor, site: Site, system: System, ironic: Ironic
) -> None:
    ironic.ports.append({"uuid": "p2", "address": "52:54:00:00:00:02", "node_uuid": "id-n1"})
    nics = [{"id": "nic1", "ipv4": "127.0.0.1/8"}, {"id": "nic2", "ipv4": "192.0.2.5/24"}]
    done(processor.create(metal(nics=nics)).result())
    assert [line.split(":")[0] for line in known(site)] == ["[127.0.0.1]", "[192.0.2.5]"]

    done(processor.modify(metal(rebuild=True)).result())

    new = cloud_config(system.drives[-1])["ssh_keys"]["ed25519_public"]
    assert known(site) == [f"[127.0.0.1]:{system.server.port} {new}"]


def test_a_rebuilt_node_gets_no_address_of_another(
    processor: HandlerProcessor, site: Site, system: System, ironic: Ironic
) -> None:
    done(processor.create(metal()).result())
    pin(site, f"[192.0.2.5]:{system.server.port}", new_host_key().public)
    before = known(site)
    nics = [{"id": "nic1", "ipv4": "192.0.2.5/24"}]

    outcome = processor.modify(metal(nics=nics, rebuild=True)).result()

    assert outcome.error
    assert outcome.error.kind == "Conflict"
    assert "a host key is pinned at 192.0.2.5" in outcome.error.message
    assert (known(site), len(ironic.drives)) == (before, 1)


def test_a_rebuilt_system_that_did_not_answer_is_waited_for_again(
    processor: HandlerProcessor, ironic: Ironic, system: System
) -> None:
    """Ironic had ended: the node is not deployed once more, and not called ready without an answer."""
    done(processor.create(metal()).result())
    system.impostor = True
    wanted = metal(ssh_keys=[], rebuild=True)
    assert not processor.modify(wanted).result().ok

    again = processor.modify(wanted).result()

    assert not again.ok
    assert again.error
    assert "is not the pinned one" in again.error.message
    assert len(ironic.drives) == 2


def test_how_long_it_is_waited_for_is_no_difference(
    processor: HandlerProcessor, ironic: Ironic
) -> None:
    done(processor.create(metal()).result())

    done(processor.create(metal(wait_for="address")).result())
    done(processor.modify(metal(wait_for="login", name="other")).result())

    assert len(ironic.drives) == 1


def test_keys_of_its_users_are_added_and_removed(
    processor: HandlerProcessor, system: System, site: Site
) -> None:
    done(processor.create(metal()).result())
    other = new_key(site.state_dir / "other")

    done(processor.poa(REF, "addkey", {"keys": [{"key": other, "comment": "you"}]}).result())
    assert f"{other} you" in system.server.keys.read_text()

    done(processor.poa(REF, "removekey", {"keys": [{"key": other}]}).result())
    assert other not in system.server.keys.read_text()


WITHOUT = {
    "a key of the site": ({"guest_access": GuestSettings()}, {}, "guest_access.ssh_key"),
    "an address": ({}, {"nics": [{"id": "nic1"}]}, "no NIC of the sliver has an address"),
}


@pytest.mark.parametrize(("changes", "asked", "why"), WITHOUT.values(), ids=WITHOUT)
class TestWithout:
    def test_it_is_handed_out_with_a_warning(
        self, site: Site, changes: dict[str, Any], asked: dict[str, Any], why: str, ironic: Ironic
    ) -> None:
        ironic.boot = lambda drive: None
        access = changes.get("guest_access", site.guest_access)
        site = site.model_copy(
            update={"guest_access": access.model_copy(update={"wait_for": None})}
        )
        with HandlerProcessor(site) as processor:
            outcome = done(processor.create(metal(**asked)).result())
            key = {"keys": [{"key": KEY}]}
            refused = processor.poa(REF, "addkey", key).result()

        (warning,) = outcome.warnings
        assert "nobody logs in to the node" in warning
        assert why in warning
        assert "ssh_keys" not in cloud_config(ironic.drives[0])
        assert refused.error
        assert refused.error.kind == "Unsupported"
        assert why in refused.error.message

    def test_it_is_refused_if_a_login_is_required(
        self, site: Site, changes: dict[str, Any], asked: dict[str, Any], why: str, ironic: Ironic
    ) -> None:
        site = site.model_copy(update=changes)
        with HandlerProcessor(site) as processor:
            outcome = processor.create(metal(wait_for="login", **asked)).result()

        assert outcome.error
        assert outcome.error.kind == "Unsupported"
        assert why in outcome.error.message
        assert ironic.changes() == []


def test_an_address_that_is_known_as_anothers_is_refused(
    processor: HandlerProcessor, site: Site, system: System, ironic: Ironic
) -> None:
    """Whoever asks for the address of another guest does not take its host key from it."""
    pin(site, f"[127.0.0.1]:{system.server.port}", new_host_key().public)
    before = known(site)

    outcome = processor.create(metal()).result()

    assert outcome.error
    assert (outcome.error.kind, ironic.changes()) == ("Conflict", [])
    assert "a host key is pinned at 127.0.0.1" in outcome.error.message
    assert known(site) == before


def test_its_host_key_is_nothing_that_is_left_over(processor: HandlerProcessor) -> None:
    done(processor.create(metal()).result())

    assert processor.find_unexpected(frozenset({"metal"})).left_alone == ()


def test_a_node_that_nobody_expects_is_found_on_a_site_without_hosts(
    processor: HandlerProcessor,
) -> None:
    done(processor.create(metal()).result())

    found = processor.find_unexpected(frozenset({"other"}))

    assert [(thing.sliver, thing.name) for thing in found.things] == [("metal", "n1")]
    assert found.left_alone == ()


def test_one_that_nobody_has_is(processor: HandlerProcessor, site: Site, system: System) -> None:
    pin(site, f"[192.0.2.9]:{system.server.port}", new_host_key().public)

    (left,) = processor.find_unexpected(frozenset({"other"})).left_alone

    assert left.what == "host key of 192.0.2.9"
