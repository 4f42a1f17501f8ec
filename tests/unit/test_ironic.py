"""Bare-metal nodes as Ironic tells them."""

import json
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.contract import BareMetalNode, NodeCondition, NodePort
from fabric_direct.drivers.ironic.driver import IronicBareMetal
from fabric_direct.drivers.ironic.states import CONDITIONS, condition
from fabric_direct.errors import Denied, DriverError, InvalidSite, Unreachable
from fabric_direct.site.config import Site
from tests.unit.ironic import node
from tests.unit.openstack_api import OpenStackApi

OF_IRONIC = {
    *("enroll", "verifying", "manageable", "available", "active", "error", "rebuild"),
    *("deploying", "wait call-back", "deploy hold", "deploy complete", "deploy failed"),
    *("deleting", "deleted", "cleaning", "clean wait", "clean hold", "clean failed"),
    *("inspecting", "inspect wait", "inspect failed", "adopting", "adopt failed"),
    *("rescue", "rescuing", "rescue wait", "rescue failed", "unrescuing", "unrescue failed"),
    *("servicing", "service wait", "service hold", "service failed"),
}
"""Provision states by its documentation of the state machine."""
STAMP = {"fabric-direct": {"site": "TEST", "sliver": "s1", "allocation": "i"}}


@pytest.fixture
def site(api: OpenStackApi) -> Site:
    return api.site(drivers={"BareMetal": "ironic"})


@pytest.fixture
def driver(site: Site) -> IronicBareMetal:
    return IronicBareMetal(site)


def found(api: OpenStackApi, driver: IronicBareMetal, *nodes: Any) -> tuple[BareMetalNode, ...]:
    """Return what the driver makes of nodes without ports."""
    api.answer("GET", "baremetal", "/ports/detail", {"ports": []})
    api.answer("GET", "baremetal", "/nodes/detail", {"nodes": list(nodes)})
    return driver.nodes()


class TestTheTableOfStates:
    def test_has_each_that_ironic_documents(self) -> None:
        assert {*CONDITIONS, "available", "manageable"} == OF_IRONIC

    @pytest.mark.parametrize(
        ("state", "taken", "stamped", "set_apart", "means"),
        [
            ("available", False, False, False, NodeCondition.FREE),
            ("available", True, True, False, NodeCondition.RESERVED),
            ("available", True, False, False, NodeCondition.RESERVED),
            ("available", False, False, True, NodeCondition.WITHHELD),
            ("available", False, True, True, NodeCondition.QUARANTINED),
            ("manageable", False, False, False, NodeCondition.WITHHELD),
            ("manageable", False, True, False, NodeCondition.QUARANTINED),
            ("cleaning", False, True, False, NodeCondition.CLEANING),
            ("clean wait", False, False, True, NodeCondition.QUARANTINED),
            ("clean failed", False, False, False, NodeCondition.QUARANTINED),
            ("active", True, True, True, NodeCondition.ACTIVE),
            ("deploy failed", True, True, False, NodeCondition.FAILED),
            ("a state of tomorrow", False, False, False, NodeCondition.WITHHELD),
        ],
    )
    def test_says_what_a_node_is_good_for(
        self, state: str, taken: bool, stamped: bool, set_apart: bool, means: NodeCondition
    ) -> None:
        assert condition(state, taken=taken, stamped=stamped, set_apart=set_apart) is means

    def test_calls_nothing_free_that_ironic_does_not_offer(self) -> None:
        each = {s: condition(s, taken=False, stamped=False, set_apart=False) for s in OF_IRONIC}

        assert [state for state, means in each.items() if means is NodeCondition.FREE] == [
            "available"
        ]


