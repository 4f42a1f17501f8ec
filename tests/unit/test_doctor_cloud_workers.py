"""What the doctor finds of a cloud's workers as machines, and of what guests and devices need."""

from collections.abc import Callable
from typing import Any

import libvirt
import pytest
from openstack.connection import Connection
from pytest_mock import MockerFixture

from fabric_direct.doctor import Verdict, cloud_contents
from fabric_direct.doctor.cloud_workers import check_distinct, check_machine, check_root_ports
from fabric_direct.drivers.libvirt.connection import connections
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import Unreachable
from fabric_direct.site.config import Site
from tests.unit.openstack_api import OpenStackApi

FORBIDDEN = {"forbidden": {"code": 403, "message": "Policy doesn't allow it to be performed."}}
ONE, OTHER = "610c02c6-1c21-49fd-b0db-efb0d17edb88", "7e3b6a52-4f0e-4a8e-9a41-0d7a5f1d3c11"
SYSTEM = "4c4c4544-0035-4b10-8053-b7c04f4d4d32"
GPU = {"type": "GPU", "bdf": "0000:25:00.0"}
NOVA = '<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"/>'
PORT = "<controller type='pci' index='{0}' model='pcie-root-port'>{1}</controller>"
AT = "<address type='pci' domain='0x0000' bus='0x{:02x}' slot='0x{:02x}' function='0x0'/>"

Libvirt = Callable[..., None]


def domain(*, machine: str = "pc-q35-7.2", ports: int = 2, taken: int = 1, by: str = NOVA) -> str:
    roots = "".join(PORT.format(n + 1, AT.format(0, n + 1)) for n in range(ports))
    nics = "".join(f"<interface>{AT.format(n + 1, 0)}</interface>" for n in range(taken))
    kind = f"<os><type machine='{machine}'>hvm</type></os>"
    name = "<name>instance-00000002</name>"
    devices = f"<devices>{roots}{nics}</devices>"
    return f"<domain>{name}{kind}<metadata>{by}</metadata>{devices}</domain>"


@pytest.fixture
def libvirts(mocker: MockerFixture) -> Libvirt:
    """Say what the libvirt at a URI tells of its machine."""
    known: dict[str, Any] = {}

    def connect(uri: str) -> Any:
        if uri not in known:
            raise Unreachable("cannot connect to libvirt", where=uri)
        return known[uri]

    def say(uri: str, name: str, uuid: str = SYSTEM, **domains: str) -> None:
        there = known[uri] = mocker.Mock(spec=libvirt.virConnect)
        there.getHostname.return_value = name
        there.getCapabilities.return_value = (
            f"<capabilities><host><uuid>{uuid}</uuid></host></capabilities>"
        )
        there.listAllDomains.return_value = [
            mocker.Mock(**{"UUIDString.return_value": key, "XMLDesc.return_value": xml})
            for key, xml in domains.items()
        ]

    mocker.patch.object(connections, "connect", side_effect=connect)
    return say


@pytest.fixture
def connection(api: OpenStackApi) -> Connection:
    return cloud(api.settings)


@pytest.fixture
def site(api: OpenStackApi) -> Site:
    hosts = {"w1": {"libvirt": "qemu+ssh://a/system", "devices": [GPU]}}
    return api.site(hosts=hosts | {"w2": {"libvirt": "qemu+ssh://b/system"}}, images={"tiny": {}})


def hypervisor(api: OpenStackApi, name: str = "node1", service: str = "w1") -> None:
    about = {"host": service, "disabled_reason": None}
    found = {"id": ONE, "service": about, "state": "up", "status": "enabled", "cpu_info": None}
    found["hypervisor_hostname"] = name
    api.answer("GET", "compute", "/os-hypervisors/detail", {"hypervisors": [found]})


def servers(api: OpenStackApi, *ids: str) -> None:
    found = [{"id": server, "name": server} for server in ids]
    api.answer("GET", "compute", "/servers", {"servers": found})


