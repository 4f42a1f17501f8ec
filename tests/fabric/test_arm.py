"""FABRIC's resource model of a site: read, turned into allow-lists, and compared with them."""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from fim.slivers.capacities_labels import Labels

from fabric_direct.cli import main
from fabric_direct.doctor import Verdict
from fabric_direct.doctor.advertised import check_resource_model
from fabric_direct.doctor.diagnosis import Diagnosis
from fabric_direct.drivers.contract import HostDevice, PciFunction
from fabric_direct.errors import Refused
from fabric_direct.migration.arm import ResourceModel, Unread, read
from fabric_direct.migration.draft import Notice
from fabric_direct.migration.translate import Migration, Sources, migrate
from fabric_direct.model import DeviceState, PciAddress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site, load_site
from tests.conftest import FAKE_DRIVERS
from tests.fabric.resource_models import MACS, VF_MACS, VFS, component, server, site, written

ROOT = Path(__file__).parents[2]
W1 = "renc-w1.fabric-testbed.net"
LISTED = [
    {"type": "NVME", "model": "P4510", "bdf": "0000:21:00.0"},
    {"type": "GPU", "model": "Tesla-T4", "bdf": "0000:25:00.0"},
    {"type": "SmartNIC", "model": "ConnectX-6", "bdf": "0000:a1:00.0", "mac": MACS[0].lower()},
    {"type": "SmartNIC", "model": "ConnectX-6", "bdf": "0000:a1:00.1", "mac": MACS[1].lower()},
    {"type": "FPGA", "model": "Xilinx-U280", "bdf": "0000:c1:00.0"},
    *(
        {"type": "SharedNIC", "model": "ConnectX-6", "bdf": bdf, "mac": mac.lower()}
        for bdf, mac in sorted(zip(VFS, VF_MACS, strict=True))
    ),
]
"""What the model of a worker is as an allow-list."""


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    return written(site(W1), tmp_path / "arm.graphml")


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory"
    path.write_text("[fabric_worker]\nrenc-w1 ansible_host=192.0.2.1\n")
    return path


def plain(devices: Any) -> list[dict[str, str]]:
    return [d.model_dump(mode="json", exclude_defaults=True) for d in devices]