class TestTheNodes:
    def test_are_listed_by_name_with_what_they_have(
        self, api: OpenStackApi, driver: IronicBareMetal
    ) -> None:
        has = {"cpus": "32", "memory_mb": 131072, "local_gb": 400, "cpu_arch": "x86_64"}
        api.answer(
            "GET",
            "baremetal",
            "/nodes/detail",
            {
                "nodes": [
                    node("n2", properties=has, traits=["HW_B", "HW_A"], power_state="power on"),
                    node("n1", "active", instance_uuid="i", extra=STAMP),
                ]
            },
        )
        ports = [
            {"uuid": "p2", "address": "52:54:00:00:00:02", "node_uuid": "id-n2"},
            {
                "uuid": "p1",
                "address": "52:54:00:00:00:01",
                "node_uuid": "id-n2",
                "physical_network": "phys",
            },
        ]
        api.answer("GET", "baremetal", "/ports/detail", {"ports": ports})

        first, second = driver.nodes()

        assert (first.name, first.condition, first.tenant) == ("n1", NodeCondition.ACTIVE, "s1")
        assert first.sliver == "s1"
        assert (first.cores, first.ram, first.disk, first.architecture) == (None, None, None, None)
        assert second == BareMetalNode(
            id="id-n2",
            name="n2",
            condition=NodeCondition.FREE,
            state="available",
            power="on",
            resource_class="large",
            traits=("HW_A", "HW_B"),
            cores=32,
            ram=131072,
            disk=400,
            architecture="x86_64",
            ports=(NodePort("52:54:00:00:00:01", "phys"), NodePort("52:54:00:00:00:02")),
        )
        assert [call[:3] for call in api.calls] == [
            ("GET", "baremetal", "/ports/detail"),
            ("GET", "baremetal", "/nodes/detail"),
        ]

    def test_of_several_pages_are_all_listed(
        self, api: OpenStackApi, driver: IronicBareMetal
    ) -> None:
        more = {"nodes": [node("n1")], "next": f"{api.base}/baremetal/v1/nodes/detail?marker=id-n1"}
        api.answer("GET", "baremetal", "/ports/detail", {"ports": []})
        api.answer("GET", "baremetal", "/nodes/detail", more)
        api.answer("GET", "baremetal", "/nodes/detail", {"nodes": [node("n2")]})

        assert [each.name for each in driver.nodes()] == ["n1", "n2"]

    def test_of_somebody_else_have_another_tenant(
        self, api: OpenStackApi, driver: IronicBareMetal
    ) -> None:
        foreign = {"fabric-direct": {"site": "OTHER", "sliver": "s1"}}

        (other,) = found(api, driver, node("n1", "active", instance_uuid="i-1", extra=foreign))

        assert (other.tenant, other.sliver) == ("i-1", None)

    def test_that_are_stamped_by_another_site_and_unclean_are_not_free(
        self, api: OpenStackApi, driver: IronicBareMetal
    ) -> None:
        foreign = {"fabric-direct": {"site": "OTHER", "sliver": "s1"}}

        (other,) = found(api, driver, node("n1", "manageable", extra=foreign))

        assert other.condition is NodeCondition.QUARANTINED

    @pytest.mark.parametrize(
        "extra", [None, {"fabric-direct": "s1"}, {"fabric-direct": {}}, {"fabric-direct": None}]
    )
    def test_whose_stamp_is_none_are_nobodys(
        self, api: OpenStackApi, driver: IronicBareMetal, extra: Any
    ) -> None:
        (each,) = found(api, driver, node(extra=extra))

        assert (each.tenant, each.sliver, each.condition) == (None, None, NodeCondition.FREE)

    def test_say_why_they_are_withheld(self, api: OpenStackApi, driver: IronicBareMetal) -> None:
        apart, gone, failed = found(
            api,
            driver,
            node("n1", maintenance=True, maintenance_reason="new disks", last_error="no power"),
            node("n2", retired=True),
            node("n3", "clean failed", last_error="erase timed out"),
        )

        assert (apart.condition, apart.why) == (NodeCondition.WITHHELD, "new disks")
        assert (gone.condition, gone.why) == (NodeCondition.WITHHELD, "")
        assert (failed.condition, failed.why) == (NodeCondition.QUARANTINED, "erase timed out")

    def test_without_a_resource_class_are_withheld_for_ironic_cannot_allocate_them(
        self, api: OpenStackApi, driver: IronicBareMetal
    ) -> None:
        bare = {"resource_class": None}
        free, taken = found(
            api, driver, node("n1", **bare), node("n2", "active", instance_uuid="i-1", **bare)
        )

        assert (free.condition, free.why) == (NodeCondition.WITHHELD, "it has no resource class")
        assert (taken.condition, taken.why) == (NodeCondition.ACTIVE, "")

    def test_without_a_name_are_named_by_their_id(
        self, api: OpenStackApi, driver: IronicBareMetal
    ) -> None:
        (each,) = found(api, driver, node("n1") | {"name": None})

        assert each.name == "id-n1"

    @pytest.mark.parametrize("value", ["many", "-1", "1.5", True, None, [1]])
    def test_have_no_number_where_their_operator_wrote_none(
        self, api: OpenStackApi, driver: IronicBareMetal, value: Any
    ) -> None:
        (each,) = found(api, driver, node(properties={"cpus": value}))

        assert each.cores is None

    def test_are_counted_for_doctor(self, api: OpenStackApi, driver: IronicBareMetal) -> None:
        found(api, driver, node("n1"), node("n2"), node("n3", "active"))

        assert driver.examine() == ("3 nodes", "1 active", "2 free")


