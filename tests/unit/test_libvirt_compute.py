"""Servers by libvirt: the XML, valid by libvirt's own schema, and the exact calls."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import libvirt
import pytest
from lxml import etree
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import (
    Image,
    Plug,
    PluggedPort,
    PluggedVolume,
    Port,
    ServerSpec,
    Volume,
)
from fabric_direct.drivers.libvirt.domains import power
from fabric_direct.drivers.libvirt.domains.lookup import domain_uuid, held_nics, nic_alias
from fabric_direct.drivers.libvirt.servers import driver as module
from fabric_direct.drivers.libvirt.servers.domain_xml import (
    definition,
    port_xml,
    serial_number,
    volume_xml,
)
from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute
from fabric_direct.drivers.libvirt.storage.pool import GIB, Backing, OwnPool
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.errors import (
    DriverError,
    InvalidSliver,
    NotFound,
    NotOurs,
    NotVerified,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.model import Interface, NodeSliver, Stamp, State
from fabric_direct.site.config import Host, Site

SITE = "TEST"
LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
HOSTILE = """<>&"' ]]> {{ 7 * 7 }} \u2028 \U0001f600"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN"
IMAGE = Image("tiny", "root", "/images/tiny.qcow2")


def native(code: int, message: str = "no", number: int = 0) -> libvirt.libvirtError:
    error = libvirt.libvirtError(message)
    error.err = (code, 0, message, 2, "", "", "", number, 0)
    return error


def sliver(**values: Any) -> NodeSliver:
    given = {
        "id": "s-1",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 2, "ram": 3, "disk": 4},
    }
    return NodeSliver.model_validate(given | values)


def port(component: str = "nic1", **values: Any) -> Port:
    given = {"network": "red", "source": "red-net", "mac": "52:54:00:00:00:01"}
    return Port(sliver="s-1", component=component, **(given | values))


def volume(component: str = "data", source: str = "/pool/s-1.volume.data") -> Volume:
    return Volume(sliver="s-1", component=component, source=source, size=1)


def small(**size: int) -> NodeSliver:
    return sliver(capacities={"core": 1, "ram": 1, "disk": 1} | size)


def spec(*ports: Port, volumes: tuple[Volume, ...] = (), **values: Any) -> ServerSpec:
    return ServerSpec(sliver(**values), IMAGE, ports, volumes, "")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(site=SITE, volume_pool=tmp_path, hosts={"w1": Host(virt_type="qemu")})


@pytest.fixture
def store(site: Site) -> OwnPool:
    return OwnPool.of(site, "w1")


@pytest.fixture
def compute(site: Site) -> LibvirtCompute:
    return LibvirtCompute(site, "w1")


@pytest.fixture
def connection(mocker: MockerFixture) -> MagicMock:
    """A host without domains, networks and pools."""
    connection = MagicMock()
    connection.lookupByUUID.side_effect = native(libvirt.VIR_ERR_NO_DOMAIN)
    connection.listAllDomains.return_value = []
    connection.getInfo.return_value = ["x86_64", 2048, 8, 0, 1, 1, 8, 1]
    connection.getCapabilities.return_value = (
        "<capabilities><host><topology><cells><cell id='0'><memory>9</memory></cell>"
        "<cell id='1'><memory>0</memory></cell></cells></topology></host></capabilities>"
    )
    mocker.patch.object(module, "connect", return_value=connection)
    mocker.patch.object(power, "LOOK_AGAIN", 0.0)
    return connection


class FakeDomain(MagicMock):
    """A domain that keeps its state, so that what is read back is what was done."""

    def runs(self, xml: str) -> None:
        self.xml, self.active = {0: xml, libvirt.VIR_DOMAIN_XML_INACTIVE: xml}, True
        self.name.return_value = "s-1-node"
        self.isActive.side_effect = lambda: self.active
        self.XMLDesc.side_effect = lambda flags=0: self._text(flags)
        self.info.side_effect = lambda: [self._state(), 3 * 1024**2, 3 * 1024**2, 2, 0]
        self.metadata.side_effect = lambda *_: self._stamp()
        self.destroy.side_effect = self._off
        self.create.side_effect = self._on
        self.attachDeviceFlags.side_effect = self._attach

    def _text(self, flags: int) -> str:
        live = self.active and not flags
        text = self.xml[0 if live else libvirt.VIR_DOMAIN_XML_INACTIVE]
        return text.replace("<domain", "<domain id='1'", 1) if live else text

    def _state(self) -> int:
        return libvirt.VIR_DOMAIN_RUNNING if self.active else libvirt.VIR_DOMAIN_SHUTOFF

    def _stamp(self) -> str:
        found = etree.fromstring(self.xml[0]).find(f"metadata/{{{STAMP_NAMESPACE}}}stamp")
        return etree.tostring(found, encoding="unicode", with_tail=False)

    def _off(self) -> None:
        self.active = False

    def _on(self) -> None:
        self.active = True

    def _attach(self, xml: str, flags: int) -> None:
        for flag, read in ((LIVE, 0), (CONFIG, libvirt.VIR_DOMAIN_XML_INACTIVE)):
            if flags & flag:
                self.xml[read] = self.xml[read].replace("</devices>", xml + "</devices>")


