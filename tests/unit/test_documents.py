"""Documents that people write: what is read, and what is refused with file, line and field."""

import json
import tracemalloc
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel
from pydantic.types import PathType

from fabric_direct.documents import load, parse, parse_all
from fabric_direct.drivers.contract import LocalPath
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.model import Frozen, NodeSliver
from fabric_direct.site.config import Site, load_site

VM = """\
id: vm1
name: node
image: tiny
capacities: {core: 1, ram: 2, disk: 3}
components:
  - {id: nic1, type: vNIC, network: red}
  - id: nic2
    type: vNIC
    network: blue
    interface:
      mac: 52:54:00:12:34:56
"""


OUTSIDE = """\
site: x
networks:
  n:
    strategy: flat
    subnet: 10.0.0.0/24
    bridge: b
    pool: [1.1.1.1, 1.1.1.2]
"""
OVERLAP = """\
site: x
networks:
  a: {strategy: flat_dhcp, subnet: 10.0.0.0/24}
  b: {strategy: flat_dhcp, subnet: 10.0.0.0/25}
"""
AROUND = """\
site: x
networks:
  a: {strategy: flat_dhcp, subnet: 10.0.3.0/24}
  b: {strategy: flat_dhcp, subnet: 10.1.0.0/24, subnet6: "fd00::/64"}
  c: {strategy: flat_dhcp, subnet: 10.0.0.0/22}
"""
NIC1 = "{id: nic1, type: vNIC, network: red}"


class Box(Frozen):
    """Any value."""

    value: Any


def sliver(text: str) -> NodeSliver:
    return parse(text, "vm.yaml", NodeSliver, InvalidSliver)


def refusal(text: str, source: str = "vm.yaml") -> InvalidSliver:
    with pytest.raises(InvalidSliver) as caught:
        parse(text, source, NodeSliver, InvalidSliver)
    return caught.value


def site_refusal(text: str) -> InvalidSite:
    with pytest.raises(InvalidSite) as caught:
        parse(text, "site.yaml", Site, InvalidSite)
    return caught.value


class TestReading:
    def test_a_sliver_is_read_from_yaml(self, tmp_path: Path) -> None:
        path = tmp_path / "vm.yaml"
        path.write_text(VM)
        assert [nic.network for nic in load(path, NodeSliver, InvalidSliver).vnics()] == [
            "red",
            "blue",
        ]

    def test_the_same_sliver_is_read_from_json_indented_with_tabs(self) -> None:
        text = json.dumps(
            yaml.safe_load(VM.replace("52:54:00:12:34:56", "'52:54:00:12:34:56'")), indent="\t"
        )
        assert parse(text, "vm.json", NodeSliver, InvalidSliver) == sliver(VM)

    @pytest.mark.parametrize("text", ['{"id": "x",}', "id: x", '{"id": "x"} # a VM', "---"])
    def test_a_file_that_ends_in_json_is_json(self, text: str) -> None:
        with pytest.raises(InvalidSliver, match=r"^vm\.json:1: column \d+: is not JSON: "):
            parse(text, "vm.json", NodeSliver, InvalidSliver)

    def test_json_that_is_nested_too_deep_is_refused(self) -> None:
        with pytest.raises(InvalidSliver, match=r"^vm\.json:1: .*nested"):
            parse("[" * 100_000, "vm.json", NodeSliver, InvalidSliver)

    def test_json_may_escape_a_character_in_two_halves(self) -> None:
        text = json.dumps(
            {**yaml.safe_load(VM), "components": [], "boot_script": "echo \U0001f600"}
        )
        assert "\\ud83d\\ude00" in text
        assert parse(text, "vm.json", NodeSliver, InvalidSliver).boot_script == "echo \U0001f600"

    def test_a_byte_order_mark_is_no_part_of_the_document(self, tmp_path: Path) -> None:
        path = tmp_path / "vm.yaml"
        path.write_bytes(b"\xef\xbb\xbf" + VM.encode())
        assert load(path, NodeSliver, InvalidSliver) == sliver(VM)

    @pytest.mark.parametrize(
        "text",
        [
            "52:54:00:12:34:56",
            "0000:25:00.0",
            "0x10",
            "010",
            "1_000",
            "no",
            "Yes",
            "on",
            "2024-01-01",
            "=",
            ".inf",
            "12e",
        ],
    )
    def test_what_is_no_plain_number_or_truth_value_is_text(self, text: str) -> None:
        assert parse(f"value: {text}", "x.yaml", Box, InvalidSliver).value == text

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1", 1),
            ("-7", -7),
            ("1.5", 1.5),
            ("1e3", 1000.0),
            ("true", True),
            ("false", False),
            ("", None),
            ("~", None),
            ("null", None),
            ("'1'", "1"),
            ('"true"', "true"),
            ("|\n  1\n", "1\n"),
        ],
    )
    def test_numbers_truth_values_and_nothing_are_what_json_knows(
        self, text: str, value: Any
    ) -> None:
        found = parse(f"value: {text}", "x.yaml", Box, InvalidSliver).value
        assert (found, type(found)) == (value, type(value))


