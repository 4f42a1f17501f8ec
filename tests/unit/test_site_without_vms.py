"""A site that serves no VMs is asked for nothing that only VMs need."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabric_direct.cli import main
from fabric_direct.doctor import examine
from fabric_direct.errors import InvalidSite
from fabric_direct.handlers import registry
from fabric_direct.model import NodeSliver, Outcome, SliverRef, State
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site, load_site
from labs.network import nso_standin
from labs.network.nso_standin import PASSWORD, USER, Controller
from tests.trust.clock import skipping_pauses
from tests.unit.nso_services import SAMPLES
from tests.unit.test_imports import imported

EXAMPLES = Path(__file__).parents[2] / "examples" / "migrate"
NSO = {"url": "http://127.0.0.1:9/restconf", "user": "am", "password_file": "/nowhere"}
SERVED = ("L2STS", "FABNetv4", "FABNetv4Ext")
"""The types of the example's `net_handler_config.yml`."""


def site(tmp_path: Path, **values: Any) -> Site:
    has = {"site": "NET", "state_dir": tmp_path / "state", "drivers": {"L2STS": "nso"}}
    return Site.model_validate(has | {"services": {"nso": NSO}} | values)


SITES: dict[str, dict[str, Any]] = {
    "alone": {},
    "with a cloud that nothing needs": {"openstack": {"cloud": "x"}},
    "with workers": {"openstack": {"cloud": "x"}, "hosts": {"w1": {}, "w2": {}}},
    "with devices that nobody gets": {
        "hosts": {"w1": {"devices": [{"type": "GPU", "bdf": "25:00.0"}]}}
    },
    "that looks into guests by SSH": {"guest": "ssh"},
    "of networks in a cloud": {"drivers": {"L2Bridge": "openstack"}, "openstack": {"cloud": "x"}},
    "of switches": {"drivers": {"Switch": "p4switch"}},
}


@pytest.fixture(params=SITES.values(), ids=SITES)
def network_site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return site(tmp_path, **request.param)


class TestWhoServesVms:
    @pytest.mark.parametrize(
        "values",
        [
            {"drivers": {}},
            {"drivers": {"L2STS": "nso", "VM": "libvirt"}},
            {"drivers": {"L2STS": "nso", "FPGA_Xilinx-SN1022": "sn1022"}},
            {"drivers": {"L2STS": "nso", "vNIC": "openstack"}},
            {"images": {"default_rocky_9": {}}},
        ],
    )
    def test_a_site_that_names_none_of_them_but_a_part_or_an_image(
        self, values: dict[str, Any], tmp_path: Path
    ) -> None:
        assert site(tmp_path, **values).serves_vms

    def test_not_one_that_names_network_services_and_switches_alone(
        self, network_site: Site
    ) -> None:
        assert not network_site.serves_vms


class TestDrivers:
    def test_none_but_those_of_services_are_used(self, network_site: Site) -> None:
        used = registry.drivers_in_use(network_site)
        assert {use.kind for use in used} == {"service"}

    def test_those_of_services_are_made_without_a_key_for_guests(self, network_site: Site) -> None:
        for host in ("", *network_site.hosts):
            drivers = registry.host_drivers(network_site, host)
            assert drivers.services.keys() == network_site.drivers.keys()
            assert drivers.guest is None

    def test_no_library_of_others_is_imported(self, tmp_path: Path) -> None:
        code = """
from fabric_direct.handlers import registry
from fabric_direct.site.config import Site
site = Site.model_validate({"site": "NET", "drivers": {"L2STS": "nso"}, "guest": "ssh"})
registry.host_drivers(site, "localhost")
"""
        assert not imported(code) & {"libvirt", "openstack", "paramiko", "pyroute2"}

    def test_a_site_with_vms_still_needs_the_key(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSite) as refused:
            registry.host_drivers(site(tmp_path, guest="ssh", images={"i": {}}), "localhost")
        assert refused.value.field == "guest_access.ssh_key"


VM = {"id": "vm1", "name": "n", "image": "i", "capacities": {"core": 1, "ram": 1, "disk": 10}}
PORT = {"id": "p", "server": "vm1", "interface": {"mac": "02:00:00:00:00:01"}}
SLIVERS: dict[str, Any] = {
    "VM": NodeSliver.model_validate(VM),
    "VM on any host": NodeSliver.model_validate(VM | {"host": "auto"}),
    "ports": VNicPortsSliver.model_validate({"id": "s", "network": "n", "ports": [PORT]}),
}


