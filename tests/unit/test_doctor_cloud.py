"""What the doctor finds of a site's cloud, and what it advises."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection
from pytest_mock import MockerFixture
from requests import PreparedRequest

from fabric_direct import doctor
from fabric_direct.doctor import Diagnosis, Verdict, cloud_contents
from fabric_direct.doctor.cloud import _SERVICES, _Service, check_service, examine_cloud
from fabric_direct.doctor.cloud_rights import ASKING, RIGHTS, Right, check_rights
from fabric_direct.drivers.libvirt.connection import connections
from fabric_direct.drivers.openstack.client.name_cache import LIMITS_PORTS
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import Unreachable
from fabric_direct.site.config import OpenStackSettings, Site
from tests.unit.openstack_api import PASSWORD, PROJECT, OpenStackApi, body

FORBIDDEN = {"forbidden": {"code": 403, "message": "Policy doesn't allow it to be performed."}}
WORKER = {
    "id": "1",
    "binary": "nova-compute",
    "host": "worker1",
    "state": "up",
    "status": "enabled",
    "disabled_reason": None,
}
SSH_RULE = {
    "id": "r1",
    "direction": "ingress",
    "ethertype": "IPv4",
    "protocol": "tcp",
    "port_range_min": 22,
    "port_range_max": 22,
    "remote_group_id": None,
    "remote_ip_prefix": "0.0.0.0/0",
}


NIL = "00000000-0000-0000-0000-000000000000"
NEEDING_ALL: dict[str, Any] = {
    "hosts": {"worker1": {}},
    "networks": {
        "red": {"strategy": "flat", "subnet": "10.1.0.0/24", "physical_network": "physnet1"}
    },
    "openstack": {"make_flavors": True},
}


@pytest.fixture
def connection(api: OpenStackApi) -> Connection:
    return cloud(api.settings)


def workers(api: OpenStackApi, *others: dict[str, Any]) -> None:
    api.answer("GET", "compute", "/os-services", {"services": [WORKER, *others]})


def only_administrators(api: OpenStackApi) -> None:
    api.answer("GET", "compute", "/os-services", FORBIDDEN, status=403)


def groups(api: OpenStackApi, *rules: dict[str, Any], name: str = "default") -> None:
    group = {"id": "g1", "name": name, "project_id": PROJECT, "security_group_rules": list(rules)}
    api.answer("GET", "network", "/security-groups", {"security_groups": [group]})


def limits_of_volumes(gib: int) -> dict[str, Any]:
    return {"limits": {"absolute": {"maxTotalVolumeGigabytes": gib}, "rate": []}}


def rights(api: OpenStackApi, *missing: str) -> None:
    """Answer each request for a right: what it names is unknown, or the policy does not allow it."""

    def said(*policies: str) -> Callable[[PreparedRequest], tuple[int, Any]]:
        """Answer by the policies of a path: by the last one if the request has more than the other's."""

        def answer(request: PreparedRequest) -> tuple[int, Any]:
            sent = str(body(request))
            more = "'host'" in sent or "mac_address" in sent
            policy = policies[-1 if more else 0]
            return (403, FORBIDDEN) if policy in missing else (400, {})

        return answer

    def listed(policy: str, answer: dict[str, Any]) -> Callable[[PreparedRequest], tuple[int, Any]]:
        return lambda _: (403, FORBIDDEN) if policy in missing else (200, answer)

    create = "os_compute_api:servers:create"
    taken = {"id": "1", "name": "m1.tiny"}
    shared = {"id": "n1", "name": "shared", "project_id": "another", "shared": True}
    reads = (
        ("compute", "/os-services", "os_compute_api:os-services:list", {"services": [WORKER]}),
        ("compute", "/os-hypervisors", "os_compute_api:os-hypervisors:list", {"hypervisors": []}),
        ("placement", "/resource_providers", "placement:resource_providers:list", {}),
        ("compute", "/flavors", "", {"flavors": [taken]}),
        ("network", "/networks", "", {"networks": [shared]}),
        ("volume", "/limits", "", limits_of_volumes(1000)),
    )
    for service, path, policy, answer in reads:
        api.answer("GET", service, path, listed(policy, answer))
    limits = f"/qos/policies/{NIL}/bandwidth_limit_rules"
    for service, path, *policies in (
        ("compute", "/servers", create, f"{create}:requested_destination"),
        ("compute", "/flavors", "os_compute_api:os-flavor-manage:create"),
        ("network", "/ports", "create_port", "create_port:mac_address"),
        ("network", "/networks", "create_network:provider:physical_network"),
        ("network", "/floatingips", "create_floatingip"),
        ("network", limits, "create_policy_bandwidth_limit_rule"),
        ("volume", "/volumes", "volume:create"),
    ):
        api.answer("POST", service, path, said(*policies))