class TestAnAnswer:
    @pytest.mark.parametrize(
        ("field", "value"),
        [("provision_state", 5), ("uuid", None), ("traits", [5]), ("last_error", 5)],
    )
    def test_of_another_form_is_an_error_that_names_the_field(
        self, api: OpenStackApi, driver: IronicBareMetal, field: str, value: Any
    ) -> None:
        with pytest.raises(DriverError) as caught:
            found(api, driver, node(**{field: value}))

        assert field.removeprefix("uu") in caught.value.why

    @pytest.mark.parametrize(
        ("status", "error"), [(401, Denied), (403, Denied), (503, Unreachable), (500, DriverError)]
    )
    def test_that_is_an_error_is_no_empty_list(
        self, api: OpenStackApi, driver: IronicBareMetal, status: int, error: type[Exception]
    ) -> None:
        api.answer("GET", "baremetal", "/ports/detail", {"ports": []})
        api.answer("GET", "baremetal", "/nodes/detail", {}, status=status)

        with pytest.raises(error):
            driver.nodes()

    def test_without_versions_is_no_answer(
        self, api: OpenStackApi, driver: IronicBareMetal
    ) -> None:
        """By the oldest version, Ironic tells neither traits nor allocations."""
        api.refused.add("/baremetal")

        with pytest.raises(Unreachable):
            driver.nodes()


class TestASite:
    def test_with_an_ironic_of_its_own_needs_no_login(self, api: OpenStackApi) -> None:
        entry = {"auth_type": "none", "baremetal_endpoint_override": f"{api.base}/baremetal"}
        api.clouds.write_text(json.dumps({"clouds": {"alone": entry}}))
        settings = {"cloud": "alone", "clouds_file": str(api.clouds)}
        site = Site.model_validate(
            {
                "site": "TEST",
                "state_dir": api.clouds.parent / "state",
                "drivers": {"BareMetal": "ironic"},
                "ironic": settings,
            }
        )

        (each,) = found(api, IronicBareMetal(site), node("n1"))

        assert (each.name, api.logins) == ("n1", 0)

    def test_with_a_cloud_beside_it_takes_its_own_entry(self, api: OpenStackApi) -> None:
        site = api.site(drivers={"BareMetal": "ironic"}, ironic={"cloud": "absent"})

        with pytest.raises(InvalidSite) as caught:
            IronicBareMetal(site).nodes()

        assert caught.value.field == "ironic.cloud"

    def test_whose_clouds_file_is_not_there_is_refused_by_its_own_field(
        self, fake_site: Site, tmp_path: Path
    ) -> None:
        values = {"cloud": "alone", "clouds_file": tmp_path / "absent.yaml"}
        drivers = {"drivers": {"BareMetal": "ironic"}, "ironic": values}
        site = Site.model_validate(fake_site.model_dump() | drivers)

        with pytest.raises(InvalidSite) as caught:
            IronicBareMetal(site).nodes()

        assert caught.value.field == "ironic.clouds_file"

    def test_that_names_no_cloud_is_refused(self, fake_site: Site) -> None:
        site = fake_site.model_copy(update={"drivers": {"BareMetal": "ironic"}})

        with pytest.raises(InvalidSite) as caught:
            IronicBareMetal(site)

        assert caught.value.field == "ironic.cloud"