class TestAResourceModel:
    def test_has_the_functions_of_each_worker_with_model_and_mac(self, tmp_path: Path) -> None:
        model = read(written(site(W1, "renc-w2"), tmp_path / "arm.graphml"))

        assert {name: plain(devices) for name, devices in model.workers.items()} == {
            W1: LISTED,
            "renc-w2": LISTED,
        }
        assert model.unread == ()

    @pytest.mark.parametrize(
        ("workers", "hosts", "named"),
        [
            ([W1], [W1], {W1: W1}),
            ([W1], ["renc-w1"], {"renc-w1": W1}),
            (["w1"], ["w1.example.org"], {"w1.example.org": "w1"}),
            ([W1], ["renc-w2", "renc", "renc-w", "renc-w1.local"], {}),
            (["w1.a", "w1.b"], ["w1"], {}),
            (["w1"], ["w1.a", "w1.b"], {}),
            (["w1"], ["w1", "w1.a"], {"w1": "w1"}),
            (["w1", "w1.a"], ["w1.a", "w1.a.b"], {"w1.a": "w1.a"}),
            (["w1", "w2"], ["w1.a", "w2"], {"w1.a": "w1", "w2": "w2"}),
            (["192.0.2.7"], ["192.0.2.1"], {}),
        ],
    )
    def test_is_of_a_host_by_its_name_with_or_without_the_domain_and_never_of_two(
        self, workers: list[str], hosts: list[str], named: dict[str, str]
    ) -> None:
        assert ResourceModel("arm", dict.fromkeys(workers, ())).workers_of(hosts) == named

    def test_that_has_two_workers_of_one_name_has_neither(self, tmp_path: Path) -> None:
        made = site(W1)
        made.graph_model.update_node_property(
            node_id=server(made, "other").node_id, prop_name="Name", prop_val=W1
        )

        model = read(written(made, tmp_path / "arm.graphml"))

        assert model.workers == {}
        assert model.unread == (Unread(f"worker {W1}", "is there twice"),)

    def test_leaves_out_what_is_no_pci_device(self, tmp_path: Path) -> None:
        made = site(W1)
        component(made.nodes[W1], "SharedNIC", "ovs", "OpenStack-vNIC", None, Labels())

        model = read(written(made, tmp_path / "arm.graphml"))

        assert plain(model.workers[W1]) == LISTED
        assert model.unread == ()

    @pytest.mark.parametrize(
        ("bdf", "why"),
        [
            (None, "names no PCI address"),
            ("0000:25:20.0", "must be a PCI address such as 0000:25:00.0"),
            (["0000:22:00.0", "0000:25:20.0"], "must be a PCI address such as 0000:25:00.0"),
            (["0000:22:00.0", "0000:22:00.0"], "names 0000:22:00.0, which the model names twice"),
        ],
    )
    def test_tells_which_component_cannot_be_allowed_and_why(
        self, tmp_path: Path, bdf: Any, why: str
    ) -> None:
        made = site(W1)
        component(made.nodes[W1], "NVME", "other", "P4510", bdf)

        model = read(written(made, tmp_path / "arm.graphml"))

        ((unread),) = model.unread
        assert unread.what == f"component {W1}-other of {W1}"
        assert why in unread.why
        assert plain(model.workers[W1]) == LISTED

    def test_gives_an_address_of_two_components_to_neither(self, tmp_path: Path) -> None:
        made = site(W1)
        component(made.nodes[W1], "NVME", "other", "P4510", ["0000:22:00.0", "0000:25:00.0"])

        model = read(written(made, tmp_path / "arm.graphml"))

        assert [unread.what for unread in model.unread] == [
            f"component {W1}-gpu-1 of {W1}",
            f"component {W1}-other of {W1}",
        ]
        assert all("0000:25:00.0, which the model names twice" in u.why for u in model.unread)
        assert plain(model.workers[W1]) == [d for d in LISTED if d["type"] != "GPU"]

    def test_has_both_of_two_components_of_one_name(self, tmp_path: Path) -> None:
        made = site(W1)
        component(made.nodes[W1], "NVME", "other", "P4510", "0000:22:00.0")
        node = made.nodes[W1].components[f"{W1}-other"].node_id
        made.graph_model.update_node_property(
            node_id=node, prop_name="Name", prop_val=f"{W1}-nvme-1"
        )

        model = read(written(made, tmp_path / "arm.graphml"))

        assert {"0000:21:00.0", "0000:22:00.0"} <= {str(d.bdf) for d in model.workers[W1]}

    @pytest.mark.parametrize(
        ("field", "value", "why"),
        [
            ("Type", "Tape", "is of an unknown type"),
            ("Labels", '{"bdf": 5}', "cannot be read by fabric-fim"),
            ("Labels", '{"bdf": "10000:01:00.0"}', "10000:01:00.0"),
        ],
    )
    def test_tells_of_a_component_that_is_not_understood_and_has_the_others(
        self, tmp_path: Path, field: str, value: str, why: str
    ) -> None:
        made = site(W1)
        node = made.nodes[W1].components[f"{W1}-gpu-1"].node_id
        made.graph_model.update_node_property(node_id=node, prop_name=field, prop_val=value)

        model = read(written(made, tmp_path / "arm.graphml"))

        ((unread),) = model.unread
        assert unread.what == f"component {W1}-gpu-1 of {W1}"
        assert why in unread.why
        assert "\n" not in unread.why
        assert plain(model.workers[W1]) == [d for d in LISTED if d["type"] != "GPU"]

    def test_tells_of_a_model_that_has_no_name_here(self, tmp_path: Path) -> None:
        made = site(W1)
        node = made.nodes[W1].components[f"{W1}-gpu-1"].node_id
        made.graph_model.update_node_property(node_id=node, prop_name="Model", prop_val="(((")

        ((unread),) = read(written(made, tmp_path / "arm.graphml")).unread

        assert unread.why == "its model cannot be named in site.yaml: '((('"

    def test_has_the_usb_device_that_goes_with_an_fpga(self, tmp_path: Path) -> None:
        made = site()
        labels = Labels(bdf=["0000:c1:00.0", "0000:c1:00.1"], usb_id="0403:6014")
        component(server(made, W1), "FPGA", "fpga-1", "Xilinx-U280", labels)

        first, other = read(written(made, tmp_path / "arm.graphml")).workers[W1]

        assert first.model_dump()["usb"] == ({"vendor": "0403", "product": "6014"},)
        assert other.usb == ()

    def test_takes_the_ports_of_a_smartnic_for_its_functions_in_order(self, tmp_path: Path) -> None:
        made, ports = site(), [Labels(mac=mac) for mac in MACS]
        functions = ["0000:a1:00.1", "0000:a1:00.0"]
        component(server(made, W1), "SmartNIC", "slot6", "ConnectX-6", functions, *ports)

        found = read(written(made, tmp_path / "arm.graphml")).workers[W1]

        assert {str(d.bdf): d.mac for d in found} == {
            "0000:a1:00.0": MACS[0].lower(),
            "0000:a1:00.1": MACS[1].lower(),
        }

    def test_has_no_mac_where_it_does_not_tell_whose_it_is(self, tmp_path: Path) -> None:
        made = site()
        ports = [Labels(mac=MACS[0]), Labels()]
        component(server(made, W1), "SmartNIC", "slot6", "ConnectX-6", ["0000:a1:00.0"], *ports)
        vf = Labels(bdf=["0000:e2:00.2"], mac=[VF_MACS[0], VF_MACS[1]])
        component(made.nodes[W1], "SharedNIC", "slot7", "ConnectX-6", ["0000:e2:00.2"], vf)

        model = read(written(made, tmp_path / "arm.graphml"))

        assert plain(model.workers[W1]) == [
            {"type": "SmartNIC", "model": "ConnectX-6", "bdf": "0000:a1:00.0"},
            {"type": "SharedNIC", "model": "ConnectX-6", "bdf": "0000:e2:00.2"},
        ]

    @pytest.mark.parametrize("text", ["", "no XML", "<graphml></graphml>", "<html><p/></html>"])
    def test_that_is_none_is_refused_by_name(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "other.graphml"
        path.write_text(text)

        with pytest.raises(Refused, match=r"other\.graphml is not a resource model of FABRIC"):
            read(path)

    def test_that_is_no_file_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match=rf"cannot read {tmp_path}: Is a directory"):
            read(tmp_path)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(Refused, match=r"cannot read .*pipe: it is not a file"):
            read(tmp_path / "pipe")

    def test_that_is_not_there_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match=r"cannot read .*none\.graphml: No such file"):
            read(tmp_path / "none.graphml")

    def test_of_an_am_without_workers_has_none(self, tmp_path: Path) -> None:
        model = site()
        model.add_switch(name="p4", site="RENC", node_id="p4")

        assert read(written(model, tmp_path / "arm.graphml")).workers == {}