class TestWhatOnlyASiteWithVmsDoes:
    @pytest.fixture
    def processor(self, network_site: Site) -> Iterator[HandlerProcessor]:
        with HandlerProcessor(network_site) as processor:
            yield processor

    @pytest.mark.parametrize("sliver", SLIVERS.values(), ids=SLIVERS)
    @pytest.mark.parametrize("operation", ["create", "modify", "delete", "probe", "plan"])
    def test_a_sliver_of_it_is_refused_with_what_to_write(
        self, operation: str, sliver: Any, processor: HandlerProcessor
    ) -> None:
        outcome: Outcome = getattr(processor, operation)(sliver).result()
        assert outcome.error is not None
        assert (outcome.error.kind, outcome.error.field) == ("InvalidSite", "drivers")
        assert "names no driver for VM" in outcome.error.message
        assert not processor.unfinished()

    def test_one_by_its_id_alone_is_refused_too(self, processor: HandlerProcessor) -> None:
        ref = SliverRef(id="vm1", type="VM")
        for outcome in (processor.delete(ref).result(), processor.reconcile(ref).result()):
            assert outcome.error is not None
            assert outcome.error.kind == "InvalidSite"

    def test_there_are_no_servers_and_nothing_that_differs(
        self, processor: HandlerProcessor, network_site: Site
    ) -> None:
        assert processor.slivers() == ()
        drift = processor.drift()
        assert (drift.drifts, drift.servers) == ((), ())
        assert (
            drift.silent.keys() <= network_site.drivers.keys()
        )  # of services, which are not there


def of_doctor(path: Path) -> dict[str, str]:
    """Return what the doctor checks of a site, and how it is."""
    return {d.subject: d.verdict.value for d in examine(path, lambda: load_site(path))}


class TestWhatAnAmOfNetworksMovesOverTo:
    """All by commands, from fabric_am's files to services that a controller has."""

    @pytest.fixture
    def nso(self) -> Controller:
        return Controller()

    @pytest.fixture
    def moved(self, nso: Controller, tmp_path: Path) -> Iterator[Path]:
        """Return site.yaml as `migrate` wrote it, but for where the password is."""
        url, end = nso_standin.serve(nso)
        inventory = (EXAMPLES / "inventory").read_text()
        there = f"url={url.replace('/restconf', '/jsonrpc')}"
        inventory = inventory.replace("url=https://127.0.0.5/jsonrpc", there)
        (tmp_path / "inventory").write_text(
            inventory.replace("nso.localhost username=am", f"nso.localhost username={USER}")
        )
        named = ("--inventory", tmp_path / "inventory", "--actor-config", EXAMPLES / "config.yml")
        words = ("--net", EXAMPLES / "net_handler_config.yml", *named, "--output", tmp_path)
        done = CliRunner().invoke(main, ["migrate", *map(str, words)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        password = tmp_path / "password"
        password.write_text(f"{PASSWORD}\n")
        password.chmod(0o600)
        path = tmp_path / "site.yaml"
        text = path.read_text().replace("/etc/fabric-direct/nso-password", str(password))
        path.write_text(f"{text}state_dir: {tmp_path / 'state'}\n")
        with skipping_pauses():
            yield path
        end()

    def test_asks_for_what_its_types_need_alone(self, moved: Path) -> None:
        site = load_site(moved)
        assert site.drivers == dict.fromkeys(SERVED, "nso")
        assert site.services.nso is not None
        assert (site.openstack, site.services.al2s, site.p4_switches) == (None, None, {})
        assert not (moved.parent / "clouds.yaml").exists()

    def test_serves_each_of_its_types(self, moved: Path, nso: Controller) -> None:
        with HandlerProcessor(load_site(moved)) as processor:
            for kind in SERVED:
                wanted = SAMPLES[kind]
                assert processor.create(wanted).result().error is None
                assert nso.names()
                assert processor.modify(wanted).result().error is None
                seen = processor.probe(wanted).result().observed
                assert seen is not None
                assert (seen.state, seen.differences) == (State.RUNNING, ())
                gone = processor.delete(wanted.ref()).result()
                assert (gone.error, gone.left, nso.names()) == (None, (), [])

    def test_passes_the_doctor(self, moved: Path) -> None:
        found = of_doctor(moved)
        assert set(found.values()) <= {"ok", "info"}, found
        assert "NSO" in found
        assert not [about for about in found if "libvirt" in about or "KVM" in about]