class Paths(BaseModel):
    """Settings of a driver that names files."""

    folder: Annotated[LocalPath, PathType("dir")] | None = None
    file: Annotated[LocalPath, PathType("file")] | None = None
    new: Annotated[LocalPath, PathType("new")] | None = None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("folder: absent", "there is no directory 'absent'"),
        ("file: absent", "there is no file 'absent'"),
        ("new: /", "there is already something at '/'"),
    ],
)
def test_a_path_at_which_the_wrong_thing_is_is_told(text: str, said: str) -> None:
    with pytest.raises(InvalidSite, match=rf"^x\.yaml:1: {text.partition(':')[0]}: {said}$"):
        parse(text, "x.yaml", Paths, InvalidSite)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("FABNet4", ", did you mean 'FABNetv4'?"),
        ("Foo", "; known: FABNetv4, FABNetv6, FABNetv6Ext"),
    ],
)
def test_an_unknown_key_is_told_with_those_that_there_are(kind: str, said: str) -> None:
    text = f"site: x\nservices:\n  subnets:\n    {kind}: {{block: 10.0.0.0/24, prefix: 26}}\n"
    with pytest.raises(InvalidSite) as caught:
        parse(text, "x.yaml", Site, InvalidSite)
    assert str(caught.value) == f"x.yaml:4: services.subnets.{kind}: {kind!r} is unknown{said}"


class TestFilesThatAreRefused:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSite, match=r"cannot read .*/site.yaml: No such file"):
            load_site(tmp_path / "site.yaml")

    def test_a_directory(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSite, match="Is a directory"):
            load_site(tmp_path)

    def test_a_journal_elsewhere_than_in_the_state_directory(self, tmp_path: Path) -> None:
        path = tmp_path / "site.yaml"
        path.write_text("site: x\njournal: postgresql://db/journal\n")
        with pytest.raises(InvalidSite, match=r"site.yaml:2: journal: unknown field"):
            load_site(path)

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "site.yaml"
        path.write_bytes(b"site: x\nimages: \xff\n")
        with pytest.raises(InvalidSite, match=r"site.yaml:2: is not UTF-8 text"):
            load_site(path)

    def test_ten_megabytes_of_nesting_are_refused_without_being_read(self, tmp_path: Path) -> None:
        path = tmp_path / "vm.yaml"
        path.write_text("[" * 10_000_000)
        tracemalloc.start()
        with pytest.raises(InvalidSliver, match="more than 1024 KiB"):
            load(path, NodeSliver, InvalidSliver)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * 2**20

    @pytest.mark.parametrize(
        "text",
        [
            "[" * 1000,
            "{a: " * 1000,
            "- " * 1000,
            "a:\n" + "\n".join(" " * n + "a:" for n in range(1, 99)),
        ],
    )
    def test_deep_nesting_is_refused_however_it_is_written(self, text: str) -> None:
        assert "nested more than 32 levels" in str(refusal(text))

    def test_thirty_two_levels_are_read(self) -> None:
        assert "bogus: unknown field" in str(refusal("bogus: " + "[" * 31 + "]" * 31))

    @pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n"])
    def test_an_empty_document(self, text: str) -> None:
        assert "is empty" in str(refusal(text))

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("id: a\nid: b", 2, "id: is given twice, first on line 1"),
            ("capacities:\n  core: 1\n  ram: 1\n  core: 2", 4, "capacities.core: is given twice"),
            ("id: &a x", 1, "id: uses an anchor"),
            ("id: x\nname: *a", 2, "name: uses an anchor"),
            ("id: !!str x", 1, "id: uses a tag"),
            ("!!python/object/apply:os.system [id]", 1, "uses a tag"),
            ("id: x\n---\nid: y", 2, "more than one document"),
            ("id: x\n1: y", 2, "'1' is not a valid key"),
            ("id: x\ntrue: y", 2, "'true' is not a valid key"),
            ("[a, b]: y", 1, "a list or mapping is not a valid key"),
            ("components:\n\t- id: x", 2, "tab; indent with spaces"),
            ("id: [x\nname: y", 2, "cannot be read as YAML"),
            ("id: 'x", 1, "cannot be read as YAML"),
            ("id: x\x07", 1, "an invalid character"),
        ],
    )
    def test_yaml_beyond_mappings_lists_and_values(self, text: str, line: int, words: str) -> None:
        message = str(refusal(text))
        assert message.startswith(f"vm.yaml:{line}: ")
        assert words in message


