"""Which drivers serve a site that does not name them all: those of others never have this machine's."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.fake import Substrate
from fabric_direct.errors import InvalidSite, Unsupported
from fabric_direct.handlers import registry
from fabric_direct.model import NodeSliver, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done
from tests.unit.driver_packages import Packages, packages
from tests.unit.test_documentation import ROOT
from tests.unit.test_driver_packages import VM

__all__ = ["packages"]

SERVERS = "from fabric_direct.drivers.fake import FakeCompute as Servers\n"
SITE = """\
site: TEST
state_dir: state
drivers: {VM: acme%s}
guest: none
fake: {keep: true}
hosts: {localhost: {devices: [{type: GPU, bdf: "25:00.0"}]}}
images: {tiny: {}}
networks:
  red: {strategy: flat_dhcp, subnet: 10.20.1.0/24}
"""
BARE = VM.partition("components:")[0]
NIC = {"id": "eth0", "type": "vNIC", "network": "red"}


def node(**values: Any) -> NodeSliver:
    return NodeSliver.model_validate(
        {
            "id": "vm-1",
            "name": "node",
            "image": "tiny",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            **values,
        }
    )


@pytest.fixture
def acme(packages: Packages) -> Packages:
    """A site whose VMs are made by a driver of another package, which has no other driver."""
    packages.module("acme", SERVERS)
    packages.install("acme-servers", compute={"acme": "acme:Servers"})
    packages.write("site.yaml", SITE % "")
    packages.write("vm.yaml", BARE)
    return packages


class TestADriverOfOthers:
    def test_makes_lists_and_deletes_vms_alone(self, acme: Packages) -> None:
        for argv in (["create", "vm.yaml"], ["list"], ["probe", "vm.yaml"], ["delete", "vm.yaml"]):
            done = acme.run(*argv)
            assert (done.returncode, done.stderr) == (0, ""), (argv, done.stdout)

    @pytest.mark.parametrize(
        ("argv", "key"),
        [
            (["poa", "vm-1", "cpuinfo"], "tuning"),
            (["poa", "vm-1", "numainfo"], "tuning"),
            (["uplink", "localhost", "ens1"], "uplink"),
            (["devices", "release", "localhost", "25:00.0"], "GPU"),
        ],
    )
    def test_asks_nothing_of_this_machine(self, acme: Packages, argv: list[str], key: str) -> None:
        acme.run("create", "vm.yaml")

        done = acme.run(*argv)

        said = done.stdout + done.stderr
        assert done.returncode == 1, said
        assert f"site.yaml names no driver for {key}, and that of VM has no default" in said
        assert f"name one below drivers in site.yaml: {key}" in said

    @pytest.mark.parametrize(
        ("component", "key"),
        [
            ("{id: eth0, type: vNIC, network: red}", "vNIC"),
            ("{id: data, type: Storage, size: 1}", "Storage"),
            ("{id: gpu, type: GPU, bdf: ['25:00.0']}", "GPU"),
        ],
    )
    def test_leaves_nothing_of_a_vm_with_what_nothing_serves(
        self, acme: Packages, component: str, key: str
    ) -> None:
        acme.write("vm.yaml", f"{BARE}components:\n  - {component}\n")

        done = acme.run("create", "vm.yaml")

        said = done.stdout + done.stderr
        assert done.returncode == 1, said
        assert f"Unsupported: {'components[0]'}" in said or "Unsupported: no " in said
        assert f"site.yaml names no driver for {key}, " in said
        assert "No slivers" in acme.run("list").stdout

    def test_is_swept_and_examined_as_others(self, acme: Packages) -> None:
        acme.write("expected.yaml", "{count: 1, slivers: [vm-1]}")

        for argv in (["sweep", "--expected", "expected.yaml"], ["doctor"], ["devices"]):
            done = acme.run(*argv)
            assert done.returncode == 0, (argv, done.stdout, done.stderr)

    def test_is_refused_without_a_driver_for_guests(self, acme: Packages) -> None:
        acme.write("site.yaml", (SITE % "").replace("guest: none\n", ""))

        for argv in (["create", "vm.yaml"], ["doctor"]):
            done = acme.run(*argv)
            assert "guest: names no driver for guests" in done.stdout + done.stderr
            assert "Traceback" not in done.stderr

    def test_is_combined_with_those_that_site_yaml_names(self, acme: Packages) -> None:
        acme.write("site.yaml", SITE % ", tuning: fake, uplink: fake, GPU: fake")
        assert acme.run("create", "vm.yaml").returncode == 0

        assert '"host_cpus": 64' in acme.run("--json", "poa", "vm-1", "cpuinfo").stdout
        assert acme.run("uplink", "localhost", "ens1").returncode == 2  # there is no such link
        assert acme.run("devices", "localhost").returncode == 0

    def test_may_say_which_ones_serve_its_vms(self, acme: Packages) -> None:
        acme.module(
            "acme",
            "from fabric_direct.drivers.fake import FakeCompute\n"
            "class Servers(FakeCompute):\n"
            "    @staticmethod\n"
            "    def default_drivers(site):\n"
            "        return {'tuning': 'fake', 'guest': 'fake'}\n",
        )
        acme.write("site.yaml", (SITE % "").replace("guest: none\n", ""))

        assert acme.run("create", "vm.yaml").returncode == 0
        assert acme.run("poa", "vm-1", "cpuinfo").returncode == 0


class TestASiteWithoutVolumes:
    """``drivers: {Storage: none}``: a cloud without Cinder, for example."""

    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        fields = fake_site.model_dump(exclude_unset=True)
        return Site.model_validate(fields | {"drivers": fake_site.drivers | {"Storage": "none"}})

    def test_makes_changes_lists_and_deletes_vms(self, processor: HandlerProcessor) -> None:
        wanted = node()
        done(processor.create(wanted).result())
        assert [server.sliver for server in processor.slivers()] == [wanted.id]
        done(processor.modify(node(components=[NIC])).result())
        done(processor.probe(wanted).result())
        done(processor.delete(wanted.ref()).result())
        assert processor.slivers() == ()

    @pytest.mark.parametrize("named", [{"size": 1}, {"volume": "shared"}])
    @pytest.mark.parametrize("ask", ["create", "plan", "modify"])
    def test_refuses_a_volume_before_anything_is_done(
        self, ask: str, named: dict[str, Any], processor: HandlerProcessor
    ) -> None:
        if ask == "modify":
            done(processor.create(node()).result())
        volume = {"id": "data", "type": "Storage", **named}

        outcome = getattr(processor, ask)(node(components=[NIC, volume])).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert (outcome.error.kind, outcome.error.field) == ("InvalidSliver", "components[1]")
        assert "this site has no Storage" in outcome.error.message

    def test_leaves_a_vm_alone_that_has_a_volume_all_the_same(
        self, fake_site: Site, site: Site, fakes: Substrate
    ) -> None:
        volumes = [{"id": name, "type": "Storage", "size": 1} for name in ("data", "more")]
        with HandlerProcessor(fake_site) as with_volumes:
            done(with_volumes.create(node(components=volumes)).result())
        before = set(fakes.servers), set(fakes.volumes)

        with HandlerProcessor(site) as processor:
            outcomes = [processor.delete(node().ref()).result(), processor.modify(node()).result()]

        for outcome in outcomes:
            assert outcome.status is Status.REFUSED
            assert outcome.error
            assert outcome.error.kind == "InvalidSite"
            assert "sliver vm-1 has volumes of its own: data, more" in outcome.error.message
        assert (set(fakes.servers), set(fakes.volumes)) == before

    def test_deletes_a_vm_with_a_volume_that_was_there_before(
        self, fake_site: Site, site: Site, fakes: Substrate
    ) -> None:
        fakes.existing["shared"] = Volume("", "", "/fake/shared", 1)
        shared = {"id": "data", "type": "Storage", "volume": "shared"}
        with HandlerProcessor(fake_site) as with_volumes:
            done(with_volumes.create(node(components=[shared])).result())

        with HandlerProcessor(site) as processor:
            done(processor.delete(node().ref()).result())

    def test_says_so_of_volumes_alone(self, fake_site: Site) -> None:
        fields = fake_site.model_dump(exclude_unset=True)
        for key in ("VM", "vNIC", "GPU"):
            with pytest.raises(ValidationError, match=f"{key}: no .* driver 'none'"):
                Site.model_validate(fields | {"drivers": fake_site.drivers | {key: "none"}})


def chosen(site: Site) -> dict[str, str]:
    """Return the drivers of a site's VMs, as the table of the documents has them."""
    uses = registry.drivers_in_use(site)
    single = {use.kind: use.name for use in uses if use.kind not in {"device", "service"}}
    devices = {key: use.name for key, use in registry._device_drivers(site).items()}
    return single | devices


