"""What a cloud's workers have: every request of an inventory, and what becomes of its answers."""

from typing import Any

import pytest

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import HostInventory, Image, ImageNeeds
from fabric_direct.drivers.openstack.client.stamp import server_metadata, site_tag
from fabric_direct.drivers.openstack.servers.driver import OpenStackCompute
from fabric_direct.errors import Denied, InvalidSliver, Unreachable
from fabric_direct.model import NodeSliver
from tests.unit.openstack_api import Call, OpenStackApi

W1, W2 = "47607719-4bd2-44b0-84ac-6997b6219a42", "7e3b6a52-4f0e-4a8e-9a41-0d7a5f1d3c11"
GIB = 1024**3

HYPERVISORS: Call = ("GET", "compute", "/os-hypervisors/detail", {})
SERVERS: Call = ("GET", "compute", "/servers/detail", {"tags": site_tag("TEST")})


def of_provider(provider: str) -> list[Call]:
    path = f"/resource_providers/{provider}"
    parts = ("inventories", "usages", "traits")
    return [("GET", "placement", f"{path}/{part}", {}) for part in parts]


def hypervisor(host: str, provider: str, **values: Any) -> dict[str, Any]:
    return {
        "id": provider,
        "hypervisor_hostname": f"{host}.example.net",
        "state": "up",
        "status": "enabled",
        "service": {"host": host, "id": provider, "disabled_reason": values.pop("reason", None)},
        "cpu_info": {"arch": "x86_64", "model": "Nehalem"},
        "vcpus": 8,
        "memory_mb": 4096,
        "disk_available_least": 69,
        "running_vms": 1,
        **values,
    }


def stock(total: int, ratio: float = 1.0, reserved: int = 0) -> dict[str, Any]:
    return {"total": total, "reserved": reserved, "allocation_ratio": ratio, "max_unit": total}


class Workers:
    """The fixture's cloud, with two workers."""

    def __init__(self, api: OpenStackApi) -> None:
        self.api = api
        self.lists([hypervisor("w2", W2), hypervisor("w1", W1)])
        self.serve([])
        self.has(W1, VCPU=stock(8, 16.0), MEMORY_MB=stock(4096, 1.5, 512), DISK_GB=stock(100))
        self.has(W2, VCPU=stock(4, 1.0, 1), MEMORY_MB=stock(2048), DISK_GB=stock(50, 4.0, 10))

    def _answers(self, service: str, path: str, answer: Any, status: int = 200) -> None:
        self.api._answers.pop(("GET", service, path), None)
        self.api.answer("GET", service, path, answer, status=status)

    def lists(self, hypervisors: list[dict[str, Any]]) -> None:
        self._answers("compute", "/os-hypervisors/detail", {"hypervisors": hypervisors})

    def serve(self, servers: list[dict[str, Any]]) -> None:
        self._answers("compute", "/servers/detail", {"servers": servers})

    def has(self, provider: str, **stocks: dict[str, Any]) -> None:
        self.tells(provider, "inventories", {"inventories": stocks})
        self.uses(provider, **dict.fromkeys(stocks, 0))
        self.tells(provider, "traits", {"traits": ["COMPUTE_NODE"]})

    def uses(self, provider: str, **used: int) -> None:
        self.tells(provider, "usages", {"usages": used})

    def tells(self, provider: str, what: str, answer: dict[str, Any], status: int = 200) -> None:
        about = {"resource_provider_generation": 7}
        path = f"/resource_providers/{provider}/{what}"
        self._answers("placement", path, {**about, **answer}, status)

    def compute(self, *hosts: str) -> OpenStackCompute:
        more = {"hosts": {host: {} for host in hosts}} if hosts else {}
        return OpenStackCompute(self.api.site(**more), "")


@pytest.fixture
def workers(api: OpenStackApi) -> Workers:
    return Workers(api)


def server(sliver_id: str, host: str, **values: Any) -> dict[str, Any]:
    given = {"id": sliver_id, "name": "node", "image": "tiny"}
    size = {"capacities": {"core": 1, "ram": 1, "disk": 1}}
    stamp = NodeSliver.model_validate({**given, **size, **values}).stamp()
    return {
        "id": sliver_id,
        "OS-EXT-SRV-ATTR:host": host,
        "metadata": server_metadata("TEST", stamp),
    }


