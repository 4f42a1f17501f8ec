"""CPU and memory placement: the exact calls of libvirt."""

from typing import Any
from unittest.mock import MagicMock, call

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.libvirt.servers.tuning import LibvirtTuning
from fabric_direct.errors import InvalidSliver, NotFound, NotVerified
from fabric_direct.site.config import Site

LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
CAPABILITIES = """
<capabilities><host><topology><cells num='2'>
  <cell id='0'><memory unit='KiB'>4096</memory><cpus num='2'><cpu id='0'/><cpu id='1'/></cpus></cell>
  <cell id='1'><memory unit='KiB'>8192</memory><cpus num='2'><cpu id='2'/><cpu id='3'/></cpus></cell>
</cells></topology></host></capabilities>
"""

NUMA_MAPS = b"""\
55d0 default file=/usr/bin/qemu-system-x86_64 mapped=4 N0=128 kernelpagesize_kB=4
55d1 default heap anon=4 dirty=4 N0=4 kernelpagesize_kB=4
7f00 bind:0-1 anon=128 dirty=128 N0=128 kernelpagesize_kB=4
7f01 default file=/anon_hugepage huge dirty=1 N1=1 kernelpagesize_kB=2048
7ffc default stack anon=1 N1=1 kernelpagesize_kB=4
7ffd default
"""


@pytest.fixture
def connection(mocker: MockerFixture) -> MagicMock:
    connection = MagicMock()
    connection.getCPUMap.return_value = (4, [True, True, True, False], 3)
    connection.getInfo.return_value = ["x86_64", 1024, 4, 0, 2, 1, 2, 1]
    connection.getCapabilities.return_value = CAPABILITIES
    connection.getMemoryStats.side_effect = [
        {"total": 4096, "free": 2048},
        {"total": 8192, "free": 1024},
    ]
    mocker.patch("fabric_direct.drivers.libvirt.servers.tuning.connect", return_value=connection)
    return connection


@pytest.fixture
def domain(connection: MagicMock) -> MagicMock:
    domain = connection.lookupByName.return_value
    domain.connect.return_value = connection
    domain.isActive.return_value = True
    domain.info.return_value = [1, 1024, 1024, 2, 0]
    domain.vcpuPinInfo.return_value = [(False, True, False, False), (True, False, False, False)]
    domain.numaParameters.return_value = {"numa_nodeset": "0-1", "numa_mode": 3}
    return domain


@pytest.fixture
def tuning(mocker: MockerFixture) -> LibvirtTuning:
    files = {"/run/libvirt/qemu/vm.pid": b"42", "/proc/42/numa_maps": NUMA_MAPS}
    mocker.patch.object(LocalHost, "read_file", side_effect=lambda path, timeout: files[path])
    return LibvirtTuning(Site(site="TEST"), "localhost")


def another(*pins: tuple[bool, ...]) -> MagicMock:
    domain = MagicMock()
    domain.vcpuPinInfo.return_value = list(pins)
    return domain


def native(code: int) -> libvirt.libvirtError:
    error = libvirt.libvirtError("no")
    error.err = (code, 0, "no", 2, "", "", "", 0, 0)
    return error


def test_cpus_are_read_from_libvirt(
    tuning: LibvirtTuning, connection: MagicMock, domain: MagicMock
) -> None:
    connection.listAllDomains.return_value = [domain, another((False, False, False, True))]
    domain.vcpus.return_value = ([(0, 1, 99, 2), (1, 2, 7, 0)], [(True, False), (True, True)])

    assert tuning.cpu_info("vm") == {
        "vcpus": [
            {"vcpu": 0, "cpu": 2, "state": "running", "cpu_time": 99, "affinity": [0]},
            {"vcpu": 1, "cpu": 0, "state": "blocked", "cpu_time": 7, "affinity": [0, 1]},
        ],
        "host_cpus": 4,
        "pinned": [3],
    }


def test_a_domain_that_may_run_on_several_cpus_is_pinned_to_none(
    tuning: LibvirtTuning, connection: MagicMock, domain: MagicMock
) -> None:
    connection.listAllDomains.return_value = [another((True, True, False, False))]
    domain.vcpus.return_value = ([], [])

    assert tuning.cpu_info("vm")["pinned"] == []


def test_a_domain_that_ends_meanwhile_is_pinned_to_none(
    tuning: LibvirtTuning, connection: MagicMock, domain: MagicMock
) -> None:
    gone = another()
    gone.vcpuPinInfo.side_effect = native(libvirt.VIR_ERR_NO_DOMAIN)
    connection.listAllDomains.return_value = [gone]
    domain.vcpus.return_value = ([], [])

    assert tuning.cpu_info("vm")["pinned"] == []