class TestMachines:
    def test_one_that_calls_itself_as_nova_does_is_the_same(
        self, api: OpenStackApi, connection: Connection, site: Site, libvirts: Libvirt
    ) -> None:
        hypervisor(api, "Node1.example.org")
        servers(api)
        libvirts("qemu+ssh://a/system", "node1")
        found = check_machine(connection, site, "w1")
        assert (found.verdict, found.found) == (Verdict.OK, "qemu+ssh://a/system is node1")

    def test_one_of_another_name_fails(
        self, api: OpenStackApi, connection: Connection, site: Site, libvirts: Libvirt
    ) -> None:
        hypervisor(api, "node1.a.org")
        servers(api)
        libvirts("qemu+ssh://a/system", "node1.b.org")
        found = check_machine(connection, site, "w1")
        assert found.verdict is Verdict.FAIL
        assert found.found == (
            "qemu+ssh://a/system is node1.b.org, and Nova's worker is node1.a.org"
        )
        assert "hosts.w1.libvirt" in found.remedy

    def test_one_that_has_novas_servers_is_the_same_whatever_its_name(
        self, api: OpenStackApi, connection: Connection, site: Site, libvirts: Libvirt
    ) -> None:
        hypervisor(api, "node1")
        servers(api, ONE, OTHER)
        libvirts("qemu+ssh://a/system", "renamed", **{ONE: domain()})
        found = check_machine(connection, site, "w1")
        assert found.verdict is Verdict.OK
        assert found.found.endswith("is renamed, 1 of Nova's 2 active servers")

    def test_one_that_has_none_of_novas_servers_is_another_whatever_its_name(
        self, api: OpenStackApi, connection: Connection, site: Site, libvirts: Libvirt
    ) -> None:
        hypervisor(api, "localhost.localdomain")
        servers(api, ONE)
        libvirts("qemu+ssh://a/system", "localhost.localdomain", **{OTHER: domain()})
        found = check_machine(connection, site, "w1")
        assert found.verdict is Verdict.FAIL
        assert "has none of the servers that Nova has on w1" in found.found
        query = {"all_tenants": "True", "host": "w1", "status": "ACTIVE"}
        assert api.calls[-1] == ("GET", "compute", "/servers", query)

    def test_nova_is_asked_for_no_workers_uptime(
        self, api: OpenStackApi, connection: Connection, site: Site, libvirts: Libvirt
    ) -> None:
        """From microversion 2.88 on it would ask each, and wait for one that does not answer."""
        hypervisor(api)
        servers(api)
        libvirts("qemu+ssh://a/system", "node1")
        check_machine(connection, site, "w1")
        asked = [r for r in api.requests if "os-hypervisors" in (r.url or "")]
        assert [r.headers["OpenStack-API-Version"] for r in asked] == ["compute 2.53"]

    def test_one_whose_libvirt_does_not_answer_is_not_known(
        self, api: OpenStackApi, connection: Connection, site: Site, libvirts: Libvirt
    ) -> None:
        hypervisor(api)
        servers(api)
        libvirts("qemu+ssh://elsewhere/system", "node1")
        found = check_machine(connection, site, "w1")
        assert (found.verdict, found.found) == (
            Verdict.INFO,
            "not known: cannot connect to libvirt",
        )

    @pytest.mark.parametrize("tells", [False, True])
    def test_one_that_nova_says_nothing_of_is_not_known(
        self,
        api: OpenStackApi,
        connection: Connection,
        site: Site,
        libvirts: Libvirt,
        tells: bool,
    ) -> None:
        if tells:
            hypervisor(api, service="w7")
        else:
            api.answer("GET", "compute", "/os-hypervisors/detail", FORBIDDEN, status=403)
        api.answer("GET", "compute", "/servers", FORBIDDEN, status=403)
        libvirts("qemu+ssh://a/system", "node1")
        found = check_machine(connection, site, "w1")
        assert (found.verdict, found.found) == (
            Verdict.INFO,
            "not known: Nova does not tell its name",
        )

    def test_two_hosts_of_the_site_that_are_one_machine_fail(
        self, connection: Connection, site: Site, libvirts: Libvirt
    ) -> None:
        libvirts("qemu+ssh://a/system", "node1")
        libvirts("qemu+ssh://b/system", "node1")
        found = check_distinct(connection, site)
        assert (found.verdict, found.found) == (Verdict.FAIL, "w1 and w2 are the same machine")

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (("node1", SYSTEM), ("node2", SYSTEM)),
            (("node1", SYSTEM), ("node1", OTHER)),
            (("localhost", ""), ("localhost", "")),
        ],
    )
    def test_boards_that_were_given_one_uuid_or_none_and_names_that_are_common_are_no_proof(
        self,
        connection: Connection,
        site: Site,
        libvirts: Libvirt,
        one: tuple[str, str],
        other: tuple[str, str],
    ) -> None:
        libvirts("qemu+ssh://a/system", *one)
        libvirts("qemu+ssh://b/system", *other)
        assert check_distinct(connection, site).verdict is Verdict.OK