def table() -> dict[str, list[str]]:
    """Return the columns of the table of defaults, without the quotes of its code."""
    text = (ROOT / "docs/drivers.md").read_text()
    rows = re.findall(r"^\| (.*) \|$", text.partition("## Which driver is chosen")[2], re.MULTILINE)
    cells = [[cell.strip().replace("`", "") for cell in row.split("|")] for row in rows]
    return {row[0]: row[1:] for row in cells[1:]}


KEYS = {
    "network": "vNIC",
    "volume": "Storage",
    "tuning": "tuning",
    "uplink": "uplink",
    "guest": "guest",
    **{t: t for t in ("GPU", "SmartNIC", "SharedNIC", "FPGA", "FPGA_Xilinx-SN1022", "NVME")},
}


@pytest.mark.parametrize(("column", "server"), list(enumerate(("libvirt", "openstack", "fake"))))
def test_the_table_of_the_documents_is_so(tmp_path: Path, column: int, server: str) -> None:
    cloud = {"openstack": {"cloud": "c"}} if server == "openstack" else {}
    site = Site.model_validate(
        {"site": "x", "state_dir": tmp_path, "drivers": {"VM": server}, **cloud}
    )
    found = chosen(site)

    for kind, key in KEYS.items():
        said = table()[key][column]
        assert found.get(kind, found.get("FPGA") if key.startswith("FPGA") else None) == said, key


def test_guests_of_libvirt_have_ssh_where_there_is_a_cloud(tmp_path: Path) -> None:
    site = Site.model_validate({"site": "x", "openstack": {"cloud": "c"}, "state_dir": tmp_path})

    assert registry.guest_driver(site) == "ssh"


def test_the_missing_driver_of_guests_is_told_by_its_field(fake_site: Site) -> None:
    site = fake_site.model_copy(update={"guest": None, "drivers": {"VM": "fake"}})
    assert registry.guest_driver(site) == "fake"


def test_a_host_that_the_site_does_not_know_is_told_as_before(fake_site: Site) -> None:
    drivers = registry.host_drivers(fake_site, "elsewhere")

    error = drivers.unsupported("nothing can be looked at", "tuning")

    assert isinstance(error, Unsupported)
    assert "the site does not know the libvirt of the host" in str(error)
    assert not isinstance(error, InvalidSite)