def test_a_domain_is_looked_up_by_name(
    tuning: LibvirtTuning, connection: MagicMock, domain: MagicMock
) -> None:
    tuning.numa_info("vm")

    connection.lookupByName.assert_called_once_with("vm")


def test_an_unknown_domain_is_not_found(tuning: LibvirtTuning, connection: MagicMock) -> None:
    connection.lookupByName.side_effect = native(libvirt.VIR_ERR_NO_DOMAIN)

    with pytest.raises(NotFound):
        tuning.cpu_info("nobody")


def test_numa_nodes_are_given_in_mib(tuning: LibvirtTuning, domain: MagicMock) -> None:
    assert tuning.numa_info("vm") == {
        "nodes": [
            {"node": 0, "memory": 4, "free": 2, "cpus": [0, 1]},
            {"node": 1, "memory": 8, "free": 1, "cpus": [2, 3]},
        ],
        "node_set": "0-1",
        "mode": "restrictive",
        "usage": {0: {"Heap": 4 / 256, "Private": 1.0}, 1: {"Huge": 2.0, "Stack": 1 / 256}},
    }


def test_memory_that_cannot_be_read_is_not_known(
    tuning: LibvirtTuning, domain: MagicMock, mocker: MockerFixture
) -> None:
    mocker.patch.object(LocalHost, "read_file", side_effect=NotFound("no such file"))

    assert tuning.numa_info("vm")["usage"] is None


def test_a_stopped_domain_has_no_memory(tuning: LibvirtTuning, domain: MagicMock) -> None:
    domain.isActive.return_value = False

    assert tuning.numa_info("vm")["usage"] == {}


def test_cpus_are_pinned_now_and_for_later_starts(tuning: LibvirtTuning, domain: MagicMock) -> None:
    tuning.pin_cpus("vm", {0: 1, 1: 0})

    assert domain.pinVcpuFlags.call_args_list == [
        call(0, (False, True, False, False), LIVE | CONFIG),
        call(1, (True, False, False, False), LIVE | CONFIG),
    ]


def test_the_cpus_of_a_stopped_domain_are_pinned_for_later_starts(
    tuning: LibvirtTuning, domain: MagicMock
) -> None:
    domain.isActive.return_value = False

    tuning.pin_cpus("vm", {0: 1})

    domain.pinVcpuFlags.assert_called_once_with(0, (False, True, False, False), CONFIG)


def test_a_pin_that_is_not_read_back_is_no_success(
    tuning: LibvirtTuning, domain: MagicMock
) -> None:
    domain.vcpuPinInfo.return_value = [(True, True, True, True)]

    with pytest.raises(NotVerified):
        tuning.pin_cpus("vm", {0: 1})


@pytest.mark.parametrize("pins", [{2: 0}, {-1: 0}, {0: 4}, {0: -1}, {0: 1, 1: 3}])
def test_nothing_is_pinned_if_one_cpu_is_unknown_or_offline(
    tuning: LibvirtTuning, domain: MagicMock, pins: dict[int, int]
) -> None:
    with pytest.raises(InvalidSliver) as refused:
        tuning.pin_cpus("vm", pins)

    assert refused.value.field == "data.vcpu_cpu_map"
    domain.pinVcpuFlags.assert_not_called()


def test_memory_is_taken_from_the_nodes_now_and_later(
    tuning: LibvirtTuning, domain: MagicMock
) -> None:
    tuning.set_numa_nodes("vm", frozenset({1, 0}))

    assert domain.setNumaParameters.call_args_list == [
        call({"numa_nodeset": "0,1"}, LIVE),
        call({"numa_nodeset": "0,1"}, CONFIG),
    ]


def test_nodes_that_are_not_read_back_are_no_success(
    tuning: LibvirtTuning, domain: MagicMock
) -> None:
    domain.numaParameters.return_value = {"numa_nodeset": "1", "numa_mode": 0}

    with pytest.raises(NotVerified):
        tuning.set_numa_nodes("vm", frozenset({0}))


@pytest.mark.parametrize("nodes", [{2}, {0, 9}, set()])
def test_unknown_nodes_are_refused(
    tuning: LibvirtTuning, domain: MagicMock, nodes: set[int]
) -> None:
    with pytest.raises(InvalidSliver) as refused:
        tuning.set_numa_nodes("vm", frozenset(nodes))

    assert refused.value.field == "data.node_set"
    domain.setNumaParameters.assert_not_called()


@pytest.mark.parametrize(("text", "nodes"), [("0,1", {0, 1}), ("0-1", {0, 1}), ("1,0", {0, 1})])
def test_sets_of_nodes_are_compared_as_sets(
    tuning: LibvirtTuning, domain: MagicMock, text: str, nodes: set[Any]
) -> None:
    domain.numaParameters.return_value = {"numa_nodeset": text, "numa_mode": 3}

    tuning.set_numa_nodes("vm", frozenset(nodes))