def healthy(api: OpenStackApi) -> None:
    """Answer as a cloud in which all is well."""
    api.answer("GET", "identity", "/auth/projects", {"projects": []})
    api.answer("GET", "compute", "/flavors", {"flavors": []})
    api.answer("GET", "network", "/networks", {"networks": []})
    api.answer("GET", "volume", "/volumes", {"volumes": []})
    api.answer("GET", "image", "/images", {"images": []})
    agents = [{"id": "a1", "agent_type": "L3 agent", "host": "worker1", "alive": True}]
    api.answer("GET", "network", "/agents", {"agents": agents})
    api.answer("GET", "compute", "/os-hypervisors/detail", {"hypervisors": []})
    api.answer("GET", "compute", "/servers", {"servers": []})
    workers(api)
    groups(api, SSH_RULE)
    rights(api)


def of(subject: str, found: list[Diagnosis]) -> Diagnosis:
    return next(d for d in found if d.subject == subject)


class TestExamination:
    def test_a_cloud_in_which_all_is_well(self, api: OpenStackApi) -> None:
        healthy(api)
        found = list(examine_cloud(api.site()))
        assert [(d.subject, d.verdict.value) for d in found] == [
            ("clouds.yaml", "ok"),
            ("login", "ok"),
            ("identity", "ok"),
            ("compute", "ok"),
            ("network", "ok"),
            ("volume", "ok"),
            ("image", "ok"),
            ("rights in Nova", "ok"),
            ("rights in Neutron", "ok"),
            ("rights in Cinder", "ok"),
            ("workers", "ok"),
            ("placement", "ok"),
            ("network agents", "ok"),
            ("bandwidth of vNICs", "info"),
            ("external network", "info"),
            ("security groups", "ok"),
            ("key pair", "info"),
            ("volume type", "info"),
        ]

    def test_a_site_without_its_section_is_told_how_to_write_it(self, api: OpenStackApi) -> None:
        site = api.site().model_copy(update={"openstack": None})
        (found,) = examine_cloud(site)
        assert found.verdict is Verdict.FAIL
        assert "openstack: {cloud: NAME}" in found.remedy

    def test_what_a_silent_service_would_be_asked_is_left_out(self, api: OpenStackApi) -> None:
        healthy(api)
        down = {"error": {"code": 500, "message": "the database is gone"}}
        api._answers.pop(("GET", "compute", "/flavors"))
        api.answer("GET", "compute", "/flavors", down, status=500)
        found = list(examine_cloud(api.site()))
        assert of("compute", found).verdict is Verdict.FAIL
        assert "cannot ask Nova" in of("compute", found).found
        assert {"rights in Nova", "workers", "key pair"}.isdisjoint(d.subject for d in found)
        assert of("network agents", found).verdict is Verdict.OK

    def test_a_service_that_hangs_is_given_up(
        self, api: OpenStackApi, mocker: MockerFixture
    ) -> None:
        healthy(api)
        site = api.site(limits={"call": 1.0})
        mocker.patch("fabric_direct.doctor.cloud.check_login", side_effect=_never)
        found = list(examine_cloud(site))
        assert (found[-1].subject, found[-1].verdict) == ("login", Verdict.FAIL)
        assert "did not answer" in found[-1].found

    def test_each_image_and_the_hosts_of_the_site_are_looked_for(
        self, api: OpenStackApi, mocker: MockerFixture
    ) -> None:
        healthy(api)
        mocker.patch.object(connections, "connect", side_effect=Unreachable("no answer"))
        api.answer("GET", "image", "/images/tiny", {}, status=404)
        api.answer("GET", "image", "/images/tiny", {}, status=404)
        found = list(examine_cloud(api.site(hosts={"w9": {}}, images={"tiny": {}})))
        assert of("hosts of site.yaml", found).verdict is Verdict.FAIL
        assert of("image tiny", found).verdict is Verdict.FAIL


