"""What the doctor finds of rules of placement and of NICs at switch ports that site.yaml names."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from fabric_direct.doctor import Verdict, examine
from fabric_direct.doctor.diagnosis import Diagnosis
from fabric_direct.placement import plugins
from fabric_direct.site.config import Site, load_site

SITE = """\
site: TEST
drivers: {VM: fake}
guest: fake
state_dir: state
images: {tiny: {}}
networks:
  lab: {strategy: vlan, uplink: ens8, vlan: 200, subnet: 10.20.2.0/24}
hosts:
  w1:
    devices:
      - {type: SharedNIC, uplink: ens6}
      - {type: SmartNIC, bdf: "0000:41:00.0"}
      - {type: GPU, bdf: "0000:25:00.0"}
"""


@pytest.fixture
def found(tmp_path: Path) -> Any:
    """Return what the doctor says of a subject, at the site with more lines."""

    def examined(subject: str, more: str = "") -> list[Diagnosis]:
        path = tmp_path / "site.yaml"
        path.write_text(SITE + more)
        return [d for d in examine(path, lambda: load_site(path)) if d.subject.startswith(subject)]

    return examined


class TestPlacementRules:
    @pytest.mark.parametrize(
        ("rules", "said"),
        [
            ("without: [nosuch]", "placement.without.nosuch: no filter or cost of this name"),
            ("weights: {nosuch: 1}", "placement.weights.nosuch: no filter or cost of this name"),
            ("without: [host]", "placement.without: the filter host cannot be left out"),
        ],
    )
    def test_that_are_not_there_or_needed_fail_by_their_line(
        self, found: Any, rules: str, said: str
    ) -> None:
        (told,) = found("placement rules", f"placement:\n  {rules}\n")

        assert told.verdict is Verdict.FAIL
        assert f"site.yaml:15: {said}" in told.found
        assert told.remedy

    def test_that_are_there_are_right(self, found: Any) -> None:
        (told,) = found("placement rules", "placement: {weights: {pack: 1}, without: [traits]}\n")
        assert told.verdict is Verdict.OK

    def test_that_cannot_be_loaded_are_a_warning(self, found: Any, mocker: MockerFixture) -> None:
        point = EntryPoint("racks", "absent:racks", "fabric_direct.placement.costs")
        faulty = plugins._load("cost", "racks", [point])
        rules = {"filter": (), "cost": (("racks", faulty),)}
        mocker.patch.object(plugins, "_installed", rules.__getitem__)

        (told,) = found("placement rules", "placement: {weights: {racks: 1}}\n")

        assert told.verdict is Verdict.WARN
        assert "the cost racks is left out: absent:racks: ModuleNotFoundError" in told.found

    def test_of_a_site_that_names_none_are_not_looked_at(self, found: Any) -> None:
        assert found("placement rules") == []


class TestPortsOfSwitches:
    @pytest.mark.parametrize(
        ("end", "said"),
        [
            ("host: w7, uplink: ens6", "p1: no host 'w7'"),
            ("host: w1, uplink: ens9", "p1: neither a device nor a network of w1 is on ens9"),
            (
                "host: w1, bdf: '41:00.1'",
                "p1: neither a device nor a network of w1 is on 0000:41:00.1",
            ),
            (
                "host: w1, bdf: '25:00.0'",
                "p1: neither a device nor a network of w1 is on 0000:25:00.0",
            ),
        ],
    )
    def test_with_a_nic_that_is_not_there_are_a_warning(
        self, found: Any, end: str, said: str
    ) -> None:
        ports = f"switches: {{sw1: {{driver: fake, ports: {{p1: {{{end}}}, p2: {{}}}}}}}}\n"
        (told,) = found("ports of switch sw1", ports)

        assert (told.verdict, told.found) == (Verdict.WARN, said)

    @pytest.mark.parametrize(
        "end", ["host: w1, uplink: ens6", "host: w1, bdf: '41:00.0'", "host: w1, uplink: ens8"]
    )
    def test_with_a_nic_of_a_device_or_a_network_are_right(self, found: Any, end: str) -> None:
        assert (
            found("ports of", f"switches: {{sw1: {{driver: fake, ports: {{p1: {{{end}}}}}}}}}\n")
            == []
        )

    def test_with_the_uplink_of_a_host_in_memory_are_right(self, fake_site: Site) -> None:
        values = fake_site.model_dump() | {
            "fake": {"hosts": {"localhost": {"vfs": 2}}},
            "switches": {"sw1": {"ports": {"p1": {"host": "localhost", "uplink": "ens1"}}}},
        }
        site = Site.model_validate(values)

        assert "ports of switch sw1" not in [d.subject for d in examine(None, lambda: site)]