def the_inventory(compute: OpenStackCompute) -> HostInventory:
    (found,) = compute.inventory()
    return found


def test_workers_are_two_lists_and_three_requests_each(workers: Workers) -> None:
    workers.compute().inventory()

    assert workers.api.calls[:2] == [HYPERVISORS, SERVERS]
    # Those of different workers run at once.
    for provider in (W1, W2):
        of_one = [call for call in workers.api.calls[2:] if provider in call[2]]
        assert of_one == of_provider(provider)
    assert len(workers.api.calls) == 2 + 2 * 3


def test_nova_is_not_made_to_ask_its_workers_for_their_uptime(workers: Workers) -> None:
    workers.compute().inventory()

    assert workers.api.requests[0].headers["X-OpenStack-Nova-API-Version"] == "2.53"


def test_a_worker_is_what_placement_says_less_what_is_reserved(workers: Workers) -> None:
    workers.uses(W1, VCPU=3, MEMORY_MB=1024, DISK_GB=7)

    first, second = workers.compute().inventory()

    assert first == HostInventory(
        host="w1",
        cores=8,
        ram=3584,
        disk=100,
        cores_used=3,
        ram_used=1024,
        disk_used=7,
        cpu_ratio=16.0,
        ram_ratio=1.5,
        disk_ratio=1.0,
        architectures=frozenset({"x86_64", "i686"}),
        traits=frozenset({"COMPUTE_NODE"}),
    )
    assert (second.host, second.cores, second.disk, second.disk_ratio) == ("w2", 3, 40, 4.0)


def test_of_the_workers_only_those_that_the_site_names_are_asked_for(workers: Workers) -> None:
    assert the_inventory(workers.compute("w2", "w9")).host == "w2"
    assert workers.api.calls == [HYPERVISORS, SERVERS, *of_provider(W2)]


def test_slivers_are_told_where_they_are_with_their_owners(workers: Workers) -> None:
    unreadable = {"id": "x", "OS-EXT-SRV-ATTR:host": "w1", "metadata": {}}
    workers.serve(
        [server("s-1", "w1", owner="physics"), server("s-2", "w2"), unreadable, server("s-3", "w1")]
    )

    first, second = workers.compute().inventory()

    assert first.slivers == {"s-1": "physics", "s-3": None}
    assert second.slivers == {"s-2": None}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"status": "disabled", "reason": "new fans"}, "new fans"),
        ({"status": "disabled"}, "disabled in Nova"),
        ({"state": "down"}, "its nova-compute is down"),
    ],
)
def test_a_worker_out_of_service_is_not_enabled_and_says_why(
    workers: Workers, values: dict[str, Any], why: str
) -> None:
    workers.lists([hypervisor("w1", W1, **values)])

    found = the_inventory(workers.compute())

    assert (found.enabled, found.why_disabled) == (False, why)


def test_a_worker_in_service_is_enabled(workers: Workers) -> None:
    assert all(found.enabled for found in workers.compute().inventory())


def test_cores_that_are_only_given_whole_count_where_there_are_no_others(workers: Workers) -> None:
    workers.has(W1, PCPU=stock(6), MEMORY_MB=stock(2048), DISK_GB=stock(1))

    assert the_inventory(workers.compute("w1")).cores == 6


def test_a_worker_whose_disks_are_shared_storage_is_not_limited_by_them(workers: Workers) -> None:
    workers.has(W1, VCPU=stock(8), MEMORY_MB=stock(2048))

    found = the_inventory(workers.compute("w1"))

    assert found.disk > 1_048_576  # more than a sliver can ask for
    assert found.disk_used == 0


def test_architectures_that_a_worker_emulates_count(workers: Workers) -> None:
    traits = ["COMPUTE_ARCH_AARCH64", "HW_CPU_X86_AVX2"]
    workers.tells(W1, "traits", {"traits": traits})

    found = the_inventory(workers.compute("w1"))

    assert found.architectures == {"x86_64", "i686", "aarch64"}
    assert found.traits == set(traits)


def test_a_worker_that_does_not_tell_its_architecture_has_none(workers: Workers) -> None:
    workers.lists([hypervisor("w1", W1, cpu_info=None)])

    assert the_inventory(workers.compute()).architectures == frozenset()


