"""What a libvirt host has: read from libvirt's answers, with its own XML."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import HostInventory, HostNode, Image, ImageNeeds, ServerSpec
from fabric_direct.drivers.libvirt.servers import driver as module
from fabric_direct.drivers.libvirt.servers.domain_xml import definition
from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute
from fabric_direct.drivers.libvirt.storage.pool import GIB, OwnPool
from fabric_direct.errors import InvalidSliver, Unreachable
from fabric_direct.model import NodeSliver
from fabric_direct.site.config import Host, Site

SITE = "TEST"
CAPABILITIES = """
<capabilities>
  <host>
    <topology>
      <cells num='2'>
        <cell id='0'>
          <memory unit='KiB'>1048576</memory>
          <distances><sibling id='0' value='10'/><sibling id='1' value='21'/></distances>
          <cpus num='2'><cpu id='0'/><cpu id='2'/></cpus>
        </cell>
        <cell id='1'>
          <memory unit='KiB'>2097152</memory>
          <distances><sibling id='0' value='21'/><sibling id='1' value='10'/></distances>
          <cpus num='1'><cpu id='1'/></cpus>
        </cell>
      </cells>
    </topology>
  </host>
  <guest>
    <arch name='x86_64'>
      <machine canonical='pc-q35-7.2' maxCpus='288'>q35</machine>
      <domain type='qemu'/><domain type='kvm'/>
    </arch>
  </guest>
  <guest>
    <arch name='i686'>
      <machine canonical='pc-q35-7.2' maxCpus='288'>q35</machine>
      <domain type='qemu'/>
    </arch>
  </guest>
  <guest><arch name='s390x'><machine>s390</machine><domain type='qemu'/></arch></guest>
</capabilities>
"""
DOMAIN_CAPABILITIES = """
<domainCapabilities><cpu>
  <mode name='host-model' supported='{supported}'>
    <model fallback='forbid'>EPYC</model>
    <feature policy='disable' name='sha-ni'/>
  </mode>
</cpu></domainCapabilities>
"""
WHOLE_CPU = """
<cpu><model>EPYC</model>
  <feature policy='require' name='avx2'/>
  <feature policy='disable' name='sha-ni'/>
  <feature policy='require' name='cx16'/>
