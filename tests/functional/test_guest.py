"""A real guest through its agent, and devices that it lets go of or not."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import libvirt
import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import GuestAddress
from fabric_direct.drivers.guests.qemu_agent import AgentGuest
from fabric_direct.drivers.libvirt.domains.lookup import definitions, domain_uuid
from fabric_direct.drivers.libvirt.domains.unplug import detach
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.errors import DriverError, NotFound, TimedOut, Unreachable, Unsupported
from fabric_direct.model import Capacities, NodeSliver
from fabric_direct.site.config import Host, Site
from fabric_direct.testing import GuestContract
from tests.functional.apart import TAG
from tests.functional.conftest import IMAGE, URI
from tests.limits import PATIENT

DISKS = Path("/var/lib/libvirt/images")
NAME = SLIVER = f"{TAG}-guest"
ALIAS = f"ua-{SLIVER}-data-0"
MAC, OTHER_MAC = "52:54:00:0f:d0:02", "52:54:00:0f:d0:03"
BOOT = 240.0
BOTH = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB8eHRwbGhkYFxYVFBMSERAPDg0MCwoJCAcGBQQDAgEA"

GUEST = GuestAddress(SLIVER, NAME, "fabric")
BLANK = GuestAddress(f"{TAG}-blank", f"{TAG}-blank", "fabric")
"""Has a disk that nothing boots from."""

pytestmark = pytest.mark.xdist_group("guest")  # they share one that has booted

DOMAIN = """
<domain type='qemu'>
  <name>{name}</name><uuid>{uuid}</uuid>
  <metadata><fd:stamp xmlns:fd='{namespace}' site='TEST'>{stamp}</fd:stamp></metadata>
  <memory unit='MiB'>192</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='{disk}'/><target dev='vda' bus='virtio'/>
    </disk>
    <interface type='user'><mac address='{mac}'/><model type='virtio'/></interface>
    <serial type='null'/>
    {channel}
  </devices>
</domain>
"""
CHANNEL = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"


def disk_xml(path: Path) -> str:
    return (
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/>"
        f"<source file='{path}'/><target dev='vdb' bus='virtio'/><alias name='{ALIAS}'/></disk>"
    )


def domain_xml(disk: Path, sliver: str = SLIVER, channel: str = CHANNEL) -> str:
    size = Capacities(core=1, ram=1, disk=1)
    node = NodeSliver(id=sliver, name="node", image="none", capacities=size)
    return DOMAIN.format(
        name=sliver,
        uuid=domain_uuid(sliver),
        namespace=STAMP_NAMESPACE,
        stamp=escape(node.stamp().model_dump_json()),
        disk=disk,
        mac=MAC if sliver == SLIVER else OTHER_MAC,
        channel=channel,
    )


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """A directory that QEMU's user can look into."""
    try:
        path = Path(tempfile.mkdtemp(prefix="fdtest-", dir=DISKS))
    except OSError as error:
        pytest.skip(f"needs a directory for disks: {error}")
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def root_disk(directory: Path) -> Path:
    if not IMAGE.exists():
        pytest.skip(f"needs the guest image {IMAGE}")
    disk = directory / "root.qcow2"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", IMAGE, disk]
    subprocess.run(command, check=True)
    return disk


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> AgentGuest:
    state = tmp_path_factory.mktemp("state")
    hosts = {"w1": Host(libvirt=URI)}
    return AgentGuest(Site(site="TEST", state_dir=state, hosts=hosts, limits=PATIENT), "w1")


@pytest.fixture(scope="module")
def domain(
    connection: libvirt.virConnect, root_disk: Path, agent: AgentGuest
) -> Iterator[libvirt.virDomain]:
    """A guest that has booted."""
    domain = connection.defineXML(domain_xml(root_disk))
    try:
        domain.create()
        agent.wait(GUEST, timeout=BOOT)
        wait_until("the boot to finish", lambda: agent.boot_finished(GUEST), timeout=BOOT)
        yield domain
    finally:
        stop(domain)
        domain.undefine()


@pytest.mark.usefixtures("domain")
class TestContract(GuestContract):
    @pytest.fixture
    def driver(self, agent: AgentGuest) -> AgentGuest:
        return agent

    @pytest.fixture
    def guest(self) -> GuestAddress:
        return GUEST

    @pytest.fixture
    def absent(self, blank: libvirt.virDomain) -> GuestAddress:
        return BLANK