def test_a_worker_that_placement_does_not_know_is_left_out(workers: Workers) -> None:
    workers.tells(W1, "inventories", {}, status=404)

    assert the_inventory(workers.compute()).host == "w2"


def test_within_one_operation_the_workers_are_read_anew(workers: Workers) -> None:
    compute = workers.compute("w1")

    with ReadCache().active():
        compute.inventory()
        workers.lists([hypervisor("w1", W1, status="disabled")])
        found = the_inventory(compute)

    assert not found.enabled


@pytest.mark.parametrize("service", ["compute", "placement"])
def test_who_is_no_administrator_is_told_to_let_the_cloud_choose(
    workers: Workers, service: str
) -> None:
    if service == "compute":
        workers._answers("compute", "/os-hypervisors/detail", _REFUSAL, 403)
    else:
        workers.tells(W1, "usages", _REFUSAL, 403)

    with pytest.raises(Denied, match="may not know what the workers have") as denied:
        workers.compute("w1").inventory()

    assert "host, so that the cloud chooses" in denied.value.remedy


_REFUSAL = {"forbidden": {"code": 403, "message": "Policy doesn't allow it."}}


def test_wrong_credentials_are_another_matter(workers: Workers) -> None:
    workers.api.refused.add("correct horse battery staple")

    with pytest.raises(Denied) as denied:
        workers.compute().inventory()

    assert "credentials of the cloud" in denied.value.remedy


def test_a_placement_api_that_is_away_is_told(workers: Workers) -> None:
    workers.tells(W1, "inventories", {}, status=503)

    with pytest.raises(Unreachable, match="read what the workers have"):
        workers.compute("w1").inventory()


# --- what an image needs


def image(**values: Any) -> dict[str, Any]:
    given = {"id": "c9b76bcb-c7d4-4571-941d-7b6e5b016deb", "name": "tiny", "status": "active"}
    return given | values


def needs(workers: Workers, **values: Any) -> ImageNeeds:
    workers.api.answer("GET", "image", "/images", {"images": [image(**values)]})
    found = workers.compute().image_needs(Image("tiny", "root"))
    assert workers.api.calls == [("GET", "image", "/images", {"name": "tiny"})]
    return found


def test_an_image_that_says_nothing_needs_nothing(workers: Workers) -> None:
    assert needs(workers) == ImageNeeds()


@pytest.mark.parametrize(
    ("values", "architecture"),
    [
        ({"hw_architecture": "aarch64"}, "aarch64"),
        ({"architecture": "x86_64"}, "x86_64"),
        ({"hw_architecture": "aarch64", "architecture": "x86_64"}, "aarch64"),
        ({"architecture": "amd64"}, "x86_64"),
        ({"architecture": "arm64"}, "aarch64"),
        ({"architecture": "i386"}, "i686"),
    ],
)
def test_an_image_needs_its_architecture(
    workers: Workers, values: dict[str, str], architecture: str
) -> None:
    assert needs(workers, **values).architecture == architecture


def test_an_image_needs_and_forbids_traits(workers: Workers) -> None:
    found = needs(
        workers,
        **{
            "trait:HW_CPU_X86_AVX2": "required",
            "trait:CUSTOM_SLOW": "forbidden",
            "hw_cdrom_bus": "required",
        },
    )

    assert (found.required_traits, found.forbidden_traits) == ({"HW_CPU_X86_AVX2"}, {"CUSTOM_SLOW"})


@pytest.mark.parametrize(("virtual", "disk"), [(None, 2), (GIB, 2), (3 * GIB, 3), (3 * GIB + 1, 4)])
def test_an_image_needs_memory_and_a_disk_that_it_fits_on(
    workers: Workers, virtual: int | None, disk: int
) -> None:
    found = needs(workers, min_ram=512, min_disk=2, virtual_size=virtual)

    assert (found.ram, found.disk) == (512, disk)


def test_an_image_that_is_not_there_is_refused(workers: Workers) -> None:
    workers.api.answer("GET", "image", "/images", {"images": []})

    with pytest.raises(InvalidSliver) as refused:
        workers.compute().image_needs(Image("tiny", "root"))

    assert refused.value.field == "image"