</cpu>
"""
FOREIGN = "<domain><memory unit='KiB'>524289</memory><vcpu current='1'>3</vcpu></domain>"


def native(code: int) -> libvirt.libvirtError:
    error = libvirt.libvirtError("no")
    error.err = (code, 0, "no", 2, "", "", "", 0, 0)
    return error


def sliver(**values: Any) -> NodeSliver:
    given = {"id": "s-1", "name": "node", "image": "tiny", "owner": "physics"}
    size = {"capacities": {"core": 2, "ram": 3, "disk": 4}}
    return NodeSliver.model_validate({**given, **size, **values})


def volume(capacity: int, allocation: int) -> MagicMock:
    return MagicMock(**{"info.return_value": [0, capacity, allocation]})


def domain(xml: str) -> MagicMock:
    return MagicMock(**{"XMLDesc.return_value": xml})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    there = tmp_path / "tiny.qcow2"
    there.touch()
    images = {"tiny": {"path": str(there)}, "gone": {"path": "/nowhere"}, "glance": {}}
    return Site(site=SITE, state_dir=tmp_path, hosts={"w1": Host(virt_type="qemu")}, images=images)


@pytest.fixture
def pool() -> MagicMock:
    """A pool with 10 GiB left, whose volumes have 1 GiB now and may have 4 and more."""
    volumes = [volume(4 * GIB, GIB // 2), volume(1, GIB // 2)]
    info = {"info.return_value": [2, 99 * GIB, 0, 10 * GIB]}
    return MagicMock(**info, **{"listAllVolumes.return_value": volumes})


@pytest.fixture
def connection(mocker: MockerFixture, pool: MagicMock) -> MagicMock:
    """A host with two NUMA nodes, and no domain."""
    connection = MagicMock()
    connection.getInfo.return_value = ["x86_64", 3000, 3, 2000, 2, 1, 2, 1]
    connection.getCapabilities.return_value = CAPABILITIES
    connection.getDomainCapabilities.return_value = DOMAIN_CAPABILITIES.format(supported="yes")
    connection.baselineHypervisorCPU.return_value = WHOLE_CPU
    connection.listAllDomains.return_value = []
    mocker.patch.object(module, "connect", return_value=connection)
    mocker.patch.object(OwnPool, "pool", return_value=pool)
    return connection


@pytest.fixture
def compute(site: Site) -> LibvirtCompute:
    return LibvirtCompute(site, "w1")


def the_inventory(compute: LibvirtCompute) -> HostInventory:
    (found,) = compute.inventory()
    return found


def test_a_host_is_what_libvirt_says_in_mib_and_gib(
    compute: LibvirtCompute, connection: MagicMock
) -> None:
    assert the_inventory(compute) == HostInventory(
        host="w1",
        cores=3,
        ram=3000,
        disk=11,
        disk_used=5,
        nodes=(HostNode(0, 2, 1024, {0: 10, 1: 21}), HostNode(1, 1, 2048, {0: 21, 1: 10})),
        architectures=frozenset({"x86_64", "i686"}),
        traits=frozenset({"HW_CPU_X86_AVX2"}),
        images=frozenset({"tiny"}),
    )


def test_every_domain_counts_with_all_that_it_may_take_and_ours_are_told(
    compute: LibvirtCompute, connection: MagicMock, site: Site
) -> None:
    spec = ServerSpec(sliver(), Image("tiny", "root"))
    ours = definition(spec, SITE, OwnPool.of(site, "w1"), "qemu").replace("GiB'>3", "KiB'>3145728")
    elsewhere = ours.replace("site='TEST'", "site='OTHER'").replace("s-1", "s-2")
    connection.listAllDomains.return_value = [domain(ours), domain(FOREIGN), domain(elsewhere)]

    found = the_inventory(compute)

    assert found.cores_used == 2 + 3 + 2
    assert found.ram_used == 3 * 1024 + 513 + 3 * 1024
    assert found.slivers == {"s-1": "physics"}


def test_a_domain_whose_stamp_cannot_be_read_counts_for_no_sliver(
    compute: LibvirtCompute, connection: MagicMock, site: Site
) -> None:
    spec = ServerSpec(sliver(), Image("tiny", "root"))
    known = definition(spec, SITE, OwnPool.of(site, "w1"), "qemu")
    newer = known.replace("&#34;sliver&#34;: {", "&#34;sliver&#34;: {&#34;newer&#34;: 1, ")
    connection.listAllDomains.return_value = [domain(newer)]

    found = the_inventory(compute)

    assert (found.cores_used, found.slivers) == (2, {})


def test_a_domain_that_goes_meanwhile_does_not_count(
    compute: LibvirtCompute, connection: MagicMock
) -> None:
    gone = MagicMock(**{"XMLDesc.side_effect": native(libvirt.VIR_ERR_NO_DOMAIN)})
    connection.listAllDomains.return_value = [gone, domain(FOREIGN)]

    assert the_inventory(compute).cores_used == 3


def test_a_volume_that_goes_meanwhile_does_not_count(
    compute: LibvirtCompute, connection: MagicMock, pool: MagicMock
) -> None:
    gone = MagicMock(**{"info.side_effect": native(libvirt.VIR_ERR_NO_STORAGE_VOL)})
    pool.listAllVolumes.return_value = [gone, volume(2 * GIB, 0)]

    found = the_inventory(compute)

    assert (found.disk, found.disk_used) == (10, 2)


def test_a_volume_that_is_larger_than_it_may_become_counts_as_it_is(
    compute: LibvirtCompute, connection: MagicMock, pool: MagicMock
) -> None:
    pool.listAllVolumes.return_value = [volume(GIB, 2 * GIB)]

    found = the_inventory(compute)

    assert (found.disk, found.disk_used) == (12, 2)


def test_architectures_are_those_of_the_hosts_virtualization(
    site: Site, connection: MagicMock
) -> None:
    with_kvm = site.model_copy(update={"hosts": {"w1": Host(virt_type="kvm")}})

    found = the_inventory(LibvirtCompute(with_kvm, "w1"))

    assert found.architectures == {"x86_64"}
    connection.getDomainCapabilities.assert_called_once_with(None, "x86_64", "q35", "kvm")


def test_the_cpu_of_a_guest_is_told_whole_by_libvirt(
    compute: LibvirtCompute, connection: MagicMock
) -> None:
    compute.inventory()

    *about, cpus, flag = connection.baselineHypervisorCPU.call_args.args
    assert about == [None, "x86_64", "q35", "qemu"]
    assert "<model fallback" in cpus[0]
    assert flag == libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES


def test_a_host_that_cannot_describe_its_cpu_has_no_traits(
    compute: LibvirtCompute, connection: MagicMock
) -> None:
    connection.getDomainCapabilities.return_value = DOMAIN_CAPABILITIES.format(supported="no")

    assert the_inventory(compute).traits == frozenset()


def test_images_are_unknown_where_nobody_can_look(site: Site, connection: MagicMock) -> None:
    far = Host(virt_type="qemu", libvirt="qemu+tls://w1.example.net/system")

    found = the_inventory(LibvirtCompute(site.model_copy(update={"hosts": {"w1": far}}), "w1"))

    assert found.images is None


def test_libvirts_silence_is_told(compute: LibvirtCompute, connection: MagicMock) -> None:
    connection.getCapabilities.side_effect = native(libvirt.VIR_ERR_NO_CONNECT)

    with pytest.raises(Unreachable, match="read what the host has"):
        compute.inventory()


def test_room_looks_at_the_pool_anew(
    compute: LibvirtCompute, connection: MagicMock, pool: MagicMock
) -> None:
    compute.inventory()

    pool.refresh.assert_called_once_with(0)


# --- what an image needs


def test_an_image_needs_the_architecture_that_the_site_names(site: Site) -> None:
    images = {"arm": {"path": "/images/arm.qcow2", "architecture": "aarch64"}}
    site = Site.model_validate({**site.model_dump(), "images": images})
    compute = LibvirtCompute(site, "w1")

    assert compute.image_needs(Image.of(site, "arm")) == ImageNeeds(architecture="aarch64")


def test_an_image_that_the_site_has_no_path_of_is_refused(
    compute: LibvirtCompute, site: Site
) -> None:
    with pytest.raises(InvalidSliver) as refused:
        compute.image_needs(Image.of(site, "glance"))

    assert refused.value.field == "image"