@pytest.fixture
def blank(connection: libvirt.virConnect, directory: Path) -> Iterator[libvirt.virDomain]:
    """A domain that is defined, and has nothing to boot."""
    domain = connection.defineXML(domain_xml(empty_disk(directory / "blank.qcow2"), BLANK.sliver))
    yield domain
    stop(domain)
    domain.undefine()


def empty_disk(path: Path) -> Path:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "16M"], check=True)
    return path


@pytest.fixture
def data_disk(domain: libvirt.virDomain, directory: Path) -> Iterator[None]:
    """A data disk, plugged in and seen by the guest."""
    plug_data_disk(domain, directory / "data.raw")
    yield
    detach(domain.connect(), domain, ALIAS, timeout=60, where=URI)


def plug_data_disk(domain: libvirt.virDomain, path: Path) -> None:
    path.touch()
    os.truncate(path, 16 << 20)
    domain.attachDeviceFlags(disk_xml(path), BOTH)


@pytest.fixture
def no_keys(agent: AgentGuest, domain: libvirt.virDomain) -> None:
    """The guest's user has no file of keys."""
    agent.run(GUEST, ("rm", "-f", "/home/fabric/.ssh/authorized_keys"), timeout=30)


def stop(domain: libvirt.virDomain) -> None:
    if domain.isActive():
        domain.destroy()


def has_disk(agent: AgentGuest) -> bool:
    return agent.run(GUEST, ("test", "-b", "/dev/vdb"), timeout=30).code == 0


def test_a_booted_guest_answers(agent: AgentGuest, domain: libvirt.virDomain) -> None:
    assert agent.ping(GUEST)