@pytest.fixture
def domain(connection: MagicMock, store: OwnPool) -> FakeDomain:
    """The sliver's domain, running, with one NIC and one volume."""
    domain = FakeDomain()
    domain.runs(definition(spec(port(), volumes=(volume(),)), SITE, store, "qemu"))
    connection.lookupByUUID.side_effect = None
    connection.lookupByUUID.return_value = domain
    return domain


@pytest.fixture
def fake_store(compute: LibvirtCompute, mocker: MockerFixture) -> MagicMock:
    """A pool that knows one image and is otherwise empty."""
    fake = mocker.patch.object(compute, "_store", autospec=True)
    fake.backing.return_value = Backing("/images/tiny.qcow2", "qcow2", 2 * GIB)
    fake.names.return_value = ()
    fake.file.side_effect = lambda name: f"/pool/{name}"
    fake.console.return_value.file.return_value = "/pool/s-1.console/log"
    fake.console.return_value.name = "pool.s-1.console"
    fake.console.return_value.is_there.return_value = False
    return fake


def valid(xml: str, start: str = "") -> etree._Element:
    """Return the parsed XML, which libvirt's schema of domains allows."""
    if not SCHEMA.exists():
        pytest.skip(f"needs libvirt's schema {SCHEMA}")
    document = etree.fromstring(xml)
    grammar = etree.parse(SCHEMA)
    if start:
        rule = grammar.getroot().find("{*}start/{*}ref")
        assert rule is not None
        rule.set("name", start)
    etree.RelaxNG(grammar).assertValid(document)
    return document


def text(document: etree._Element, path: str) -> list[str]:
    return [str(found) for found in document.xpath(path)]


# --- the definition


@pytest.mark.parametrize("virt_type", ["kvm", "qemu"])
@pytest.mark.parametrize("nodes", [[], [0], [0, 1]])
@pytest.mark.parametrize(
    "wanted",
    [
        spec(),
        spec(port(), port("nic2", bridge=True, source="br0", mac="52:54:00:00:00:02")),
        spec(port(), volumes=(volume(), volume("more", "/pool/archive"))),
        spec(ssh_keys=[f"{KEY} {HOSTILE}"], boot_script=HOSTILE),
        spec(
            components=[
                {"type": "GPU", "id": "gpu", "bdf": ["0000:25:00.0", "0000:25:00.1"]},
                {"type": "vNIC", "id": "nic1", "network": "red", "interface": {"bandwidth": 100}},
            ]
        ),
        spec(port(source=HOSTILE[:5]), id="S" * 63, name="n" * 63),
    ],
    ids=["bare", "nics", "volumes", "hostile", "devices", "long"],
)
def test_a_definition_is_valid_libvirt_xml(
    store: OwnPool, wanted: ServerSpec, virt_type: str, nodes: list[int]
) -> None:
    valid(definition(wanted, SITE, store, virt_type, nodes))


def test_a_definition_says_what_the_sliver_wants(store: OwnPool) -> None:
    document = etree.fromstring(definition(spec(), SITE, store, "qemu"))

    assert document.get("type") == "qemu"
    assert document.findtext("name") == "s-1-node"
    assert document.findtext("uuid") == str(domain_uuid("s-1"))
    assert document.findtext("vcpu") == "2"
    assert (document.findtext("memory"), document.find("memory").get("unit")) == ("3", "GiB")


def test_the_stamp_comes_back_unharmed_from_hostile_text(store: OwnPool) -> None:
    wanted = spec(ssh_keys=[f"{KEY} {HOSTILE}"], boot_script="secret <&>")

    xml = definition(wanted, SITE, store, "qemu")

    found = etree.fromstring(xml).findtext(f"metadata/{{{STAMP_NAMESPACE}}}stamp")
    assert Stamp.model_validate_json(found) == wanted.sliver.stamp()
    assert "secret" not in xml


def test_a_guest_with_kvm_has_the_hosts_cpu(store: OwnPool) -> None:
    modes = [
        etree.fromstring(definition(spec(), SITE, store, kind)).find("cpu").get("mode")
        for kind in ("kvm", "qemu")
    ]

    assert modes == ["host-passthrough", "maximum"]


def test_the_disks_are_root_then_data_then_seed(store: OwnPool) -> None:
    wanted = spec(volumes=(volume(), volume("more", "/pool/archive")))

    document = etree.fromstring(definition(wanted, SITE, store, "qemu"))

    assert text(document, "//disk/target/@dev") == ["vda", "vdb", "vdc", "vdd"]
    assert text(document, "//disk/source/@file") == [
        store.file("s-1.root"),
        "/pool/s-1.volume.data",
        "/pool/archive",
        store.file("s-1.seed"),
    ]
    assert text(document, "//disk/driver/@type") == ["qcow2", "qcow2", "qcow2", "raw"]
    assert text(document, "//disk[readonly]/target/@dev") == ["vdd"]
    assert text(document, "//disk/serial/text()") == ["data", "more"]
    assert text(document, "//disk/alias/@name") == ["ua-s-1-data-0", "ua-s-1-more-0"]