def _never(*_: object) -> Diagnosis:
    time.sleep(60)
    raise AssertionError


class TestGettingIn:
    def entry(self, settings: OpenStackSettings) -> Diagnosis:
        site = Site(site="x", openstack=settings)
        found = list(examine_cloud(site))
        assert len(found) == 1
        assert (found[0].subject, found[0].verdict) == ("clouds.yaml", Verdict.FAIL)
        return found[0]

    def test_the_file_that_has_the_cloud_is_named(self, api: OpenStackApi) -> None:
        found = next(iter(examine_cloud(api.site())))
        assert found.found == f"{api.settings.clouds_file} has test"

    def test_a_cloud_that_the_file_has_not_is_told_with_those_that_it_has(
        self, api: OpenStackApi
    ) -> None:
        found = self.entry(api.settings.model_copy(update={"cloud": "nosuch"}))
        assert found.found == f"{api.settings.clouds_file} has no 'nosuch', but test"

    def test_a_file_that_is_not_there_is_named(self, api: OpenStackApi, tmp_path: Path) -> None:
        path = tmp_path / "nosuch.yaml"
        found = self.entry(OpenStackSettings(cloud="test", clouds_file=path))
        assert found.found == f"{path}: No such file or directory"

    def test_a_file_that_is_no_yaml_is_told_by_its_line_and_nothing_of_what_it_says(
        self, api: OpenStackApi, tmp_path: Path
    ) -> None:
        path = tmp_path / "broken.yaml"
        path.write_text("clouds:\n  test: {auth: {password: hunter2\n")
        found = self.entry(OpenStackSettings(cloud="test", clouds_file=path))
        assert found.found == f"{path}, line 3: it is not YAML"

    def test_no_file_at_all_is_told_with_where_it_is_looked_for(
        self, api: OpenStackApi, tmp_path: Path, mocker: MockerFixture
    ) -> None:
        mocker.patch("openstack.config.loader.CONFIG_FILES", [str(tmp_path / "none.yaml")])
        found = self.entry(OpenStackSettings(cloud="nowhere"))
        assert found.found.startswith("is in none of ")
        assert "/etc/openstack" in found.found

    def test_a_login_says_who_we_are(self, api: OpenStackApi) -> None:
        healthy(api)
        found = of("login", list(examine_cloud(api.site())))
        assert found.found == "fabric in project fabric, region RegionOne"

    def test_a_wrong_password_is_said_plainly_without_showing_it(self, api: OpenStackApi) -> None:
        said = "The request you have made requires authentication."
        api.refused.add(PASSWORD)
        found = list(examine_cloud(api.site()))[-1]
        assert (found.subject, found.verdict) == ("login", Verdict.FAIL)
        assert found.found.startswith(f"Keystone refuses to log fabric in: {said}")
        assert found.remedy == "check user, password and project of test in clouds.yaml"
        assert PASSWORD not in str(found)