class TestMigrate:
    def done(self, **sources: Path) -> Migration:
        return migrate(Sources(**sources), Path("/etc/openstack/secure.yaml"))

    def said(self, done: Migration, what: str) -> Notice:
        (found,) = [finding for finding in done.findings if finding.what == what]
        return found

    def loaded(self, done: Migration, tmp_path: Path) -> Site:
        path = tmp_path / "site.yaml"
        path.write_text(done.site)
        return load_site(path)

    def test_fills_the_allow_list_of_each_worker(
        self, arm: Path, inventory: Path, tmp_path: Path
    ) -> None:
        done = self.done(inventory=inventory, arm=arm)

        host = self.loaded(done, tmp_path).hosts["renc-w1"]
        assert plain(host.devices) == LISTED
        assert host.ssh == "ssh://root@192.0.2.1"
        assert '- {type: GPU, model: Tesla-T4, bdf: "0000:25:00.0"}' in done.site.replace("'", '"')

    def test_tells_of_cards_of_which_the_model_has_one_function(
        self, arm: Path, inventory: Path
    ) -> None:
        notice = self.said(self.done(inventory=inventory, arm=arm), "hosts.renc-w1.devices")

        assert "of 0000:25:00.0, 0000:c1:00.0: those in its IOMMU group" in notice.why
        assert "fabric-direct devices renc-w1 --all" in notice.remedy
        assert str(notice.place) == f"{arm}:1"

    def test_tells_of_a_worker_that_the_model_does_not_have(
        self, arm: Path, inventory: Path, tmp_path: Path
    ) -> None:
        inventory.write_text("[fabric_worker]\nother ansible_host=192.0.2.1\n")
        done = self.done(inventory=inventory, arm=arm)

        assert "no worker that is this host" in self.said(done, "hosts.other.devices").why
        assert "how this worker is reached" in self.said(done, f"worker {W1}").why
        assert self.loaded(done, tmp_path).hosts["other"].devices == ()

    def test_tells_of_components_that_cannot_be_allowed(
        self, inventory: Path, tmp_path: Path
    ) -> None:
        made = site(W1)
        component(made.nodes[W1], "NVME", "other", "P4510", None)
        arm = written(made, tmp_path / "arm.graphml")

        done = self.done(inventory=inventory, arm=arm)

        told = self.said(done, f"component {W1}-other of {W1}")
        assert "names no PCI address" in told.why

    def test_tells_of_a_worker_of_which_the_model_has_no_device(
        self, inventory: Path, tmp_path: Path
    ) -> None:
        made = site()
        server(made, W1)

        done = self.done(inventory=inventory, arm=written(made, tmp_path / "arm.graphml"))

        assert f"no device of {W1}" in self.said(done, "hosts.renc-w1.devices").why
        assert "devices: []" not in done.site
        assert self.loaded(done, tmp_path).hosts["renc-w1"].devices == ()

    def test_tells_that_the_model_has_no_workers(self, inventory: Path, tmp_path: Path) -> None:
        model = site()
        model.add_switch(name="p4", site="RENC", node_id="p4")

        done = self.done(inventory=inventory, arm=written(model, tmp_path / "arm.graphml"))

        assert "has no worker" in self.said(done, "resource model").why
        assert "no worker that is this host" in self.said(done, "hosts.renc-w1.devices").why

    def test_names_a_worker_that_may_be_either_of_two_hosts(
        self, inventory: Path, tmp_path: Path
    ) -> None:
        """Also where one of them cannot be reached."""
        unknown = "w1.b ansible_host=\"{{ lookup('env', 'W1') }}\""
        inventory.write_text(f"[fabric_worker]\nw1.a ansible_host=192.0.2.1\n{unknown}\n")

        done = self.done(inventory=inventory, arm=written(site("w1"), tmp_path / "arm.graphml"))

        assert "several hosts have its name" in self.said(done, "worker w1").why
        assert "no worker that is this host" in self.said(done, "hosts.w1.a.devices").why
        assert self.loaded(done, tmp_path).hosts["w1.a"].devices == ()

    def test_puts_a_worker_of_which_no_login_is_known_into_no_list(
        self, arm: Path, inventory: Path, tmp_path: Path
    ) -> None:
        inventory.write_text(
            "[fabric_worker]\nrenc-w1 ansible_host=\"{{ lookup('env', 'W1') }}\"\n"
        )

        done = self.done(inventory=inventory, arm=arm)

        assert "renc-w1" not in self.loaded(done, tmp_path).hosts
        assert "how this worker is reached" in self.said(done, f"worker {W1}").why
        assert "hosts.renc-w1.devices" not in {finding.what for finding in done.findings}