def test_a_present_volume_is_known_by_the_component_that_names_it(store: OwnPool) -> None:
    present = Volume(sliver="", component="", source="/pool/archive", size=1)
    components = [{"type": "Storage", "id": "old", "volume": "archive"}]

    document = etree.fromstring(
        definition(spec(volumes=(present,), components=components), SITE, store, "qemu")
    )

    assert text(document, "//disk/alias/@name") == ["ua-s-1-old-0"]


def test_ten_slots_are_free_for_hot_plug(store: OwnPool) -> None:
    components = [{"type": "GPU", "id": "gpu", "bdf": ["0000:25:00.0", "0000:25:00.1"]}]

    document = etree.fromstring(
        definition(spec(port(), components=components), SITE, store, "qemu")
    )

    slots = len(document.xpath("//controller[@model='pcie-root-port']"))
    boot_devices = ["root", "seed", "rng", "serial controller", "usb controller", "nic1"]
    assert slots - len(boot_devices) - len(components[0]["bdf"]) == 10


def test_bandwidth_is_given_in_kilobytes() -> None:
    document = valid(port_xml("s-1", port(), 100), "interface")

    assert text(document, "//@average") == ["12500", "12500"]


def test_a_port_on_a_bridge_is_plugged_into_it() -> None:
    document = valid(port_xml("s-1", port(bridge=True, source="br0"), None), "interface")

    assert document.get("type") == "bridge"
    assert text(document, "source/@bridge") == ["br0"]
    assert not text(document, "//@average")


def test_a_tap_is_opened_and_left_by_libvirt_without_checksums_or_segments_undone() -> None:
    document = valid(port_xml("s-1", port(tap=True, source="t1", mtu=9000), None), "interface")

    assert document.get("type") == "ethernet"
    assert text(document, "target/@dev") == ["t1"]
    assert text(document, "target/@managed") == ["no"]
    assert text(document, "driver/*/@csum") == ["off", "off"]
    assert text(document, "mtu/@size") == ["9000"]


def test_a_new_disk_gets_the_first_free_target() -> None:
    document = valid(volume_xml("s-1", "data", volume(), {"vda", "vdb", "vdd"}), "disk")

    assert text(document, "target/@dev") == ["vdc"]


def test_targets_go_on_after_vdz() -> None:
    taken = {f"vd{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"}

    assert text(valid(volume_xml("s-1", "data", volume(), taken), "disk"), "target/@dev") == [
        "vdaa"
    ]


def test_long_ids_get_different_serial_numbers_that_fit() -> None:
    one, other = (
        serial_number("volume-of-the-first-node"),
        serial_number("volume-of-the-other-node"),
    )

    assert one != other
    assert max(len(one), len(other), len(serial_number("x" * 31))) == 20
    assert serial_number("x" * 20) == "x" * 20


# --- what is found


@pytest.mark.parametrize(("state", "enabled"), [("up", True), ("down", False)])
def test_a_nic_whose_link_was_set_down_is_switched_off(
    compute: LibvirtCompute, domain: FakeDomain, state: str, enabled: bool
) -> None:
    end = "</interface>"
    for scope, text in domain.xml.items():
        domain.xml[scope] = text.replace(end, f"<link state='{state}'/>{end}")

    server = compute.find("s-1")

    assert server is not None
    assert [nic.enabled for nic in server.ports] == [enabled]


def test_a_server_is_read_from_its_domain(compute: LibvirtCompute, domain: FakeDomain) -> None:
    server = compute.find("s-1")

    assert server is not None
    assert (server.instance, server.state, server.cores, server.ram, server.host) == (
        "s-1-node",
        State.RUNNING,
        2,
        3 * 1024,
        "w1",
    )
    assert server.stamp == sliver().stamp()
    assert server.ports == (PluggedPort("nic1", "52:54:00:00:00:01", "red-net"),)
    assert server.volumes == (PluggedVolume("data", "/pool/s-1.volume.data", "vdb", "data"),)
    assert server.domain == server.instance


def test_a_limit_is_read_in_mbit(
    compute: LibvirtCompute, domain: FakeDomain, store: OwnPool
) -> None:
    components = [{"type": "vNIC", "id": "nic1", "network": "red", "interface": {"bandwidth": 100}}]
    domain.runs(definition(spec(port(), components=components), SITE, store, "qemu"))

    assert [p.bandwidth for p in compute.find("s-1").ports] == [100]


@pytest.mark.parametrize(
    ("native_state", "state"),
    [
        (libvirt.VIR_DOMAIN_RUNNING, State.RUNNING),
        (libvirt.VIR_DOMAIN_PAUSED, State.PAUSED),
        (libvirt.VIR_DOMAIN_SHUTOFF, State.STOPPED),
        (libvirt.VIR_DOMAIN_CRASHED, State.ERROR),
    ],
)
def test_states_are_told_in_our_words(
    compute: LibvirtCompute, domain: FakeDomain, native_state: int, state: State
) -> None:
    domain.info.side_effect = lambda: [native_state, 1024, 1024, 1, 0]

    assert compute.find("s-1").state is state