class TestServices:
    def test_versions_are_told(self, api: OpenStackApi, connection: Connection) -> None:
        healthy(api)
        found = {s.name: check_service(connection, s).found for s in _SERVICES}
        assert found == {
            "identity": "Keystone at http://cloud.test/identity/v3/, version 3.14",
            "compute": "Nova at http://cloud.test/compute/v2.1/, version 2.1, "
            "microversions 2.1 to 2.93",
            "network": "Neutron at http://cloud.test/networking/v2.0/, version 2.0",
            "volume": f"Cinder at http://cloud.test/volume/v3/{PROJECT}, version 3.0, "
            "microversions 3.0 to 3.70",
            "image": "Glance at http://cloud.test/image/v2/, version 2.15",
        }

    def test_a_release_before_zed_is_a_warning(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("GET", "compute", "/flavors", {"flavors": []})
        service = _Service("compute", "Nova", "compute", "/flavors?limit=1", (2, 94))
        found = check_service(connection, service)
        assert found.verdict is Verdict.WARN
        assert found.found.endswith("older than Zed, which has 2.94")


class TestRights:
    @pytest.mark.parametrize("service", RIGHTS)
    def test_who_may_do_all_is_told_so(
        self, api: OpenStackApi, connection: Connection, service: str
    ) -> None:
        rights(api)
        found = check_rights(connection, api.site(), service)
        assert found.verdict is Verdict.OK
        assert (
            found.found == f"fabric (admin, member, reader) may do all that is asked of {service}"
        )

    @pytest.mark.parametrize(
        ("service", "right"), [(s, r) for s, them in RIGHTS.items() for r in them]
    )
    def test_each_that_is_missing_is_named_with_its_policy(
        self, api: OpenStackApi, connection: Connection, service: str, right: Right
    ) -> None:
        rights(api, right.policy)
        site = api.site(**NEEDING_ALL)
        found = check_rights(connection, site, service)
        needed = right.needed_by(site) is not None
        assert found.found.startswith(f"fabric (admin, member, reader) may not {right.to}")
        assert found.verdict in ((Verdict.WARN, Verdict.FAIL) if needed else (Verdict.INFO,))
        assert found.remedy.endswith(right.policy if needed else "")

    def test_a_right_that_the_site_does_not_need_is_no_warning(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        rights(api, "os_compute_api:servers:create:requested_destination")
        found = check_rights(connection, api.site(), "Nova")
        assert (found.verdict, found.remedy) == (Verdict.INFO, "")

    def test_what_of_the_site_needs_it_is_named(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        rights(api, "create_network:provider:physical_network", "create_floatingip")
        found = check_rights(connection, api.site(**NEEDING_ALL), "Neutron")
        assert found.verdict is Verdict.WARN
        assert found.found.endswith(
            "may not make provider networks or make floating IPs; "
            "needed by networks of a physical network (red)"
        )

    def test_without_what_every_sliver_needs_the_check_fails(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        rights(api, "os_compute_api:servers:create")
        found = check_rights(connection, api.site(), "Nova")
        assert found.verdict is Verdict.FAIL
        assert "os_compute_api:servers:create" in found.remedy

    def test_a_site_without_vms_needs_no_servers(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        rights(api, "os_compute_api:servers:create", "create_port")
        site = api.site(drivers={"L2Bridge": "openstack"}, images={})
        assert check_rights(connection, site, "Nova").verdict is Verdict.INFO
        assert check_rights(connection, site, "Neutron").verdict is Verdict.INFO

    def test_what_is_asked_names_nothing_that_there_is(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        rights(api)
        for service in RIGHTS:
            check_rights(connection, api.site(), service)
        for method, _, path, sent in api.calls:
            nowhere = (
                NIL in f"{path} {sent}"
                or f"'availability_zone': '{ASKING}'" in str(sent)
                or f"'provider:physical_network': '{ASKING}'" in str(sent)
            )
            assert method == "GET" or nowhere or path == "/flavors"

    def test_what_a_service_makes_nevertheless_is_taken_back(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("POST", "network", "/networks", {"network": {"id": "n1"}}, status=201)
        api.answer("DELETE", "network", "/networks/n1", status=204)
        rights(api)
        assert check_rights(connection, api.site(), "Neutron").verdict is Verdict.OK
        assert [path for method, _, path, _ in api.calls if method == "DELETE"] == ["/networks/n1"]

    def test_no_volume_is_asked_for_that_cinder_may_begin_to_make(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("GET", "volume", "/limits", limits_of_volumes(-1))
        assert check_rights(connection, api.site(), "Cinder").verdict is Verdict.OK
        assert {method for method, *_ in api.calls} == {"GET"}


class TestWorkers:
    def test_workers_that_take_servers_are_named(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        workers(api)
        found = cloud_contents.check_workers(connection)
        assert (found.verdict, found.found) == (Verdict.OK, "worker1")
        assert api.calls == [("GET", "compute", "/os-services", {"binary": "nova-compute"})]

    def test_workers_that_are_down_or_disabled_are_a_warning_with_the_reason(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        down = WORKER | {"id": "2", "host": "worker2", "state": "down"}
        off = WORKER | {"id": "3", "host": "w3", "status": "disabled", "disabled_reason": "fans"}
        workers(api, down, off)
        found = cloud_contents.check_workers(connection)
        assert found.verdict is Verdict.WARN
        assert found.found == ("worker1; but not worker2 (down, enabled), w3 (up, disabled: fans)")

    def test_no_worker_that_takes_servers_fails(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        off = WORKER | {"status": "disabled"}
        api.answer("GET", "compute", "/os-services", {"services": [off]})
        found = cloud_contents.check_workers(connection)
        assert found.verdict is Verdict.FAIL
        assert "openstack compute service set --enable" in found.remedy

    def test_a_host_of_the_site_that_the_cloud_does_not_know_fails(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        workers(api)
        assert cloud_contents.check_hosts(connection, ["worker1"]).verdict is Verdict.OK
        found = cloud_contents.check_hosts(connection, ["worker1", "worker9"])
        assert found.verdict is Verdict.FAIL
        assert found.found == "the cloud has no worker worker9; it has worker1"

    def test_a_dead_agent_is_a_warning_with_its_host(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        agents = [
            {"id": "1", "agent_type": "L3 agent", "host": "worker1", "alive": True},
            {"id": "2", "agent_type": "DHCP agent", "host": "worker1", "alive": False},
        ]
        api.answer("GET", "network", "/agents", {"agents": agents})
        found = cloud_contents.check_agents(connection)
        assert (found.verdict, found.found) == (Verdict.WARN, "dead: DHCP agent on worker1")

    def test_a_neutron_that_limits_no_ports_is_told_with_what_it_lacks(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        found = cloud_contents.check_limits(connection)
        assert found.verdict is Verdict.INFO
        assert found.found.endswith("lacks the extensions qos, qos-bw-limit-direction")

    def test_an_agent_of_a_worker_that_limits_no_ports_is_a_warning(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.extensions = LIMITS_PORTS
        bridge, router = {"agent_type": "Linux bridge agent"}, {"agent_type": "L3 agent"}
        limiting = {"configurations": {"extensions": ["qos"]}}
        idle = {"configurations": {"extensions": []}}
        agents = [
            {"id": "1", "host": "worker1", **bridge, **limiting},
            {"id": "2", "host": "worker1", **router, **idle},
        ]
        api.answer("GET", "network", "/agents", {"agents": agents})
        more = [*agents, {"id": "3", "host": "worker2", **bridge, **idle}]
        api.answer("GET", "network", "/agents", {"agents": more})
        assert cloud_contents.check_limits(connection).verdict is Verdict.OK
        found = cloud_contents.check_limits(connection)
        assert found.verdict is Verdict.WARN
        assert "Linux bridge agent on worker2," in found.found
        assert "worker1" not in found.found

    def test_what_a_member_is_not_told_is_no_fault(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        only_administrators(api)
        api.answer("GET", "network", "/agents", {"agents": []})
        for found in (
            cloud_contents.check_workers(connection),
            cloud_contents.check_hosts(connection, ["worker1"]),
            cloud_contents.check_agents(connection),
        ):
            assert (found.verdict, found.found) == (
                Verdict.INFO,
                "only an administrator may know",
            )


class TestContents:
    EXTERNAL = {"id": "n1", "name": "public", "router:external": True, "subnets": ["s1"]}

    def external(self, api: OpenStackApi, named: dict[str, Any] | None) -> None:
        api.answer("GET", "network", "/networks/public", {}, status=404)
        api.answer("GET", "network", "/networks", {"networks": [named] if named else []})
        api.answer("GET", "network", "/networks", {"networks": [self.EXTERNAL]})

    def test_an_external_network_that_is_there_is_right(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        self.external(api, self.EXTERNAL)
        found = cloud_contents.check_external_network(connection, "public")
        assert (found.verdict, found.found) == (Verdict.OK, "public")

    @pytest.mark.parametrize(
        ("network", "said"),
        [
            (None, "public is not there; there is public"),
            (EXTERNAL | {"router:external": False}, "public is not external; there is public"),
            (EXTERNAL | {"subnets": []}, "public has no subnet"),
        ],
    )
    def test_one_that_floating_ips_cannot_come_from_fails(
        self,
        api: OpenStackApi,
        connection: Connection,
        network: dict[str, Any] | None,
        said: str,
    ) -> None:
        self.external(api, network)
        found = cloud_contents.check_external_network(connection, "public")
        assert (found.verdict, found.found) == (Verdict.FAIL, said)

    def test_the_groups_of_our_project_alone_are_looked_at(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        groups(api, SSH_RULE)
        found = cloud_contents.check_security_groups(connection, api.site())
        assert (found.verdict, found.found) == (Verdict.OK, "default")
        assert api.calls == [("GET", "network", "/security-groups", {"project_id": PROJECT})]

    def test_a_group_that_is_not_there_fails_with_those_that_are(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        groups(api, SSH_RULE)
        site = api.site(openstack={"security_groups": ["web"]})
        found = cloud_contents.check_security_groups(connection, site)
        assert (found.verdict, found.found) == (Verdict.FAIL, "none called web")
        assert found.remedy == "there is default"

    @pytest.mark.parametrize(
        "rule",
        [
            {"direction": "egress"},
            {"protocol": "udp"},
            {"port_range_min": 23, "port_range_max": 80},
            {"remote_group_id": "g1"},
        ],
    )
    def test_groups_that_do_not_let_ssh_in_are_a_warning_where_guests_are_reached_by_it(
        self, api: OpenStackApi, connection: Connection, rule: dict[str, Any]
    ) -> None:
        groups(api, SSH_RULE | rule)
        found = cloud_contents.check_security_groups(connection, api.site(guest="ssh"))
        assert found.verdict is Verdict.WARN
        assert "--dst-port 22 default" in found.remedy
        found = cloud_contents.check_security_groups(connection, api.site(guest="none"))
        assert found.verdict is Verdict.OK

    @pytest.mark.parametrize(
        "rule",
        [
            {"protocol": None, "port_range_min": None, "port_range_max": None},
            {"port_range_min": 1, "port_range_max": 65535},
        ],
    )
    def test_wider_rules_let_ssh_in_too(
        self, api: OpenStackApi, connection: Connection, rule: dict[str, Any]
    ) -> None:
        groups(api, SSH_RULE | rule)
        found = cloud_contents.check_security_groups(connection, api.site(guest="ssh"))
        assert found.verdict is Verdict.OK

    def test_a_key_pair_is_told_by_its_fingerprint(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        pair = {"name": "site", "fingerprint": "aa:bb", "id": "site", "public_key": "ssh-rsa x"}
        api.answer("GET", "compute", "/os-keypairs/site", {"keypair": pair})
        found = cloud_contents.check_key_pair(connection, "site")
        assert (found.verdict, found.found) == (Verdict.OK, "site, aa:bb")

    def test_a_key_pair_that_is_not_there_fails(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("GET", "compute", "/os-keypairs/site", {}, status=404)
        api.answer("GET", "compute", "/os-keypairs", {"keypairs": []})
        found = cloud_contents.check_key_pair(connection, "site")
        assert found.verdict is Verdict.FAIL
        assert "openstack keypair create" in found.remedy

    def test_a_volume_type_that_is_not_there_fails_with_those_that_are(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        api.answer("GET", "volume", "/types", {"volume_types": [{"id": "t1", "name": "nfs"}]})
        assert cloud_contents.check_volume_type(connection, "nfs").verdict is Verdict.OK
        found = cloud_contents.check_volume_type(connection, "ceph")
        assert (found.verdict, found.found) == (
            Verdict.FAIL,
            "ceph is not there; there is nfs",
        )

    @pytest.mark.parametrize(
        ("image", "verdict", "said"),
        [
            ({"status": "active", "size": 2**21}, Verdict.OK, "i1, 2 MiB"),
            ({"status": "queued", "size": None}, Verdict.FAIL, "is queued"),
        ],
    )
    def test_an_image_must_be_active(
        self,
        api: OpenStackApi,
        connection: Connection,
        image: dict[str, Any],
        verdict: Verdict,
        said: str,
    ) -> None:
        api.answer("GET", "image", "/images/tiny", {}, status=404)
        found_image = {"id": "i1", "name": "tiny", "hw_rng_model": "virtio", **image}
        api.answer("GET", "image", "/images", {"images": [found_image]})
        found = cloud_contents.check_image(connection, "tiny", api.site())
        assert (found.verdict, found.found) == (verdict, said)


class TestSite:
    def subjects(self, site: Site) -> list[str]:
        return [d.subject for d in doctor.examine(None, lambda: site)]

    def test_a_cloud_is_looked_at_where_any_driver_needs_it(
        self, api: OpenStackApi, mocker: MockerFixture, tmp_path: Path
    ) -> None:
        healthy(api)
        mocker.patch.object(connections, "connect", side_effect=Unreachable("no answer"))
        site = api.site(state_dir=tmp_path, drivers={"Storage": "openstack"})
        assert "login" in self.subjects(site)

    def test_what_the_cloud_sees_to_itself_is_not_asked_of_this_machine(
        self, api: OpenStackApi, tmp_path: Path
    ) -> None:
        healthy(api)
        api.answer("GET", "image", "/images/tiny", {}, status=404)
        red = {"strategy": "flat_dhcp", "subnet": "10.1.0.0/24", "physical_network": "p1"}
        site = api.site(
            state_dir=tmp_path,
            drivers={"VM": "openstack"},
            images={"tiny": {}},
            networks={"red": red},
        )
        asked = {"KVM", "IOMMU", "volumes", "dnsmasq", "libvirt of localhost"}
        assert asked.isdisjoint(self.subjects(site))

    @pytest.mark.parametrize(
        ("devices", "verdict"),
        [((), Verdict.WARN), (({"type": "GPU", "bdf": "0000:25:00.0"},), Verdict.FAIL)],
    )
    def test_libvirt_of_a_worker_is_needed_only_where_it_has_devices(
        self,
        api: OpenStackApi,
        mocker: MockerFixture,
        tmp_path: Path,
        devices: tuple[dict[str, str], ...],
        verdict: Verdict,
    ) -> None:
        healthy(api)
        mocker.patch.object(connections, "connect", side_effect=Unreachable("no answer"))
        site = api.site(
            state_dir=tmp_path,
            drivers={"VM": "openstack"},
            hosts={"worker1": {"devices": devices}},
        )
        found = list(doctor.examine(None, lambda: site))
        assert of("libvirt of worker1", found).verdict is verdict
        assert ("IOMMU" in [d.subject for d in found]) is bool(devices)