class TestFieldsThatAreRefused:
    def test_a_mistyped_field_is_not_told_as_missing_too(self) -> None:
        message = str(refusal(VM.replace("image: tiny", "imgae: tiny")))
        assert message == "vm.yaml:3: imgae: unknown field, did you mean 'image'?"

    def test_a_number_that_is_longer_than_any_limit_is_told_as_a_number(self) -> None:
        class Counted(Frozen):
            number: int

        with pytest.raises(InvalidSliver, match="must have at most 18 digits, is 1000000"):
            parse(f"number: {10**18}", "vm.yaml", Counted, InvalidSliver)

    @pytest.mark.parametrize(
        ("old", "new", "line", "field", "words"),
        [
            ("core: 1", 'core: "1"', 4, "capacities.core", "must be a whole number, is '1'"),
            ("core: 1", "core: true", 4, "capacities.core", "must be a whole number, is true"),
            ("core: 1", "core: 1.5", 4, "capacities.core", "must be a whole number, is 1.5"),
            ("core: 1", "core: ~", 4, "capacities.core", "must be a whole number, is empty"),
            ("core: 1", "core: 0", 4, "capacities.core", "must be from 1 to 1024, is 0"),
            ("core: 1", "core: 2000", 4, "capacities.core", "must be from 1 to 1024, is 2000"),
            (
                "core: 1",
                "cores: 1",
                4,
                "capacities.cores",
                "unknown field, did you mean 'core'?",
            ),
            (
                "core: 1",
                "core: 99999999999999999999",
                4,
                "capacities.core",
                "must be from 1 to 1024, is 99999999999999999999",
            ),
            ("name: node", "name: 12", 2, "name", "must be text (put it in quotes), is 12"),
            (
                "name: node",
                "name: a;b",
                2,
                "name",
                "must be 1 to 63 letters, digits and '.', '_', '-'",
            ),
            ("name: node", "name: ../x", 2, "name", "is '../x'"),
            ("name: node", "nmae: node", 2, "nmae", "unknown field, did you mean 'name'?"),
            ("image: tiny", "xyz: tiny", 3, "xyz", "unknown field; known: id, type, name"),
            ("network: red", "xyz: red", 6, "components[0].network", "is missing"),
            (
                "network: red",
                "netwrok: red",
                6,
                "components[0].netwrok",
                "unknown field, did you mean 'network'?",
            ),
            (
                "network: red",
                "network: red, vlan: 7",
                6,
                "components[0].vlan",
                "unknown field, did you mean 'interface.vlan'?",
            ),
            (
                NIC1,
                "{id: c, type: SmartNIC, bdf: ['0000:25:00.0'], interfaces: [{}], mac: x}",
                6,
                "components[0].mac",
                "unknown field, did you mean 'interfaces[…].mac'?",
            ),
            (
                "type: vNIC, n",
                "type: vnic, n",
                6,
                "components[0].type",
                "unknown type 'vnic', did you mean 'vNIC'?",
            ),
            (
                "type: vNIC, n",
                "type: Toaster, n",
                6,
                "components[0].type",
                "known: FPGA, GPU, NVME",
            ),
            ("type: vNIC, n", "n", 6, "components[0].type", "is missing; known: FPGA, GPU, NVME"),
            (NIC1, "5", 6, "components[0]", "must be a mapping of fields, is 5"),
            (NIC1, "{id: d, type: Storage}", 6, "components[0]", "exactly one of"),
            (
                NIC1,
                "{id: d, type: GPU, bdf: [x]}",
                6,
                "components[0].bdf[0]",
                "must have the form 0000:25:00.0, is 'x'",
            ),
            ("id: nic1", "id: nic2", 5, "components", "id nic2 is given twice"),
            (
                "52:54:00:12:34:56",
                "52-54",
                11,
                "components[1].interface.mac",
                "must have the form 52:54:00:12:34:56",
            ),
            (
                "52:54:00:12:34:56",
                "53:54:00:12:34:56",
                11,
                "components[1].interface.mac",
                "multicast",
            ),
            (
                "mac: 52:54:00:12:34:56",
                "vlan: 4095",
                11,
                "components[1].interface.vlan",
                "must be from 1 to 4094",
            ),
            (
                "mac: 52:54:00:12:34:56",
                "ipv4: 10.0.0.1",
                11,
                "components[1].interface.ipv4",
                "prefix length",
            ),
            (
                "mac: 52:54:00:12:34:56",
                "ipv4: 10.0.0.1.1/24",
                11,
                "components[1].interface.ipv4",
                "10.0.0.1.1",
            ),
            (
                "components:",
                "ssh_keys: [nokey]\ncomponents:",
                5,
                "ssh_keys[0]",
                "algorithm, base64 key",
            ),
            (
                "components:",
                "ssh_keys: nokey\ncomponents:",
                5,
                "ssh_keys",
                "must be a list, is 'nokey'",
            ),
        ],
    )
    def test_a_field_of_a_sliver(
        self, old: str, new: str, line: int, field: str, words: str
    ) -> None:
        assert old in VM
        error = refusal(VM.replace(old, new, 1))
        reported = [
            text
            for text in str(error).splitlines()
            if text.startswith(f"vm.yaml:{line}: {field}: ")
        ]
        assert [words in text for text in reported] == [True]

    @pytest.mark.parametrize(
        ("text", "line", "field", "words"),
        [
            ("site: x\nhosts: {}", 2, "hosts", "must have at least 1 item, has 0"),
            ("site: x\nhosts: {a b: {}}", 2, "hosts['a b']", "must be 1 to 63 letters"),
            (
                "site: x\nhosts:\n  w1: {devices: [{type: GPU, bdf: zz}]}",
                3,
                "hosts.w1.devices[0].bdf",
                "0000:25:00.0",
            ),
            (
                "site: x\nhosts:\n  w1: {devices: [{type: GPU}]}",
                3,
                "hosts.w1.devices[0]",
                "exactly one of",
            ),
            (
                "site: x\nhosts:\n  w1: {devices: [{type: Vgpu, bdf: '25:00.0'}]}",
                3,
                "hosts.w1.devices[0].type",
                "did you mean 'GPU'?",
            ),
            (
                "site: x\nhosts:\n  w1: {devices: [{type: GPU, bdf: 25:00.0, vepa: yes}]}",
                3,
                "hosts.w1.devices[0].vepa",
                "must be true or false, is 'yes'",
            ),
            ("site: x\nlimits: {call: 0}", 2, "limits.call", "must be more than 0, is 0"),
            ("site: x\nlimits: {busy: -1}", 2, "limits.busy", "must be at least 0, is -1"),
            ("site: x\nlimits: {call: '60'}", 2, "limits.call", "must be a number, is '60'"),
            (
                "site: x\nnetworks:\n  n: {subnet: 10.0.0.0/24}",
                3,
                "networks.n.strategy",
                "is missing; known: flat, flat_dhcp, vlan",
            ),
            (
                "site: x\nnetworks:\n  n: {strategy: flat, subnet: 10.0.0.1/24, bridge: br0}",
                3,
                "networks.n.subnet",
                "host bits",
            ),
            (
                "site: x\nnetworks:\n  n: {strategy: flat, subnet: 10.0.0.0/24, bridge: br/0}",
                3,
                "networks.n.bridge",
                "must be 1 to 15 letters",
            ),
            (
                f"site: x\nactor: {{max_flavor: fabric.c{'9' * 5000}.m1.d1}}",
                2,
                "actor.max_flavor",
                "must match",
            ),
            (
                "site: x\nactor: {max_flavor: fabric.c0.m1.d1}",
                2,
                "actor.max_flavor",
                "is a size that no VM can have",
            ),
            (OUTSIDE, 7, "networks.n.pool", "is not in 10.0.0.0/24"),
            (AROUND, 2, "networks", "c overlaps with a"),
            (OVERLAP, 2, "networks", "b overlaps with a"),
        ],
    )
    def test_a_field_of_the_site(self, text: str, line: int, field: str, words: str) -> None:
        error = site_refusal(text)
        assert str(error).startswith(f"site.yaml:{line}: {field}: ")
        assert words in str(error)
        assert error.field == field

    def test_an_unknown_field_beside_a_pair_of_values(self) -> None:
        network = "networks: {red: {strategy: flat_dhcp, subnet: 10.20.1.0/24, items: 3}}"
        error = site_refusal(f"site: TEST\n{network}")
        assert str(error).startswith(
            "site.yaml:2: networks.red.items: unknown field; known: subnet"
        )

    def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_file(self) -> None:
        error = refusal(
            VM.replace("core: 1", "core: 0")
            .replace("52:54", "zz")
            .replace("name: node", "name: ''")
        )
        fields = [line.split(": ")[1] for line in str(error).splitlines()]
        assert fields == ["name", "capacities.core", "components[1].interface.mac"]
        assert error.field == "name"

    def test_of_very_many_things_that_are_wrong_only_some_are_put_into_words(self) -> None:
        text = VM + "".join(f"x{n}: 1\n" for n in range(3000))
        assert str(refusal(text)).endswith("vm.yaml: and at least 980 more")

    @pytest.mark.parametrize("source", ["vm.yaml", "vm.json"])
    def test_half_a_character_is_refused_with_its_line(self, source: str) -> None:
        error = refusal(VM + "owner: \udcff", source)
        assert str(error) == f"{source}:12: the document contains an invalid character"

    def test_many_things_that_are_wrong_are_counted(self) -> None:
        text = VM + "".join(f"x{n}: 1\n" for n in range(50))
        assert str(refusal(text)).endswith("vm.yaml: and 30 more")

    def test_a_list_with_wrong_items_is_not_called_too_short(self) -> None:
        error = refusal(VM.replace(NIC1, "{id: g, type: GPU, bdf: [1]}"))
        assert [line.split(": ")[1] for line in str(error).splitlines()] == ["components[0].bdf[0]"]

    def test_a_default_that_depends_on_what_is_wrong_is_not_told_beside_it(self) -> None:
        said = str(site_refusal("site: X\ndrivers: 5\n"))
        assert said == "site.yaml:2: drivers: must be a mapping of fields, is 5"

    def test_a_long_value_is_not_repeated_in_full(self) -> None:
        assert len(str(refusal(VM.replace("name: node", f"name: {'a' * 10_000}")))) < 300

    def test_a_field_with_control_characters_is_told_escaped(self) -> None:
        error = refusal(VM + '"a\\e[31m": 1\n')
        assert error.field == "['a\\x1b[31m']"
        assert "\x1b" not in str(error)


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("name", 2),
        ("components[0].network", 6),
        ("components[1].interface.mac", 11),
        ("components[1].interface.ipv4", 10),
        ("components[7].bdf", 5),
        ("host", 1),
        ("", 1),
    ],
)
def test_a_field_has_its_line_or_that_of_what_it_would_be_in(field: str, line: int) -> None:
    (document,) = parse_all(VM, "vm.yaml", NodeSliver, InvalidSliver)
    assert document.place(field) == f"vm.yaml:{line}"