def test_nothing_is_found_where_there_is_no_domain(
    compute: LibvirtCompute, connection: MagicMock
) -> None:
    assert compute.find("s-1") is None

    connection.lookupByUUID.assert_called_once_with(domain_uuid("s-1").bytes)


def test_only_stamped_domains_are_servers(
    compute: LibvirtCompute, connection: MagicMock, domain: FakeDomain
) -> None:
    foreign, gone = FakeDomain(), FakeDomain()
    foreign.runs("<domain><devices/></domain>")
    gone.info.side_effect = native(libvirt.VIR_ERR_NO_DOMAIN)
    connection.listAllDomains.return_value = [foreign, gone, domain]

    assert [server.sliver for server in compute.servers()] == ["s-1"]


def test_a_domain_of_another_site_is_none_of_ours(
    compute: LibvirtCompute, connection: MagicMock, domain: FakeDomain, store: OwnPool
) -> None:
    domain.runs(definition(spec(), "ELSEWHERE", store, "qemu"))
    connection.listAllDomains.return_value = [domain]

    assert compute.servers() == ()
    for method in (compute.find, compute.delete, lambda _: compute.create(spec())):
        with pytest.raises(NotOurs):
            method("s-1")
    assert not domain.destroy.called


def test_libvirts_silence_is_told(compute: LibvirtCompute, connection: MagicMock) -> None:
    connection.lookupByUUID.side_effect = native(libvirt.VIR_ERR_NO_CONNECT)

    with pytest.raises(Unreachable):
        compute.find("s-1")


def test_capacity_is_cores_mib_and_free_gib(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock
) -> None:
    fake_store.available.return_value = 10 * GIB + 5

    found = compute.capacity()

    assert (found.cores, found.ram, found.disk) == (8, 2048, 10)


@pytest.mark.parametrize(("name", "value"), [("core", 9), ("ram", 3), ("disk", 11)])
def test_what_is_larger_than_the_host_is_refused(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock, name: str, value: int
) -> None:
    fake_store.available.return_value = 10 * GIB

    with pytest.raises(InvalidSliver, match="more than the host has") as refused:
        compute.check(small(**{name: value}), IMAGE)

    assert refused.value.field == f"capacities.{name}"


# --- create


def test_creation_makes_disks_then_defines_then_starts(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock, store: OwnPool
) -> None:
    made = FakeDomain()
    made.runs(definition(spec(), SITE, store, "qemu"))
    made.active = False
    events = MagicMock()
    events.attach_mock(fake_store, "store")
    events.attach_mock(connection, "connection")
    events.attach_mock(made.create, "start")
    connection.defineXMLFlags.return_value = made
    connection.lookupByUUID.side_effect = [native(libvirt.VIR_ERR_NO_DOMAIN), made]

    assert compute.create(spec()).state is State.RUNNING

    names = [name for name, *_ in events.mock_calls if name.split(".")[-1] in MAKING]
    assert names == [
        "store.backing",
        "store.delete",
        "store.create",
        "store.upload",
        "store.console().pool",
        "connection.defineXMLFlags",
        "start",
    ]
    fake_store.create.assert_called_once_with("s-1.root", 4 * GIB, fake_store.backing.return_value)
    assert fake_store.upload.call_args.args[0] == "s-1.seed"
    assert connection.defineXMLFlags.call_args.args[1] == libvirt.VIR_DOMAIN_DEFINE_VALIDATE


MAKING = {"backing", "delete", "create", "upload", "pool", "defineXMLFlags", "start"}


def test_a_defined_domain_is_only_started(
    compute: LibvirtCompute, domain: FakeDomain, fake_store: MagicMock, connection: MagicMock
) -> None:
    domain.active = False

    compute.create(spec())

    domain.create.assert_called_once_with()
    assert not fake_store.mock_calls
    connection.defineXMLFlags.assert_not_called()


def test_a_running_server_is_left_as_it_is(
    compute: LibvirtCompute, domain: FakeDomain, fake_store: MagicMock
) -> None:
    compute.create(spec())

    domain.create.assert_not_called()
    assert not fake_store.mock_calls


