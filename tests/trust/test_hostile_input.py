"""What hostile hands write: every parser ends with an error of ours, and text stays text."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from email import message_from_string
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pycdlib
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fabric_direct.drivers.cloudinit import nocloud_seed, user_data
from fabric_direct.drivers.contract import PluggedDevice, Port
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.servers import domain_xml
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.errors import FabricDirectError
from fabric_direct.model import NodeSliver, PciAddress, Storage
from tests.conftest import KEY
from tests.trust import __main__ as program
from tests.trust import hostile, hostile_cloud, hostile_hosts, hostile_texts
from tests.trust.hostile_inputs import TEXTS, Parser
from tests.trust.page import PAGE

QUICK = settings(
    max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
NAMES = (
    "sliver document", "site.yaml", "FIM virtual machine", "FIM network service",
    "operational action", "journal", "known_hosts", "device record", "sealed blob", "domain XML",
    "domain stamp", "capabilities XML", "network XML", "netlink reply", "relay frame",
    "relay answer", "guest agent", "guest devices", "guest interfaces", "guest disks",
    "guest netplan", "guest console", "authorized_keys",
)  # fmt: skip
OVER_HTTP = (
    "zone request", "zone answer", "cloud: server stamp", "cloud: ports", "cloud: servers",
    "cloud: volumes", "cloud: networks", "cloud: workers", "cloud: images and flavors",
)  # fmt: skip
# XML has no place for most control characters, whatever they are escaped by.
PRINTABLE = st.text(st.characters(exclude_categories=["C"]), max_size=40) | st.sampled_from(
    [text for text in TEXTS if text.isprintable()]
)


@pytest.fixture(scope="module")
def parsers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Parser]:
    folder = tmp_path_factory.mktemp("hostile")
    every = (*hostile_texts.parsers(folder), *hostile_hosts.parsers(folder))
    return {parser.name: parser for parser in every}


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Parser]]:
    with ExitStack() as stack:
        every = hostile_cloud.parsers(tmp_path_factory.mktemp("http"), stack)
        yield {parser.name: parser for parser in every}


def test_every_parser_is_fed_here(parsers: dict[str, Parser], over_http: dict[str, Parser]) -> None:
    assert sorted(parsers) == sorted(NAMES)
    assert sorted(over_http) == sorted(OVER_HTTP)


def test_the_page_has_every_parser() -> None:
    rows = PAGE.read_text()

    assert [name for name in (*NAMES, *OVER_HTTP) if f"\n| {name} |" not in rows] == []


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(st.randoms(use_true_random=False))
def test_ends_with_no_other_error_than_ours(
    parsers: dict[str, Parser], name: str, random: Random
) -> None:
    ends_well(parsers[name], random)


@pytest.mark.parametrize("name", OVER_HTTP)
def test_over_http_ends_with_no_other_error_than_ours(
    over_http: dict[str, Parser], name: str
) -> None:
    for seed in range(20):
        ends_well(over_http[name], Random(seed))  # noqa: S311 - it makes inputs


def ends_well(parser: Parser, random: Random) -> None:
    given = parser.make(random)
    with suppress(FabricDirectError):
        parser.parse(given)


def test_the_program_counts_inputs_crashes_and_refusals() -> None:
    figures = hostile.Figures()
    for number, parse in enumerate((int, int.bit_count, lambda _: None)):
        hostile.feed(Parser("x", lambda _: "x", cast(Any, parse)), f"x {number}", figures)

    assert (figures.inputs, figures.crashes, figures.refused) == (3, 2, 0)
    assert figures.examples[0].startswith("x 0: 0.0 s, ValueError")


@pytest.mark.parametrize(("processor", "clock", "slow"), [(0.9, 9, 0), (1.1, 1.1, 1), (0, 11, 1)])
def test_the_program_counts_what_works_or_waits_for_long(
    monkeypatch: pytest.MonkeyPatch, processor: float, clock: float, slow: int
) -> None:
    calls = {name: iter((0, by, 0, by)) for name, by in (("p", processor), ("c", clock))}
    times = SimpleNamespace(
        process_time=lambda: next(calls["p"]), monotonic=lambda: next(calls["c"])
    )
    monkeypatch.setattr(hostile, "time", times)
    figures = hostile.Figures()
    hostile.feed(Parser("x", lambda _: "x", str), "x", figures)

    assert figures.slow == slow


def test_lots_have_all_inputs_and_other_ones_each() -> None:
    lots = hostile.lots(12_000, seed=1)

    assert sum(inputs for inputs, _ in lots) == 12_000
    assert len({seed for _, seed in lots}) == len(lots) == 3


@pytest.mark.parametrize(("parse", "code"), [(str, 0), (int, 1)])
def test_the_program_fails_if_a_parser_crashes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    parse: Callable[[str], object],
    code: int,
) -> None:
    monkeypatch.setattr(hostile, "parsers", lambda *_: (Parser("x", lambda _: "x", parse),))
    monkeypatch.setattr(program, "spread", lambda work, over, **_: map(work, over))

    assert program.main(["hostile", "--inputs", "6000"]) == code
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == [
        "x",
        "6000",
        "0",
        f"{6000 * code}",
    ]


# --- what is rendered is parsed again


def sliver(**values: Any) -> NodeSliver:
    given = {
        "id": "s-1",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
    }
    return NodeSliver.model_validate(given | values)


@QUICK
@given(PRINTABLE, PRINTABLE, PRINTABLE)
def test_a_disk_shows_just_the_texts_that_it_was_given(path: str, serial: str, alias: str) -> None:
    disk = {"path": path, "format": "qcow2", "target": "vdb", "readonly": False}
    xml = render("disk.xml.j2", disk={**disk, "serial": serial, "alias": alias})

    root = ElementTree.fromstring(xml)
    assert [each.tag for each in root.iter()] == [
        "disk", "driver", "source", "target", "serial", "alias"
    ]  # fmt: skip
    assert root.find("source").attrib == {"file": path}  # type: ignore[union-attr]
    assert root.findtext("serial") == serial
    assert root.find("alias").attrib == {"name": alias}  # type: ignore[union-attr]


@QUICK
@given(PRINTABLE)
def test_a_nic_a_device_and_a_volume_show_just_the_text_that_they_were_given(text: str) -> None:
    texts = dict.fromkeys(("mac", "source", "alias"), text)
    nic = {**texts, "kind": "network", "rate": None, "mtu": None}
    device = PluggedDevice("", text, PciAddress(0, 1, 0, 0))
    rendered = {
        "interface": render("interface.xml.j2", nic=nic),
        "hostdev": render("hostdev.xml.j2", device=device, slot=None),
        "host": render("dhcp-host.xml.j2", mac=text, ip=text),
    }
    for tag, xml in rendered.items():
        root = ElementTree.fromstring(xml)
        assert root.tag == tag
        assert len(list(root.iter())) == {"interface": 5, "hostdev": 4, "host": 1}[tag]
        assert text in [value for each in root.iter() for value in each.attrib.values()]


@QUICK
@given(st.text(max_size=60) | st.sampled_from(TEXTS))
def test_the_stamp_comes_back_whatever_is_in_a_keys_comment(text: str) -> None:
    try:
        wanted = sliver(ssh_keys=(f"{KEY} {text}",), boot_script=text)
    except ValidationError:
        return
    element = ElementTree.fromstring(domain_xml.stamp_xml(wanted.stamp(), "x'/><y"))
    assert lookup._stamp(element, "x'/><y") == wanted.stamp()


@QUICK
@given(st.text(max_size=200) | st.sampled_from(TEXTS))
def test_a_boot_script_is_one_part_byte_for_byte(script: str) -> None:
    try:
        wanted = sliver(boot_script=script, ssh_keys=(KEY,))
    except ValidationError:
        return
    parts = list(message_from_string(user_data(wanted)).walk())
    assert [part.get_content_type() for part in parts] == [
        "multipart/mixed", "text/cloud-config", "text/x-shellscript"
    ]  # fmt: skip
    arrived = cast(bytes, parts[2].get_payload(decode=True))
    assert arrived.startswith(b"#!")
    assert arrived.endswith(script.encode())


@QUICK
@given(st.text(max_size=60) | st.sampled_from(TEXTS))
def test_a_keys_comment_is_in_the_user_data_as_it_was_given(text: str) -> None:
    try:
        wanted = sliver(ssh_keys=(f"{KEY} {text}",))
    except ValidationError:
        return
    part = list(message_from_string(user_data(wanted)).walk())[1]
    config = yaml.safe_load(cast(bytes, part.get_payload(decode=True)))
    assert config["ssh_authorized_keys"] == list(wanted.ssh_keys)
    assert list(config) == ["hostname", "manage_etc_hosts", "ssh_authorized_keys", "runcmd"]


def test_a_seed_has_three_files_whatever_its_texts_are() -> None:
    wanted = sliver(boot_script="--==fabric-direct==--\n", ssh_keys=(f"{KEY} '{{}}: &a",))
    port = Port("s-1", "nic1", "red", "x'/><disk", "52:54:00:00:00:01")
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(nocloud_seed(wanted, user_data(wanted), [port])))
    names = [c.file_identifier() for c in iso.list_children(joliet_path="/")][2:]
    assert len(names) == 3
    content = io.BytesIO()
    iso.get_file_from_iso_fp(content, joliet_path="/meta-data")
    assert json.loads(content.getvalue())["public-keys"] == list(wanted.ssh_keys)


# --- names that become paths


@pytest.mark.parametrize("field", ["id", "name", "image", "host", "flavor", "owner"])
@pytest.mark.parametrize(
    "text", ["..", "../x", "a/b", ".x", "-x", "x\n", "x'/><disk/>", "a b", "$x"]
)
def test_no_id_or_name_leaves_its_place(field: str, text: str) -> None:
    with pytest.raises(ValidationError):
        sliver(**{field: text})


@pytest.mark.parametrize(
    "mount", ["/a;reboot", "/a b", "/$(x)", "/../x", "/a/../b", "/.", "a", "/"]
)
def test_a_mount_point_is_no_shells_business(mount: str) -> None:
    with pytest.raises(ValidationError):
        Storage(id="data", size=1, mount=mount)


@pytest.mark.parametrize("volume", ["../x", "a/../b", "..", ".x", "a\nb", "a\0b", "/etc/passwd"])
def test_a_volumes_name_names_no_path(volume: str) -> None:
    with pytest.raises(ValidationError):
        Storage(id="data", volume=volume)