class TestSeveralDocuments:
    TWO = f"{VM}---\n{VM.replace('vm1', 'vm2')}"

    def test_are_read_in_their_order(self) -> None:
        documents = parse_all(f"---\n{self.TWO}...\n", "vms.yaml", NodeSliver, InvalidSliver)
        assert [document.value.id for document in documents] == ["vm1", "vm2"]

    def test_have_the_lines_of_their_file_and_their_number(self) -> None:
        _, second = parse_all(self.TWO, "vms.yaml", NodeSliver, InvalidSliver)
        assert second.place("name") == "vms.yaml:14: document 2"

    def test_that_are_empty_count_and_are_left_out(self) -> None:
        text = f"# nothing\n---\n---\n{VM}"
        (only,) = parse_all(text, "vms.yaml", NodeSliver, InvalidSliver)
        assert only.place("id") == "vms.yaml:4: document 2"

    @pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n"])
    def test_that_are_all_empty_are_refused(self, text: str) -> None:
        with pytest.raises(InvalidSliver, match=r"vms.yaml:1: the document is empty"):
            parse_all(text, "vms.yaml", NodeSliver, InvalidSliver)

    def test_are_refused_with_the_errors_of_all(self) -> None:
        text = self.TWO.replace("name: node", "name: 7")
        with pytest.raises(InvalidSliver) as refused:
            parse_all(text, "vms.yaml", NodeSliver, InvalidSliver)
        first, second = str(refused.value).splitlines()
        assert first.startswith("vms.yaml:2: document 1: name: must be text")
        assert second.startswith("vms.yaml:14: document 2: name: must be text")
        assert refused.value.field == "name"

    def test_share_no_fields(self) -> None:
        text = "id: a\n---\nid: b\nid: c\n"
        with pytest.raises(InvalidSliver, match=r"vms.yaml:4: id: is given twice, first on line 3"):
            parse_all(text, "vms.yaml", NodeSliver, InvalidSliver)