@pytest.fixture
def run() -> Callable[..., Result]:
    def invoke(*words: object) -> Result:
        return CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)

    return invoke


class TestTheGuide:
    def test_shows_the_list_that_the_example_becomes(
        self, run: Callable[..., Result], tmp_path: Path
    ) -> None:
        shutil.copytree(ROOT / "examples" / "migrate", tmp_path, dirs_exist_ok=True)
        with chdir(tmp_path):
            result = run(
                "migrate", "--inventory", "inventory", "--arm", "arm.graphml", "--output", "new"
            )
            lines = Path("new/site.yaml").read_text()
        guide = (ROOT / "docs" / "migrating.md").read_text()

        assert result.exit_code == 3, result.output
        shown = re.search(r"hosts:\n  worker1:\n.*?(?=^\S|\Z)", lines, re.DOTALL | re.MULTILINE)
        assert shown
        assert f"```yaml\n{shown[0]}```" in guide

    def test_the_example_is_what_fim_makes(self, tmp_path: Path) -> None:
        made = read(written(site("worker1.localhost"), tmp_path / "arm.graphml"))

        assert read(ROOT / "examples" / "migrate" / "arm.graphml").workers == made.workers


class TestDoctor:
    @pytest.fixture
    def loaded(self, tmp_path: Path) -> Callable[..., Site]:
        number = iter(range(100))

        def load(devices: Any, host: str = "renc-w1") -> Site:
            values = {
                "site": f"ARM{next(number)}",
                "drivers": FAKE_DRIVERS,
                "state_dir": str(tmp_path / "state"),
                "hosts": {host: {"devices": devices}},
            }
            return Site.model_validate(values)

        return load

    def found(self, loaded: Site, arm: Path) -> list[tuple[Verdict, str]]:
        told: list[Diagnosis] = list(check_resource_model(loaded, arm))
        assert all(each.subject.startswith("resource model") for each in told)
        return [(each.verdict, each.found) for each in told]

    def test_says_that_all_is_allowed_as_it_is_advertised(
        self, loaded: Callable[..., Site], arm: Path
    ) -> None:
        assert self.found(loaded(LISTED), arm) == [
            (Verdict.OK, "8 functions are allowed as it has them")
        ]

    def test_counts_the_other_functions_of_a_card_as_advertised(
        self, loaded: Callable[..., Site], arm: Path
    ) -> None:
        other = {"type": "FPGA", "bdf": "0000:c1:00.1"}

        (told,) = self.found(loaded([*LISTED, other]), arm)

        assert told[0] is Verdict.OK

    @pytest.mark.parametrize(
        ("change", "verdict", "words"),
        [
            ({"bdf": "0000:22:00.0"}, Verdict.FAIL, "advertised, and not on the host"),
            (
                {"type": "GPU"},
                Verdict.FAIL,
                "advertised, and allowed as GPU, not as NVME: 0000:21:00.0",
            ),
            ({"model": "P5800"}, Verdict.FAIL, "allowed as P5800, not as P4510: 0000:21:00.0"),
        ],
    )
    def test_names_what_would_be_refused(
        self,
        loaded: Callable[..., Site],
        arm: Path,
        change: dict[str, str],
        verdict: Verdict,
        words: str,
    ) -> None:
        told = self.found(loaded([LISTED[0] | change, *LISTED[1:]]), arm)

        assert told[0][0] is verdict
        assert words in told[0][1]
        assert "0000:21:00.0" in told[0][1]

    def test_names_what_is_allowed_and_not_advertised(
        self, loaded: Callable[..., Site], arm: Path
    ) -> None:
        other = {"type": "NVME", "bdf": "0000:22:00.0"}

        assert self.found(loaded([*LISTED, other]), arm) == [
            (Verdict.WARN, "allowed, and not advertised: 0000:22:00.0")
        ]

    def test_names_what_is_allowed_and_neither_advertised_nor_there(
        self, loaded: Callable[..., Site], arm: Path, there: Callable[..., None]
    ) -> None:
        there()
        other = {"type": "NVME", "bdf": "0000:77:00.0"}

        assert (Verdict.WARN, "allowed, and not advertised: 0000:77:00.0") in self.found(
            loaded([*LISTED, other]), arm
        )

    @pytest.mark.parametrize(
        ("state", "words"),
        [
            (DeviceState.HOST_USED, "advertised, and host-used (said so): 0000:21:00.0"),
            (DeviceState.QUARANTINED, "advertised, and quarantined (said so): 0000:21:00.0"),
            (DeviceState.UNCLEAN, "advertised, and unclean (said so): 0000:21:00.0"),
        ],
    )
    def test_names_what_is_given_to_nobody(
        self,
        loaded: Callable[..., Site],
        arm: Path,
        there: Callable[..., None],
        state: DeviceState,
        words: str,
    ) -> None:
        there({"0000:21:00.0": {"state": state, "why": "said so"}})

        assert self.found(loaded(LISTED), arm) == [(Verdict.FAIL, words)]

    def test_names_what_is_used_now_and_shares_a_group_with_what_is_not_allowed(
        self, loaded: Callable[..., Site], arm: Path, there: Callable[..., None]
    ) -> None:
        peer = PciAddress.parse("0000:25:00.1")
        there(
            {
                "0000:25:00.0": {"state": DeviceState.USED, "peers": (peer,)},
                "0000:25:00.1": {"state": DeviceState.NOT_ALLOWED, "type": None},
            }
        )

        ((verdict, text),) = self.found(loaded(LISTED), arm)

        assert verdict is Verdict.FAIL
        assert "in an IOMMU group with what is not in the allow-list (0000:25:00.1)" in text

    def test_says_of_the_vfs_of_an_uplink_that_they_are_not_there(
        self, loaded: Callable[..., Site], tmp_path: Path, there: Callable[..., None]
    ) -> None:
        made = site()
        component(server(made, W1), "SharedNIC", "slot7", "ConnectX-6", ["0000:e2:00.2"], Labels())
        there(only={})

        ((_, text),) = self.found(
            loaded([{"type": "SharedNIC", "uplink": "ens6"}]),
            written(made, tmp_path / "arm.graphml"),
        )

        assert text == "advertised, and not on the host: 0000:e2:00.2"

    @pytest.fixture
    def there(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Say what the host has: what is listed, but for some; or only what is given."""

        def say(
            but: dict[str, dict[str, Any]] | None = None, only: dict[str, Any] | None = None
        ) -> None:
            of = {d["bdf"]: {"type": d["type"]} for d in LISTED} if only is None else only
            for address, values in (but or {}).items():
                of[address] = of.get(address, {}) | values
            found = [
                HostDevice(
                    PciFunction(PciAddress.parse(address), "8086", "0a54"),
                    **{"state": DeviceState.FREE, **values},
                )
                for address, values in of.items()
            ]
            monkeypatch.setattr(HandlerProcessor, "devices", lambda *_: found)

        return say

    def test_names_a_function_whose_mac_is_another(
        self, loaded: Callable[..., Site], arm: Path
    ) -> None:
        swapped = [
            d | {"mac": "04:3f:72:00:00:01"} if d["bdf"] == "0000:a1:00.1" else d for d in LISTED
        ]

        assert self.found(loaded(swapped), arm) == [
            (Verdict.WARN, "advertised with another MAC than site.yaml has: 0000:a1:00.1")
        ]

    def test_any_model_of_the_allow_list_and_fims_spelling_are_the_same(
        self, loaded: Callable[..., Site], arm: Path
    ) -> None:
        devices = [{k: v for k, v in d.items() if k not in {"model", "mac"}} for d in LISTED]

        (told,) = self.found(loaded(devices), arm)

        assert told[0] is Verdict.OK

    def test_names_a_worker_that_the_site_lacks_and_a_host_that_the_model_lacks(
        self, loaded: Callable[..., Site], arm: Path
    ) -> None:
        told = self.found(loaded([], host="w9"), arm)

        assert (Verdict.WARN, "it has no such worker") in told
        assert any(v is Verdict.FAIL and f"worker {W1} is not a host" in text for v, text in told)

    def test_many_functions_are_counted(self, loaded: Callable[..., Site], tmp_path: Path) -> None:
        made = site()
        vfs = [f"0000:e2:{n // 8:02x}.{n % 8}" for n in range(2, 129)]
        component(server(made, W1), "SharedNIC", "slot7", "ConnectX-6", vfs, Labels(bdf=vfs))

        (told,) = self.found(loaded([]), written(made, tmp_path / "many.graphml"))

        assert told[1].endswith(" and 119 more")

    def test_that_cannot_read_the_model_says_why(
        self, loaded: Callable[..., Site], tmp_path: Path
    ) -> None:
        ((verdict, text),) = self.found(loaded([]), tmp_path / "none.graphml")

        assert verdict is Verdict.FAIL
        assert "none.graphml" in text

    @pytest.mark.usefixtures("logger")  # the command sets our level, and the fixture sets it back
    def test_is_told_the_file_by_an_option(
        self, loaded: Callable[..., Site], arm: Path, run: Callable[..., Result], tmp_path: Path
    ) -> None:
        path = tmp_path / "site.yaml"
        path.write_text(
            yaml.safe_dump(loaded(LISTED).model_dump(mode="json", exclude_defaults=True))
        )

        result = run("--site", path, "doctor", "--arm", arm)

        assert "ok    resource model of renc-w1: 8 functions are allowed" in result.output