class TestRootPorts:
    def test_that_are_spare_are_counted_in_the_server_of_novas_that_has_most(
        self, connection: Connection, site: Site, libvirts: Libvirt
    ) -> None:
        foreign, full = domain(ports=9, taken=0, by=""), domain(ports=2, taken=2)
        xml = {ONE: domain(ports=3, taken=1), OTHER: foreign, SYSTEM: full}
        libvirts("qemu+ssh://a/system", "node1", **xml)
        found = check_root_ports(connection, site, "w1")
        assert (found.verdict, found.found) == (
            Verdict.OK,
            "instance-00000002 (pc-q35-7.2) has 2 to spare",
        )

    @pytest.mark.parametrize(
        "xml", [domain(ports=1, taken=1), domain(machine="pc-i440fx-7.2", ports=0, taken=0)]
    )
    def test_that_lack_are_a_warning_with_what_to_set(
        self, connection: Connection, site: Site, libvirts: Libvirt, xml: str
    ) -> None:
        libvirts("qemu+ssh://a/system", "node1", **{ONE: xml})
        found = check_root_ports(connection, site, "w1")
        assert found.verdict is Verdict.WARN
        assert found.found.endswith("has 0 to spare")
        assert "num_pcie_ports" in found.remedy

    @pytest.mark.parametrize(
        ("image", "said"),
        [
            ({}, "no image of site.yaml names one"),
            ({"hw_machine_type": "q35"}, "q35 (tiny)"),
        ],
    )
    def test_of_a_worker_without_a_server_are_not_known(
        self,
        api: OpenStackApi,
        connection: Connection,
        site: Site,
        libvirts: Libvirt,
        image: dict[str, Any],
        said: str,
    ) -> None:
        libvirts("qemu+ssh://a/system", "node1", **{ONE: domain(by="")})
        has(api, **image)
        found = check_root_ports(connection, site, "w1")
        assert found.verdict is Verdict.INFO
        assert found.found.startswith("not known: no server of Nova's is there")
        assert found.found.endswith(said)


def has(api: OpenStackApi, **properties: Any) -> None:
    api.answer("GET", "image", "/images/tiny", {}, status=404)
    image = {"id": "i1", "name": "tiny", "status": "active", "size": 2**21, **properties}
    api.answer("GET", "image", "/images", {"images": [image]})


class TestImages:
    @pytest.mark.parametrize(
        ("site", "properties", "verdict", "said"),
        [
            ({"guest": "agent"}, {}, Verdict.FAIL, "no property hw_qemu_guest_agent=yes"),
            ({"guest": "agent"}, {"hw_qemu_guest_agent": "no"}, Verdict.FAIL, "guest: agent"),
            ({"guest": "agent"}, {"hw_qemu_guest_agent": "True"}, Verdict.OK, ""),
            ({"guest": "ssh"}, {"os_admin_user": "rocky"}, Verdict.WARN, "logs in as root"),
            (
                {"guest": "ssh", "images": {"tiny": {"user": "rocky"}}},
                {"os_admin_user": "rocky"},
                Verdict.OK,
                "",
            ),
            ({"hosts": {"w1": {"devices": [GPU]}}}, {"hw_machine_type": "pc"}, Verdict.WARN, "pc"),
            ({"hosts": {"w1": {"devices": [GPU]}}}, {"hw_machine_type": "q35"}, Verdict.OK, ""),
            ({}, {"hw_machine_type": "pc"}, Verdict.OK, ""),
            ({}, {"hw_rng_model": None}, Verdict.INFO, "no property hw_rng_model"),
        ],
    )
    def test_have_what_the_guests_of_the_site_need(
        self,
        api: OpenStackApi,
        connection: Connection,
        site: dict[str, Any],
        properties: dict[str, Any],
        verdict: Verdict,
        said: str,
    ) -> None:
        has(api, **{"hw_rng_model": "virtio", **properties})
        found = cloud_contents.check_image(connection, "tiny", api.site(**site))
        assert found.verdict is verdict
        assert said in found.found


def test_workers_that_the_site_does_not_name_are_told_by_name(
    api: OpenStackApi, connection: Connection
) -> None:
    about = {"binary": "nova-compute", "state": "up", "status": "enabled", "disabled_reason": None}
    known = [{"id": name, "host": name, **about} for name in ("w1", "w2", "w3")]
    api.answer("GET", "compute", "/os-services", {"services": known})
    found = cloud_contents.check_hosts(connection, ["w2"])
    assert found.verdict is Verdict.INFO
    assert found.found.startswith("w2; not w1, w3, which the cloud has")
