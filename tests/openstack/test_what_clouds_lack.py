"""What a cloud may lack: slivers that do not need it are served, others are refused by name.

Services are taken out of the catalog of a project: its administrator sees a cloud without them.
"""

import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from openstack.connection import Connection

from fabric_direct.doctor import Diagnosis, Verdict
from fabric_direct.doctor.cloud import examine_cloud
from fabric_direct.model import AUTO, NodeSliver, SliverRef, State, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import WORKER, Things, cloud_settings, nic, ours, run_in, sliver
from tests.openstack.target import TARGET, XDIST_NUMBER
from tests.outcomes import done, made

MakeSite = Callable[..., Site]
LACKED = {"block-storage", "volumev3", "placement"}
DATA = {"type": "Storage", "id": "data", "size": 1}
NICS = [nic("eth0", TARGET.network, floating_ip=True)]
PING_AND_SSH = ("icmp", None), ("tcp", 22)


def lacking(**values: Any) -> NodeSliver:
    return sliver("lacking", **({"components": NICS} | values))


@pytest.fixture(scope="module")
def settings(
    cloud: Connection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """An administrator of a project whose catalog has neither Cinder nor Placement."""
    if not TARGET.is_lab:
        pytest.skip("makes a project and a user: only in the lab")
    keystone, name, password = cloud.identity, ours("lacking"), secrets.token_hex(8)
    project = keystone.create_project(name=name, domain_id="default")
    user = keystone.create_user(name=name, password=password, domain_id="default")
    try:
        keystone.assign_project_role_to_user(project, user, keystone.find_role("admin"))
        there = {s.id for s in keystone.services() if s.type not in LACKED}
        for endpoint in (e for e in keystone.endpoints() if e.service_id in there):
            keystone.put(f"/OS-EP-FILTER/projects/{project.id}/endpoints/{endpoint.id}")
        let_in(cloud, project.id)
        whole = yaml.safe_load(Path(str(TARGET.clouds_file)).read_text())["clouds"][TARGET.cloud]
        whole["auth"] |= {"username": name, "password": password, "project_name": name}
        path = tmp_path_factory.mktemp("clouds") / "clouds.yaml"
        path.write_text(yaml.safe_dump({"clouds": {"lacking": whole}}))
        yield cloud_settings(TARGET.cloud) | {"cloud": "lacking", "clouds_file": str(path)}
    finally:
        for group in cloud.network.security_groups(project_id=project.id):
            cloud.network.delete_security_group(group)
        keystone.delete_user(user)
        keystone.delete_project(project)


def let_in(cloud: Connection, project: str) -> None:
    """Let ping and SSH into servers of a project."""
    (group,) = cloud.network.security_groups(project_id=project, name="default")
    for protocol, port in PING_AND_SSH:
        cloud.network.create_security_group_rule(
            security_group_id=group.id,
            direction="ingress",
            ethertype="IPv4",
            protocol=protocol,
            port_range_min=port,
            port_range_max=port,
        )


@pytest.fixture(scope="module")
def site(make_site: MakeSite, settings: dict[str, Any]) -> Site:
    return make_site(openstack=settings, drivers={"VM": "openstack", "Storage": "none"})


@pytest.fixture(autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    done(processor.delete(SliverRef(id=ours("lacking"))).result())
    assert things() == set()


def of(subject: str, found: list[Diagnosis]) -> Diagnosis:
    return next(d for d in found if d.subject == subject)


class TestCinder:
    @pytest.mark.long
    def test_a_vm_lives_without_it(self, processor: HandlerProcessor, things: Things) -> None:
        wanted = lacking(boot_script="#!/bin/sh\necho hello > /hello.txt\n")

        found = done(processor.create(wanted).result()).observed
        assert found
        assert (found.state, found.host, found.volumes) == (State.RUNNING, WORKER, ())
        assert run_in(processor, wanted, "cat", "/hello.txt") == "hello\n"
        assert made(done(processor.create(wanted).result())) == set()
        assert [server.sliver for server in processor.slivers()] == [wanted.id]

        changed = lacking(components=[*NICS, nic("eth1", TARGET.network)])
        modified = done(processor.modify(changed).result()).observed
        assert modified
        assert len(modified.interfaces) == 2
        done(processor.poa(changed, "reboot", {}).result())

        done(processor.delete(wanted.ref()).result())
        assert things() == set()

    @pytest.mark.parametrize("volume", [DATA, {"type": "Storage", "id": "data", "volume": "any"}])
    def test_a_volume_is_refused_before_anything_is_made(
        self, volume: dict[str, Any], processor: HandlerProcessor, things: Things
    ) -> None:
        outcome = processor.create(lacking(components=[*NICS, volume])).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert (outcome.error.kind, outcome.error.field) == ("InvalidSliver", "components[1]")
        assert "this site has no Storage" in outcome.error.message
        assert things() == set()

    def test_a_site_that_does_not_say_so_is_told_to(
        self, make_site: MakeSite, settings: dict[str, Any]
    ) -> None:
        site = make_site(openstack=settings)
        found = of("volume", list(examine_cloud(site)))
        assert found.verdict is Verdict.FAIL
        assert "not present in the service catalog" in found.found
        assert "Storage: none" in found.remedy

        with HandlerProcessor(site) as processor:
            outcome = processor.create(lacking()).result()
        assert outcome.error
        assert (outcome.error.kind, outcome.left) == ("Unsupported", ())

    def test_the_doctor_asks_nothing_of_it(self, site: Site) -> None:
        found = list(examine_cloud(site))
        assert {"volume", "rights in Cinder", "volume type"}.isdisjoint(d.subject for d in found)
        assert [d for d in found if d.verdict is Verdict.FAIL] == []


class TestPlacement:
    def test_a_sliver_that_leaves_its_worker_to_us_is_refused(
        self, processor: HandlerProcessor
    ) -> None:
        outcome = processor.create(lacking(host=AUTO)).result()

        assert outcome.error
        assert outcome.error.kind == "Unsupported"
        assert "what the workers have" in outcome.error.message

    def test_the_doctor_says_so(self, site: Site) -> None:
        found = of("placement", list(examine_cloud(site)))
        assert found.verdict is Verdict.INFO
        assert "host: auto is refused" in found.found


@pytest.fixture
def inside(make_site: MakeSite, settings: dict[str, Any]) -> Iterator[HandlerProcessor]:
    """A site without an external network."""
    drivers = {"VM": "openstack", "Storage": "none"}
    alone = make_site(openstack=settings | {"external_network": None}, drivers=drivers)
    with HandlerProcessor(alone) as processor:
        yield processor


class TestFloatingIps:
    def test_one_is_refused_where_there_is_no_external_network(
        self, inside: HandlerProcessor
    ) -> None:
        outcome = inside.create(lacking()).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == "components[0].interface.floating_ip"
        assert "openstack.external_network" in outcome.error.message


@pytest.fixture(scope="module")
def six(cloud: Connection) -> Iterator[str]:
    """A network with IPv6 alone, reached from here by the router."""
    number = f"fd00:10:10:{0xA0 + XDIST_NUMBER:x}::"
    network = cloud.network.create_network(name=ours("six"))
    subnet = cloud.network.create_subnet(
        name=ours("six"),
        network_id=network.id,
        ip_version=6,
        cidr=f"{number}/64",
        ipv6_ra_mode="slaac",
        ipv6_address_mode="slaac",
    )
    router = cloud.network.find_router("router1")
    cloud.network.add_interface_to_router(router, subnet.id)
    route = (f"{number}/64", "via", "fd00:172:24:4::2")
    subprocess.run(["ip", "-6", "route", "add", *route], check=True)
    yield network.name
    subprocess.run(["ip", "-6", "route", "del", *route], check=True)
    cloud.network.remove_interface_from_router(router, subnet.id)
    cloud.network.delete_network(network)


class TestIPv4:
    @pytest.mark.long
    def test_a_vm_lives_with_ipv6_alone(
        self, six: str, make_site: MakeSite, things: Things
    ) -> None:
        wanted = lacking(components=[nic("eth0", six)])
        with HandlerProcessor(make_site()) as processor:
            found = done(processor.create(wanted).result()).observed
            assert found
            assert found.guest
            assert found.guest.boot_finished
            (eth0,) = found.interfaces
            assert all(":" in address for address in eth0.addresses)
            assert set(eth0.addresses) <= set(eth0.guest_addresses)
            assert made(done(processor.create(wanted).result())) == set()
            done(processor.delete(wanted.ref()).result())
        assert things() == set()


class TestDisks:
    @pytest.fixture
    def diskless(self, cloud: Connection) -> Iterator[str]:
        """A flavor whose servers boot from volumes."""
        flavor = cloud.compute.create_flavor(name=ours("diskless"), ram=1024, vcpus=1, disk=0)
        yield flavor.name
        cloud.compute.delete_flavor(flavor)

    def test_a_flavor_without_one_is_refused(
        self, diskless: str, processor: HandlerProcessor
    ) -> None:
        outcome = processor.create(lacking(flavor=diskless)).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == "flavor"
        assert "no disk (its servers boot from volumes)" in outcome.error.message