def test_a_start_that_another_has_made_meanwhile_is_a_start(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    def already() -> None:
        domain.active = True
        raise native(libvirt.VIR_ERR_OPERATION_INVALID, "already running")

    domain.active = False
    domain.create.side_effect = already

    assert compute.create(spec()).state is State.RUNNING


def interrupted() -> libvirt.libvirtError:
    """Return libvirt's error of a start during which a signal came: the domain does not run."""
    message = "failed to load cgroup BPF prog: Resource temporarily unavailable"
    return native(libvirt.VIR_ERR_SYSTEM_ERROR, message, errno.EAGAIN)


def test_a_start_that_a_signal_interrupted_is_made_again_and_counted_as_a_retry(
    compute: LibvirtCompute, domain: FakeDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts() -> None:
        if domain.create.call_count < 3:
            raise interrupted()
        domain.active = True

    retry = MagicMock()
    monkeypatch.setattr(power, "trying_again", retry)
    domain.active = False
    domain.create.side_effect = starts

    assert compute.create(spec()).state is State.RUNNING
    assert domain.create.call_count == 3
    assert retry.call_count == 2


def test_a_start_that_is_always_interrupted_is_tried_five_times(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    domain.active = False
    domain.create.side_effect = interrupted()

    with pytest.raises(DriverError, match="BPF"):
        compute.create(spec())

    assert domain.create.call_count == 5


def test_a_start_that_fails_otherwise_is_not_made_again(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    domain.active = False
    domain.create.side_effect = native(libvirt.VIR_ERR_SYSTEM_ERROR, "no room", errno.ENOSPC)

    with pytest.raises(DriverError):
        compute.create(spec())

    domain.create.assert_called_once_with()


def test_a_name_that_a_foreign_domain_has_is_refused_before_anything_is_made(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock
) -> None:
    foreign = MagicMock()
    foreign.name.return_value = "s-1-node"
    connection.listAllDomains.return_value = [foreign]

    with pytest.raises(NotOurs):
        compute.create(spec())

    assert not fake_store.mock_calls
    assert foreign.mock_calls == [call.name()]


@pytest.mark.parametrize("stamp", ["", "{", '{"sliver": {"newer": 1}}', "[" * 5000])
def test_a_domain_whose_stamp_cannot_be_read_is_left_alone_and_hides_no_other(
    compute: LibvirtCompute, domain: FakeDomain, connection: MagicMock, stamp: str
) -> None:
    namespace = f"<stamp xmlns='{STAMP_NAMESPACE}' site='{SITE}'>{stamp}</stamp>"
    domain.metadata.side_effect = lambda *_: namespace
    bad = MagicMock()
    bad.XMLDesc.return_value = f"<domain><metadata>{namespace}</metadata></domain>"
    bad.info.return_value = domain.info()
    connection.listAllDomains.return_value = [bad, domain]

    with pytest.raises(NotOurs):
        compute.find("s-1")

    assert [server.sliver for server in compute.servers()] == ["s-1"]


def test_a_domain_of_our_uuid_without_our_stamp_is_left_alone(
    compute: LibvirtCompute, domain: FakeDomain, fake_store: MagicMock
) -> None:
    domain.metadata.side_effect = native(libvirt.VIR_ERR_NO_DOMAIN_METADATA)

    for method in (compute.find, compute.delete, lambda _: compute.create(spec())):
        with pytest.raises(NotOurs):
            method("s-1")

    assert not domain.destroy.called
    assert not domain.create.called
    assert not fake_store.mock_calls


def test_a_root_disk_smaller_than_its_image_is_refused(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock
) -> None:
    fake_store.backing.return_value = Backing("/images/tiny.qcow2", "qcow2", 4 * GIB + 1)

    with pytest.raises(InvalidSliver, match="5 GiB") as refused:
        compute.create(spec())

    assert refused.value.field == "capacities.disk"
    fake_store.create.assert_not_called()


@pytest.mark.parametrize("path", [None, "relative.qcow2"])
def test_an_image_without_an_absolute_path_is_refused(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock, path: str | None
) -> None:
    fake_store.available.return_value = 10 * GIB

    with pytest.raises(InvalidSliver) as refused:
        compute.check(small(), replace(IMAGE, path=path))

    assert refused.value.field == "image"


def test_a_domain_is_not_resized(compute: LibvirtCompute) -> None:
    with pytest.raises(Unsupported, match="create it again"):
        compute.resize(sliver().stamp())


CPUS = "<domainCapabilities><cpu><mode name='custom'>{}</mode></cpu></domainCapabilities>"


@pytest.mark.parametrize(
    ("offer", "virt_type"),
    [
        (CPUS.format("<model usable='yes'>kvm64</model>"), "kvm"),
        (CPUS.format("<model usable='unknown'>cortex-a53</model>"), "kvm"),
        (CPUS.format("<model usable='no'>kvm64</model>"), "qemu"),
        (native(libvirt.VIR_ERR_INVALID_ARG, "KVM is not supported"), "qemu"),
    ],
    ids=["offered", "another architecture", "without a 64-bit CPU", "not offered"],
)
def test_kvm_is_taken_where_it_is_good(
    connection: MagicMock, offer: str | Exception, virt_type: str, store: OwnPool
) -> None:
    module._offers_kvm.cache_clear()
    connection.getDomainCapabilities.side_effect = [offer]
    automatic = LibvirtCompute(Site(site=SITE, hosts={"w1": Host()}), "w1")

    assert automatic._effective_virt_type(connection) == virt_type
    assert automatic._effective_virt_type(connection) == virt_type

    connection.getDomainCapabilities.assert_called_once_with(None, "x86_64", "q35", "kvm")
    module._offers_kvm.cache_clear()


# --- delete


def test_deletion_takes_domain_and_files(
    compute: LibvirtCompute, domain: FakeDomain, connection: MagicMock, fake_store: MagicMock
) -> None:
    connection.lookupByUUID.side_effect = [domain, native(libvirt.VIR_ERR_NO_DOMAIN)]

    compute.delete("s-1")

    domain.destroy.assert_called_once_with()
    domain.undefineFlags.assert_called_once_with(
        libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    )
    assert fake_store.delete.call_args_list == [call("s-1.root"), call("s-1.seed")]
    fake_store.console.assert_called_with("s-1")
    fake_store.console.return_value.remove.assert_called_once_with()


def test_deleting_what_is_absent_succeeds(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock
) -> None:
    compute.delete("s-1")

    assert compute.leftovers("s-1") == ()


def test_a_console_log_that_libvirt_cannot_stand_is_named(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock
) -> None:
    fake_store.console.return_value.remove.side_effect = native(libvirt.VIR_ERR_INTERNAL_ERROR)

    with pytest.raises(DriverError, match="console log"):
        compute.delete("s-1")

    assert fake_store.delete.call_args_list == [call("s-1.root"), call("s-1.seed")]


def test_what_is_left_after_deletion_is_told(
    compute: LibvirtCompute, connection: MagicMock, fake_store: MagicMock
) -> None:
    fake_store.names.return_value = ("s-1.root",)

    with pytest.raises(NotVerified, match=r"/pool/s-1\.root"):
        compute.delete("s-1")


def test_leftovers_name_domain_and_files(
    compute: LibvirtCompute, domain: FakeDomain, fake_store: MagicMock
) -> None:
    fake_store.names.return_value = ("s-1.root", "s-1.volume.data", "s-2.root")
    fake_store.console.return_value.is_there.return_value = True

    assert compute.leftovers("s-1") == (
        "domain s-1-node",
        "file /pool/s-1.root",
        "pool pool.s-1.console",
    )


# --- power


def test_stopping_presses_the_button_and_waits(compute: LibvirtCompute, domain: FakeDomain) -> None:
    domain.shutdownFlags.side_effect = lambda _: domain._off()

    compute.stop("s-1", timeout=5)

    domain.shutdownFlags.assert_called_once_with(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
    domain.destroy.assert_not_called()


def test_a_guest_that_hears_nothing_is_asked_again(
    compute: LibvirtCompute, domain: FakeDomain, mocker: MockerFixture
) -> None:
    mocker.patch.object(power, "ASK_AGAIN", 0.0)
    domain.shutdownFlags.side_effect = [None, None, native(libvirt.VIR_ERR_OPERATION_INVALID)]
    looks = iter([True] * 5 + [False] * 9)
    domain.isActive.side_effect = lambda: next(looks)

    compute.stop("s-1", timeout=60)

    assert domain.shutdownFlags.call_count == 3
    domain.destroy.assert_not_called()


def test_a_guest_that_stays_on_has_its_power_cut(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    compute.stop("s-1", timeout=0)

    domain.destroy.assert_called_once_with()


def test_a_soft_reboot_shuts_down_and_starts(compute: LibvirtCompute, domain: FakeDomain) -> None:
    domain.shutdownFlags.side_effect = lambda _: domain._off()

    compute.reboot("s-1", hard=False, timeout=5)

    domain.create.assert_called_once_with()
    domain.destroy.assert_not_called()


def test_a_soft_reboot_that_the_guest_ignores_times_out_and_leaves_it_on(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    with pytest.raises(TimedOut):
        compute.reboot("s-1", hard=False, timeout=0)

    assert domain.active
    domain.destroy.assert_not_called()


def test_a_hard_reboot_cuts_the_power_and_starts(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    compute.reboot("s-1", hard=True, timeout=5)

    power = [c for c in domain.mock_calls if c in (call.destroy(), call.create())]
    assert power == [call.destroy(), call.create()]


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.start("s-1"),
        lambda c: c.stop("s-1", timeout=1),
        lambda c: c.reboot("s-1", hard=True, timeout=1),
        lambda c: c.attach_port("s-1", port(), Interface()),
        lambda c: c.attach_volume("s-1", "data", volume()),
        lambda c: c.set_bandwidth("s-1", "nic1", 10),
        lambda c: c.write_stamp("s-1", sliver().stamp()),
        lambda c: c.console("s-1", 10),
    ],
)
def test_what_needs_a_server_says_that_there_is_none(
    compute: LibvirtCompute, connection: MagicMock, ask: Callable[[LibvirtCompute], None]
) -> None:
    with pytest.raises(NotFound):
        ask(compute)


# --- devices


def test_a_port_is_attached_now_and_for_later_starts(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    new = port("nic2", mac="52:54:00:00:00:02")

    compute.attach_port("s-1", new, Interface(bandwidth=8))

    domain.attachDeviceFlags.assert_called_once_with(port_xml("s-1", new, 8), LIVE | CONFIG)


def test_a_port_of_a_stopped_server_is_attached_for_later_starts(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    domain.active = False

    compute.attach_port("s-1", port("nic2"), Interface())

    assert domain.attachDeviceFlags.call_args.args[1] == CONFIG


def test_a_port_that_is_plugged_in_is_not_attached_again(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    compute.attach_port("s-1", port(), Interface())

    domain.attachDeviceFlags.assert_not_called()


def test_a_port_that_is_only_live_is_attached_for_later_starts(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    domain._attach(port_xml("s-1", port("nic2"), None), LIVE)

    compute.attach_port("s-1", port("nic2"), Interface())

    domain.attachDeviceFlags.assert_called_once_with(port_xml("s-1", port("nic2"), None), CONFIG)


def test_an_attachment_that_is_not_read_back_is_no_success(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    domain.attachDeviceFlags.side_effect = None

    with pytest.raises(NotVerified):
        compute.attach_port("s-1", port("nic2"), Interface())


# --- ports that another sliver holds


def held_port(component: str = "p1", holder: str = "net-1") -> Port:
    return replace(port(component, mac="52:54:00:00:00:07"), sliver=holder)


def test_a_port_of_another_sliver_bears_the_stamp_of_its_holder(
    compute: LibvirtCompute, domain: FakeDomain, connection: MagicMock
) -> None:
    connection.listAllDomains.return_value = [domain]

    compute.attach_port("s-1", held_port(), Interface(bandwidth=8))

    nic = PluggedPort("p1", "52:54:00:00:00:07", "red-net", bandwidth=8)
    assert compute.plugs("net-1") == (Plug("s-1", "s-1-node", nic),)
    assert "ua-net-1-p1-p5" in domain.xml[0]


def test_the_server_does_not_count_a_port_that_another_sliver_holds(
    compute: LibvirtCompute, domain: FakeDomain, connection: MagicMock
) -> None:
    """Not even where the holder's id begins with the server's own."""
    connection.listAllDomains.return_value = [domain]

    compute.attach_port("s-1", held_port(holder="s-1-net"), Interface())

    assert [nic.component for nic in compute.find("s-1").ports] == ["nic1"]
    assert [plug.nic.component for plug in compute.plugs("s-1-net")] == ["p1"]
    assert compute.plugs("s-1") == ()


def test_ports_whose_ids_come_to_the_same_words_are_told_apart(
    compute: LibvirtCompute, domain: FakeDomain, connection: MagicMock
) -> None:
    connection.listAllDomains.return_value = [domain]

    compute.attach_port("s-1", held_port("b-c", holder="a"), Interface())

    assert compute.plugs("a-b") == ()
    compute.attach_port("s-1", held_port("c", holder="a-b"), Interface())
    assert [plug.nic.component for plug in compute.plugs("a-b")] == ["c"]
    assert [plug.nic.component for plug in compute.plugs("a")] == ["b-c"]


@pytest.mark.parametrize("scope", [LIVE, CONFIG])
def test_a_port_of_another_sliver_that_is_there_by_half_is_found_and_completed(
    compute: LibvirtCompute, domain: FakeDomain, connection: MagicMock, scope: int
) -> None:
    connection.listAllDomains.return_value = [domain]
    domain._attach(port_xml("s-1", held_port(), None), scope)
    assert [plug.whole for plug in compute.plugs("net-1")] == [False]

    compute.attach_port("s-1", held_port(), Interface())

    assert [plug.whole for plug in compute.plugs("net-1")] == [True]


def test_a_port_of_another_sliver_is_detached_by_the_stamp_of_its_holder(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    compute.attach_port("s-1", held_port(), Interface())
    domain.active = False

    with pytest.raises(NotVerified):  # this domain only says that it detached
        compute.detach_port("s-1", "p1", timeout=1, holder="net-1")

    domain.detachDeviceAlias.assert_called_once_with("ua-net-1-p1-p5", CONFIG)


def test_a_port_of_another_sliver_is_detached_from_a_server_that_is_gone(
    compute: LibvirtCompute, connection: MagicMock
) -> None:
    compute.detach_port("s-1", "p1", timeout=1, holder="net-1")


def test_a_domain_that_is_not_ours_or_goes_meanwhile_has_no_port_of_ours(
    compute: LibvirtCompute, domain: FakeDomain, connection: MagicMock
) -> None:
    compute.attach_port("s-1", held_port(), Interface())
    foreign, gone = MagicMock(), MagicMock()
    unstamped = domain.xml[0].replace(STAMP_NAMESPACE, "urn:other")
    foreign.XMLDesc.return_value = unstamped
    gone.XMLDesc.side_effect = native(libvirt.VIR_ERR_NO_DOMAIN)
    connection.listAllDomains.return_value = [foreign, gone]

    assert compute.plugs("net-1") == ()


def test_a_volume_is_attached_at_the_next_target(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    compute.attach_volume("s-1", "more", volume("more"))

    assert [v.target for v in compute.find("s-1").volumes] == ["vdb", "vdd"]


def test_a_target_that_another_thread_took_meanwhile_is_given_up(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    def taken(xml: str, flags: int) -> None:
        domain.attachDeviceFlags.side_effect = domain._attach
        domain._attach(volume_xml("s-1", "first", volume("first"), {"vda", "vdb", "vdc"}), flags)
        raise native(libvirt.VIR_ERR_OPERATION_FAILED, "target vdd already exists")

    domain.attachDeviceFlags.side_effect = taken

    compute.attach_volume("s-1", "second", volume("second"))

    targets = {v.component: v.target for v in compute.find("s-1").volumes}
    assert targets == {"data": "vdb", "first": "vdd", "second": "vde"}


def test_detaching_goes_by_alias(
    compute: LibvirtCompute, domain: FakeDomain, connection: MagicMock, mocker: MockerFixture
) -> None:
    detach = mocker.patch.object(module, "detach")

    compute.detach_port("s-1", "nic1", timeout=7)
    compute.detach_volume("s-1", "data", timeout=8)

    where = "qemu:///system"
    assert detach.mock_calls == [
        call(connection, domain, "ua-s-1-nic1-0", timeout=7, where=where),
        call(connection, domain, "ua-s-1-data-0", timeout=8, where=where),
    ]


def test_detaching_from_no_server_succeeds(
    compute: LibvirtCompute, connection: MagicMock, mocker: MockerFixture
) -> None:
    detach = mocker.patch.object(module, "detach")

    compute.detach_port("s-1", "nic1", timeout=7)

    detach.assert_not_called()


@pytest.mark.parametrize(("bandwidth", "rate"), [(100, 12_500), (None, 0)])
def test_a_limit_is_set_now_then_for_later_starts_and_read_back(
    compute: LibvirtCompute, domain: FakeDomain, bandwidth: int | None, rate: int
) -> None:
    wanted = {"inbound.average": rate, "outbound.average": rate}
    domain.interfaceParameters.return_value = wanted | {"inbound.peak": 0}

    compute.set_bandwidth("s-1", "nic1", bandwidth)

    mac = "52:54:00:00:00:01"
    assert domain.setInterfaceParameters.call_args_list == [
        call(mac, wanted, LIVE),
        call(mac, wanted, CONFIG),
    ]
    assert domain.interfaceParameters.call_args_list == [call(mac, LIVE), call(mac, CONFIG)]


def test_a_limit_that_is_not_read_back_is_no_success(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    domain.interfaceParameters.return_value = {"inbound.average": 1, "outbound.average": 0}

    with pytest.raises(NotVerified):
        compute.set_bandwidth("s-1", "nic1", 100)


def test_a_nic_that_is_not_there_cannot_be_limited(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    with pytest.raises(NotFound):
        compute.set_bandwidth("s-1", "nic9", 100)


# --- stamp and console


def test_a_stamp_is_replaced_now_and_for_later_starts(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    stamp = sliver(ssh_keys=[f"{KEY} {HOSTILE}"]).stamp()
    domain.setMetadata.side_effect = lambda _kind, xml, *_: setattr(domain, "_stamp", lambda: xml)

    compute.write_stamp("s-1", stamp)

    kind, _, key, namespace, flags = domain.setMetadata.call_args.args
    assert (kind, key, namespace) == (
        libvirt.VIR_DOMAIN_METADATA_ELEMENT,
        "fabric",
        STAMP_NAMESPACE,
    )
    assert flags == LIVE | CONFIG


def test_a_stamp_that_is_not_read_back_is_no_success(
    compute: LibvirtCompute, domain: FakeDomain
) -> None:
    with pytest.raises(NotVerified):
        compute.write_stamp("s-1", sliver(ssh_keys=[KEY]).stamp())


@pytest.mark.parametrize(
    ("lines", "expected"), [(2, "b\nc"), (9, "older\na\nb\nc"), (1, "c"), (0, "")]
)
def test_the_console_is_read_from_its_end(
    compute: LibvirtCompute, domain: FakeDomain, fake_store: MagicMock, lines: int, expected: str
) -> None:
    logs = {"log": b"a\r\nb\r\nc\n", "log.0": b"older\n"}
    fake_store.console.return_value.tail.side_effect = lambda name, _: logs[name]

    assert compute.console("s-1", lines) == expected


def test_bytes_of_the_console_that_are_no_text_are_replaced(
    compute: LibvirtCompute, domain: FakeDomain, fake_store: MagicMock
) -> None:
    fake_store.console.return_value.tail.side_effect = [b"\xff\xfe ok\n", b""]

    assert compute.console("s-1", 5) == "\ufffd\ufffd ok"


# --- found without asking for a sliver


@pytest.mark.parametrize(
    ("alias", "held"),
    [
        (nic_alias("vm-1", "nic", "net"), ("net", "nic")),
        (nic_alias("vm-1", "p1", "a-net-p3"), ("a-net-p3", "p1")),
        (nic_alias("vm-1", "n-1-p2", "n"), ("n", "n-1-p2")),
        (nic_alias("vm-1", "nic", "vm-1"), None),
        ("ua-somebodys-own-p99", None),
        ("net0", None),
    ],
)
def test_the_holder_of_a_nic_is_told_by_its_alias(
    alias: str, held: tuple[str, str] | None, domain: FakeDomain
) -> None:
    xml = f"<domain><devices><interface><alias name='{alias}'/></interface></devices></domain>"
    domain.XMLDesc.side_effect = None
    domain.XMLDesc.return_value = xml

    assert held_nics(domain) == ({held} if held else set())