def test_waiting_for_a_guest_that_answers_ends_at_once(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    agent.wait(GUEST, timeout=0)


def test_the_end_of_the_boot_is_seen(agent: AgentGuest, domain: libvirt.virDomain) -> None:
    path = "/var/lib/cloud/instance/boot-finished"
    assert agent.boot_finished(GUEST) is True

    agent.run(GUEST, ("mv", path, f"{path}.away"), timeout=30)

    assert agent.boot_finished(GUEST) is False
    agent.run(GUEST, ("mv", f"{path}.away", path), timeout=30)


def test_the_host_key_is_the_one_in_the_guest(agent: AgentGuest, domain: libvirt.virDomain) -> None:
    key = agent.run(GUEST, ("cat", "/etc/ssh/ssh_host_ed25519_key.pub"), timeout=30).stdout

    assert agent.ssh_host_key(GUEST) == " ".join(key.decode().split()[:2])


def test_a_guest_without_host_key_has_none(agent: AgentGuest, domain: libvirt.virDomain) -> None:
    agent.run(GUEST, ("mv", "/etc/ssh", "/etc/ssh.away"), timeout=30)

    assert agent.ssh_host_key(GUEST) is None

    agent.run(GUEST, ("mv", "/etc/ssh.away", "/etc/ssh"), timeout=30)


def test_the_interfaces_are_those_of_the_guest_without_loopback(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    assert [(nic.name, nic.mac) for nic in agent.interfaces(GUEST)] == [("eth0", MAC)]


def test_an_address_is_reported_with_its_prefix(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    agent.run(GUEST, ("ip", "addr", "add", "192.0.2.7/28", "dev", "eth0"), timeout=30)

    (nic,) = agent.interfaces(GUEST)

    assert "192.0.2.7/28" in nic.addresses


def test_no_shell_reads_the_arguments_of_a_command(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    hostile = "$(touch /tmp/x) `id` 'quoted' \"twice\" ; \\ * \n ü"

    result = agent.run(GUEST, ("printf", "%s", hostile), timeout=30)

    assert (result.code, result.stdout.decode()) == (0, hostile)


def test_a_command_reads_its_input_and_reports_code_and_both_outputs(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    script = "cat; echo wrong >&2; exit 3"

    result = agent.run(GUEST, ("sh", "-c", script), b"\x00\xffbytes", timeout=30)

    assert (result.code, result.stdout, result.stderr) == (3, b"\x00\xffbytes", b"wrong\n")


def test_a_command_that_a_signal_ended_has_the_code_of_a_shell(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    assert agent.run(GUEST, ("sh", "-c", "kill -9 $$"), timeout=30).code == 137


def test_a_command_that_does_not_exist_fails_in_the_agents_words(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    with pytest.raises(DriverError, match=rf"run /no/such in guest {NAME}.*No such file"):
        agent.run(GUEST, ("/no/such",), timeout=30)


def test_a_command_that_does_not_end_is_not_waited_for(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    with pytest.raises(TimedOut, match=r"sleep, process \d+ of the guest"):
        agent.run(GUEST, ("sleep", "600"), timeout=1)

    agent.run(GUEST, ("killall", "sleep"), timeout=30)


@pytest.mark.usefixtures("no_keys")
def test_keys_are_added_once_and_removed_and_others_stay(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    agent.add_keys(GUEST, (f"{KEY} first@home", f"{OTHER} other"))
    agent.add_keys(GUEST, (f"{KEY} again",))
    assert set(agent.authorized_keys(GUEST)) == {f"{KEY} first@home", f"{OTHER} other"}

    agent.remove_keys(GUEST, (KEY,))
    agent.remove_keys(GUEST, (KEY,))

    assert agent.authorized_keys(GUEST) == (f"{OTHER} other",)
    agent.remove_keys(GUEST, (OTHER,))


@pytest.mark.usefixtures("no_keys")
def test_a_user_without_a_keys_file_has_no_keys(agent: AgentGuest) -> None:
    assert agent.authorized_keys(GUEST) == ()
    agent.remove_keys(GUEST, (KEY,))
    agent.add_keys(GUEST, (KEY,))

    assert agent.authorized_keys(GUEST) == (KEY,)


def test_keys_of_a_user_that_the_guest_does_not_have_fail_in_the_agents_words(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    with pytest.raises(DriverError, match="nobody-here"):
        agent.add_keys(GuestAddress(SLIVER, NAME, "nobody-here"), (KEY,))


def test_a_sliver_without_a_domain_does_not_answer(
    agent: AgentGuest, connection: libvirt.virConnect
) -> None:
    absent = GuestAddress(f"{TAG}-absent", f"{TAG}-absent", "fabric")

    assert not agent.ping(absent)
    with pytest.raises(NotFound):
        agent.interfaces(absent)


@pytest.mark.usefixtures("data_disk")
def test_a_device_that_the_guest_lets_go_of_is_gone_on_return(
    agent: AgentGuest, domain: libvirt.virDomain
) -> None:
    wait_until("the guest to see its disk", lambda: has_disk(agent), timeout=60)

    detach(domain.connect(), domain, ALIAS, timeout=60, where=URI)

    assert all(ALIAS not in text for text in definitions(domain).values())
    assert not has_disk(agent)


@pytest.mark.usefixtures("data_disk")
def test_detaching_twice_is_the_same_as_once(domain: libvirt.virDomain) -> None:
    for _ in range(2):
        detach(domain.connect(), domain, ALIAS, timeout=60, where=URI)

    assert all(ALIAS not in text for text in definitions(domain).values())


@pytest.mark.usefixtures("data_disk")
def test_a_device_that_a_paused_guest_holds_stays_the_slivers_until_it_lets_go(
    domain: libvirt.virDomain,
) -> None:
    domain.suspend()
    try:
        with pytest.raises(TimedOut, match="guest still holds"):
            detach(domain.connect(), domain, ALIAS, timeout=2, where=URI)
        assert all(ALIAS in text for text in definitions(domain).values())
    finally:
        domain.resume()

    detach(domain.connect(), domain, ALIAS, timeout=60, where=URI)

    assert all(ALIAS not in text for text in definitions(domain).values())


# --- without a guest


def test_a_device_of_a_stopped_domain_is_taken_from_its_definition(
    blank: libvirt.virDomain, directory: Path
) -> None:
    blank.create()
    plug_data_disk(blank, directory / "more.raw")
    stop(blank)
    assert all(ALIAS in text for text in definitions(blank).values())

    detach(blank.connect(), blank, ALIAS, timeout=60, where=URI)

    assert all(ALIAS not in text for text in definitions(blank).values())


def test_a_stopped_guest_does_not_answer(agent: AgentGuest, blank: libvirt.virDomain) -> None:
    blank.create()
    stop(blank)

    assert not agent.ping(BLANK)
    silent = rf"the agent of guest {BLANK.instance} does not answer.*0 s"
    with pytest.raises(Unreachable, match=silent):
        agent.wait(BLANK, timeout=0)


def test_a_domain_without_a_channel_for_the_agent_is_told_so(
    connection: libvirt.virConnect, blank: libvirt.virDomain, directory: Path, agent: AgentGuest
) -> None:
    disk = directory / "blank.qcow2"
    connection.defineXML(domain_xml(disk, BLANK.sliver, channel="")).create()

    with pytest.raises(Unsupported, match="not configured"):
        agent.wait(BLANK, timeout=30)
