"""Devices of a real worker and a running guest: attached, guarded, taken back, cleaned."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import libvirt
import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import DeviceDomain, HostDevice
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.passthrough.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.passthrough.pci_survey import survey
from fabric_direct.drivers.libvirt.passthrough.sriov import SriovDevice
from fabric_direct.errors import (
    DeviceClaimed,
    DeviceInUse,
    DeviceUnclean,
    FabricDirectError,
    InvalidSliver,
    TimedOut,
    Unsupported,
)
from fabric_direct.model import (
    DeviceState,
    Gpu,
    Interface,
    Nvme,
    PciAddress,
    SharedNic,
    SmartNic,
)
from fabric_direct.site.config import Site
from tests.limits import PATIENT
from tests.worker.conftest import L2, Worker

VF, OTHER_VF, SWITCHED_VF = "0000:01:10.0", "0000:01:10.2", "0000:02:10.0"
NVME, GPU, AUDIO = "0000:05:00.0", "0000:06:00.0", "0000:06:00.1"
MAC, OTHER_MAC = "52:54:00:0f:d0:01", "52:54:00:0f:d0:02"
DETACH = PATIENT["call"]


@pytest.fixture
def tenant(l2: L2) -> DeviceDomain:
    """Whom everything is passed through to."""
    return DeviceDomain("fdtest", l2.domain.UUIDString())


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture
def hostdev(site: Site) -> HostdevDevice:
    return HostdevDevice(site, "worker1")


@pytest.fixture
def sriov(site: Site, worker: Worker, unchanged: None) -> Iterator[SriovDevice]:
    """The driver of VFs; the uplinks, which stay in VEPA, are set back afterwards."""
    yield SriovDevice(site, "worker1")
    for link in ("enp1s0", "enp2s0"):
        worker.run("bridge", "link", "set", "dev", link, "hwmode", "veb")


def nic(bdf: str = VF, mac: str = MAC, **interface: Any) -> SharedNic:
    return SharedNic(
        id="nic1", bdf=(PciAddress.parse(bdf),), interface=Interface(mac=mac, **interface)
    )


def gpu(*functions: str) -> Gpu:
    return Gpu(id="gpu1", bdf=tuple(map(PciAddress.parse, functions or (GPU, AUDIO))))


def drive(bdf: str = NVME) -> Nvme:
    return Nvme(id="disk1", bdf=(PciAddress.parse(bdf),))


def device(driver: HostdevDevice, bdf: str) -> HostDevice:
    return next(d for d in driver.inventory() if str(d.address) == bdf)


def give_back(driver: HostdevDevice, tenant: DeviceDomain, component: str) -> None:
    """Detach and clean, as a deletion does."""
    driver.detach(tenant, component, timeout=DETACH)
    for record in driver.records(tenant.sliver):
        if record.component == component:
            driver.clean(record)


def have_again(worker: Worker, addresses: list[str]) -> bool:
    """Return whether the first NIC's VFs from the second on have these; if not, set them."""
    found = [worker.vf("enp1s0", number)["address"] for number in range(1, len(addresses) + 1)]
    for number, address in enumerate(addresses, 1):
        if found[number - 1] != address:
            worker.run("ip", "link", "set", "enp1s0", "vf", str(number), "mac", address)
    return found == addresses


HOLD = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_function_that_a_program_has_by_vfio_is_used_and_refused(
    site: Site, hostdev: HostdevDevice, tenant: DeviceDomain, worker: Worker, unchanged: None
) -> None:
    host = host_driver(site, "worker1")
    worker.run("modprobe", "vfio-pci")  # which libvirt does before it binds to it
    host.call("pci.bind", timeout=PATIENT["call"], address=NVME, driver="vfio-pci")
    group = device(hostdev, NVME).function.iommu_group
    channel = worker._client().get_transport().open_session()
    channel.exec_command(f"python3 -c '{HOLD}' /dev/vfio/{group}")
    assert channel.recv(4) == b"held"
    try:
        shown = device(hostdev, NVME)
        with pytest.raises(DeviceInUse, match=rf"/dev/vfio/{group} is held by python3 \(pid \d+\)"):
            hostdev.check(drive(), tenant)
        with pytest.raises(DeviceInUse):
            hostdev.attach(tenant, drive())
    finally:
        channel.shutdown_write()
        channel.recv_exit_status()
        channel.close()
        host.call("pci.bind", timeout=PATIENT["call"], address=NVME)

    assert (shown.state, hostdev.records("fdtest")) == (DeviceState.HOST_USED, ())
    hostdev.check(drive(), tenant)


class TestASharedNic:
    def test_has_its_settings_and_is_as_it_was_afterwards(
        self, sriov: SriovDevice, tenant: DeviceDomain, worker: Worker, l2: L2
    ) -> None:
        before = worker.vf("enp1s0", 0)
        wanted = nic(vlan=304, bandwidth=100)
        sriov.check(wanted, tenant)

        (plugged,) = sriov.attach(tenant, wanted)

        assert (plugged.mac, plugged.vlan, plugged.bridge_mode) == (MAC, 304, "vepa")
        assert sriov.differences(wanted, tenant) == ()
        there = worker.vf("enp1s0", 0)
        assert (there["address"], there["vlan_list"][0]["vlan"]) == (MAC, 304)
        assert there["rate"]["max_tx"] == 100
        assert there["spoofchk"] is True
        assert device(sriov, VF).state is DeviceState.USED
        assert device(sriov, VF).owner == "fdtest/nic1"
        assert sriov.attach(tenant, wanted) == (plugged,)

        give_back(sriov, tenant, "nic1")

        assert worker.vf("enp1s0", 0) == before
        assert device(sriov, VF).state is DeviceState.FREE
        assert sriov.plugged(tenant) == sriov.records("fdtest") == ()

    def test_its_rate_is_changed_while_it_is_plugged_in(
        self, sriov: SriovDevice, tenant: DeviceDomain, worker: Worker
    ) -> None:
        sriov.attach(tenant, nic(bandwidth=100))
        assert sriov.differences(nic(bandwidth=200), tenant) == (
            "VF of nic1 has max tx rate 100, not 200",
        )

        sriov.attach(tenant, nic(bandwidth=200))

        assert worker.vf("enp1s0", 0)["rate"]["max_tx"] == 200
        give_back(sriov, tenant, "nic1")

    def test_its_vlan_is_changed_while_it_is_plugged_in(
        self, sriov: SriovDevice, tenant: DeviceDomain, worker: Worker, l2: L2
    ) -> None:
        before = worker.vf("enp1s0", 0)
        sriov.attach(tenant, nic(vlan=304))
        assert sriov.differences(nic(vlan=305), tenant) == (
            "SharedNIC nic1 has VLAN 304 at its next start, not 305",
            "VF of nic1 has vlan 304, not 305",
        )

        (changed,) = sriov.attach(tenant, nic(vlan=305))

        assert changed.vlan == worker.vf("enp1s0", 0)["vlan_list"][0]["vlan"] == 305
        assert "<tag id='305'/>" in l2.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        assert sriov.differences(nic(vlan=305), tenant) == ()

        (untagged,) = sriov.attach(tenant, nic())

        assert (untagged.mac, untagged.vlan) == (MAC, None)
        assert worker.vf("enp1s0", 0)["vlan_list"][0].get("vlan", 0) == 0
        assert sriov.differences(nic(), tenant) == ()
        give_back(sriov, tenant, "nic1")
        assert worker.vf("enp1s0", 0) == before

    def test_its_vlan_and_mac_are_set_back_where_others_changed_them(
        self, sriov: SriovDevice, tenant: DeviceDomain, worker: Worker
    ) -> None:
        sriov.attach(tenant, nic(vlan=304))
        worker.run("ip", "link", "set", "enp1s0", "vf", "0", "vlan", "7")
        worker.run("ip", "link", "set", "enp1s0", "vf", "0", "mac", OTHER_MAC)
        assert sriov.differences(nic(vlan=304), tenant) == (
            f"VF of nic1 has mac {OTHER_MAC}, not {MAC}",
            "VF of nic1 has vlan 7, not 304",
        )

        sriov.attach(tenant, nic(vlan=304))

        there = worker.vf("enp1s0", 0)
        assert (there["address"], there["vlan_list"][0]["vlan"]) == (MAC, 304)
        give_back(sriov, tenant, "nic1")

    def test_an_uplink_that_left_vepa_is_set_to_it_again_with_a_warning(
        self, sriov: SriovDevice, tenant: DeviceDomain, worker: Worker
    ) -> None:
        sriov.attach(tenant, nic())
        worker.run("bridge", "link", "set", "dev", "enp1s0", "hwmode", "veb")
        assert sriov.differences(nic(), tenant) == ("uplink enp1s0 is in mode veb, not vepa",)
        reads = ReadCache()

        with reads.active():
            (plugged,) = sriov.attach(tenant, nic())

        assert plugged.bridge_mode == "vepa"
        assert reads.warnings == [
            "uplink enp1s0 of worker1 had left vepa mode and was set to it again"
        ]
        give_back(sriov, tenant, "nic1")

    def test_an_uplink_without_vepa_in_the_site_keeps_its_switch(
        self, sriov: SriovDevice, tenant: DeviceDomain
    ) -> None:
        (plugged,) = sriov.attach(tenant, nic(SWITCHED_VF))

        assert plugged.bridge_mode == "veb"
        give_back(sriov, tenant, "nic1")

    def test_another_vf_of_the_nic_gets_another_mac(
        self, sriov: SriovDevice, tenant: DeviceDomain
    ) -> None:
        sriov.attach(tenant, nic())
        twin = nic(OTHER_VF).model_copy(update={"id": "nic2"})

        with pytest.raises(InvalidSliver) as caught:
            sriov.check(twin, tenant)
        assert caught.value.field == "interface.mac"
        with pytest.raises(InvalidSliver, match=f"VF 0 of enp1s0 has the MAC {MAC}"):
            sriov.attach(tenant, twin)

        give_back(sriov, tenant, "nic1")

    def test_one_that_was_pulled_from_the_guest_is_given_back(
        self, sriov: SriovDevice, tenant: DeviceDomain, worker: Worker
    ) -> None:
        sriov.attach(tenant, nic())
        vfs = "/sys/bus/pci/devices/0000:01:00.0/sriov_numvfs"
        before = [worker.vf("enp1s0", number)["address"] for number in range(1, 4)]
        worker.write(vfs, "0")
        worker.write(vfs, "4")
        assert sriov.plugged(tenant) == ()
        assert sriov.differences(nic(), tenant) == (f"SharedNIC nic1 does not have {VF} now",)

        (plugged,) = sriov.attach(tenant, nic())

        assert str(plugged.host_address) == VF
        give_back(sriov, tenant, "nic1")
        # The kernel has given the others new addresses, and their driver may do so once more.
        wait_until("their former addresses", lambda: have_again(worker, before), timeout=300)

    def test_of_two_slivers_that_want_it_at_once_one_gets_it(
        self, site: Site, sriov: SriovDevice, tenant: DeviceDomain
    ) -> None:
        barrier = threading.Barrier(2)

        def attach(number: int) -> str:
            mine = DeviceDomain(f"fdtest{number}", tenant.domain)
            barrier.wait()
            try:
                SriovDevice(site, "worker1").attach(mine, nic())
            except FabricDirectError as error:
                return type(error).__name__
            return f"fdtest{number}"

        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(attach, (1, 2))
        (winner,) = {one, other} & {"fdtest1", "fdtest2"}
        assert {one, other} - {winner} <= {"DeviceClaimed", "DeviceUnclean"}
        give_back(sriov, DeviceDomain(winner, tenant.domain), "nic1")

    def test_is_not_found_again_by_a_rescan(self, sriov: SriovDevice, tenant: DeviceDomain) -> None:
        with pytest.raises(Unsupported, match="cannot be found again by a rescan"):
            sriov.rescan(tenant, nic(), timeout=DETACH)


class TestADeviceOfTwoFunctions:
    def test_has_two_ports_now_and_one_slot_at_the_next_start(
        self, hostdev: HostdevDevice, tenant: DeviceDomain, l2: L2
    ) -> None:
        plugged = hostdev.attach(tenant, gpu())

        assert [str(d.host_address) for d in plugged] == [GPU, AUDIO]
        assert len({d.guest_port for d in plugged}) == 2
        inactive = l2.domain.XMLDesc(2)
        assert inactive.count("multifunction='on'") > 0
        assert hostdev.differences(gpu(), tenant) == ()
        give_back(hostdev, tenant, "gpu1")

    def test_is_back_with_its_driver_after_cleaning(
        self, site: Site, hostdev: HostdevDevice, tenant: DeviceDomain, worker: Worker
    ) -> None:
        hostdev.attach(tenant, gpu())
        assert [worker.driver(f) for f in (GPU, AUDIO)] == ["vfio-pci"] * 2
        assert device(hostdev, GPU).peers == (PciAddress.parse(AUDIO),)
        there = survey(host_driver(site, "worker1"), timeout=PATIENT["call"])
        held = {holder.domain for f in (GPU, AUDIO) for holder in there[PciAddress.parse(f)].held}
        assert held == {tenant.domain}
        shown = [device(hostdev, f).function for f in (GPU, AUDIO)]
        assert [(f.held, f.uses) for f in shown] == [((), ())] * 2

        hostdev.detach(tenant, "gpu1", timeout=DETACH)
        assert device(hostdev, GPU).state is DeviceState.UNCLEAN
        for record in hostdev.records("fdtest"):
            hostdev.clean(record)

        assert [worker.driver(f) for f in (GPU, AUDIO)] == ["e1000e"] * 2
        assert device(hostdev, GPU).state is DeviceState.FREE

    def test_is_not_had_without_its_group_unless_that_is_allowed(
        self, make_site: Callable[..., Site], tenant: DeviceDomain
    ) -> None:
        site = make_site(host={"devices": [{"type": "GPU", "bdf": GPU}]})

        with pytest.raises(
            InvalidSliver, match=f"passed through with {AUDIO}, which is not allowed"
        ):
            HostdevDevice(site, "worker1").check(gpu(GPU), tenant)

    def test_is_found_again_by_a_rescan(
        self, hostdev: HostdevDevice, tenant: DeviceDomain, l2: L2
    ) -> None:
        hostdev.attach(tenant, gpu())

        hostdev.rescan(tenant, gpu(), timeout=DETACH)

        assert len(hostdev.plugged(tenant)) == 2
        assert hostdev.differences(gpu(), tenant) == ()
        give_back(hostdev, tenant, "gpu1")


class TestADrive:
    def test_is_erased_before_it_is_free_again(
        self, hostdev: HostdevDevice, tenant: DeviceDomain, worker: Worker
    ) -> None:
        disk = worker.namespace(NVME)
        worker.run(
            "sh", "-c", f"yes secret | dd of=/dev/{disk} bs=1M count=8 oflag=direct iflag=fullblock"
        )
        hostdev.attach(tenant, drive())
        assert device(hostdev, NVME).owner == "fdtest/disk1"

        hostdev.detach(tenant, "disk1", timeout=DETACH)
        unclean = device(hostdev, NVME)
        assert (unclean.state, unclean.owner) == (DeviceState.UNCLEAN, "fdtest/disk1")
        with pytest.raises(DeviceUnclean, match="not clean yet"):
            hostdev.check(drive(), DeviceDomain("other", tenant.domain))
        (record,) = hostdev.records("fdtest")
        hostdev.clean(record)

        assert device(hostdev, NVME).state is DeviceState.FREE
        worker.run("sh", "-c", "echo 3 >/proc/sys/vm/drop_caches")
        read = worker.run(
            "sh", "-c", f"head -c 8M /dev/{worker.namespace(NVME)} | tr -d '\\0' | wc -c"
        )
        assert read.strip() == "0"

    def test_that_cannot_be_erased_is_quarantined_until_a_person_sets_it_free(
        self, site: Site, hostdev: HostdevDevice, tenant: DeviceDomain, worker: Worker
    ) -> None:
        hostdev.attach(tenant, drive())
        hostdev.detach(tenant, "disk1", timeout=DETACH)
        (record,) = hostdev.records("fdtest")
        worker.node(NVME).reAttach()
        disk = worker.namespace(NVME)
        worker.run("mkfs.ext4", "-q", "-F", f"/dev/{disk}")
        worker.run("mount", f"/dev/{disk}", "/mnt")
        try:
            with pytest.raises(DeviceUnclean, match="is mounted on /mnt"):
                hostdev.clean(record)
        finally:
            worker.run("umount", "/mnt")

        (record,) = HostdevDevice(site, "worker1").records("fdtest")
        assert "mounted on /mnt" in record.quarantined
        assert device(hostdev, NVME).state is DeviceState.QUARANTINED
        with pytest.raises(DeviceUnclean, match="quarantined"):
            hostdev.attach(tenant, drive())
        with pytest.raises(DeviceUnclean, match="quarantined"):
            hostdev.clean(record)
        hostdev.release(PciAddress.parse(NVME), force=False)

        assert device(hostdev, NVME).state is DeviceState.FREE

    def test_that_the_host_has_mounted_is_refused(
        self, hostdev: HostdevDevice, tenant: DeviceDomain, worker: Worker
    ) -> None:
        disk = worker.namespace(NVME)
        worker.run("mkfs.ext4", "-q", "-F", f"/dev/{disk}")
        worker.run("mount", f"/dev/{disk}", "/mnt")
        try:
            used = device(hostdev, NVME)
            with pytest.raises(DeviceInUse, match=f"{disk} is mounted on /mnt"):
                hostdev.attach(tenant, drive())
        finally:
            worker.run("umount", "/mnt")

        assert used.state is DeviceState.HOST_USED
        assert hostdev.records("fdtest") == ()
        worker.run("wipefs", "-qa", f"/dev/{disk}")


class TestWhatIsRefused:
    def test_a_nic_one_of_whose_vfs_a_guest_has(
        self, hostdev: HostdevDevice, sriov: SriovDevice, tenant: DeviceDomain
    ) -> None:
        sriov.attach(tenant, nic(SWITCHED_VF))
        whole = SmartNic(id="nic2", bdf=(PciAddress.parse("0000:02:00.0"),))

        with pytest.raises(DeviceClaimed, match=f"domain l2 has {SWITCHED_VF}"):
            hostdev.attach(tenant, whole)

        assert device(hostdev, "0000:02:00.0").state is DeviceState.USED
        give_back(sriov, tenant, "nic1")

    def test_what_another_sliver_has(self, sriov: SriovDevice, tenant: DeviceDomain) -> None:
        sriov.attach(tenant, nic())

        with pytest.raises(DeviceClaimed) as caught:
            sriov.check(nic(mac=OTHER_MAC), DeviceDomain("another"))

        assert caught.value.field == "bdf[0]"
        give_back(sriov, tenant, "nic1")

    def test_what_is_not_allowed_or_not_there(
        self, hostdev: HostdevDevice, tenant: DeviceDomain
    ) -> None:
        for bdf, said in (("0000:03:00.0", "is not allowed as NVME"), ("0000:7f:00.0", "no PCI")):
            with pytest.raises(InvalidSliver, match=said):
                hostdev.check(drive(bdf), tenant)


class TestAGuest:
    def test_that_never_lets_go_keeps_the_device(
        self, sriov: SriovDevice, tenant: DeviceDomain, l2: L2
    ) -> None:
        sriov.attach(tenant, nic())
        l2.domain.suspend()
        try:
            with pytest.raises(TimedOut, match="the device is still the sliver's"):
                sriov.detach(tenant, "nic1", timeout=10)
            assert [d.component for d in sriov.plugged(tenant)] == ["nic1"]
            assert sriov.differences(nic(), tenant) == ()
        finally:
            l2.domain.resume()
        give_back(sriov, tenant, "nic1")

    def test_has_as_many_devices_as_root_ports(
        self, sriov: SriovDevice, tenant: DeviceDomain
    ) -> None:
        assert sriov.free_ports(tenant) == 8
        sriov.attach(tenant, nic())
        assert sriov.free_ports(tenant) == 7
        give_back(sriov, tenant, "nic1")


def test_libvirtd_may_be_restarted_between_any_two_calls(
    sriov: SriovDevice, tenant: DeviceDomain, worker: Worker
) -> None:
    restart = ("systemctl", "restart", "libvirtd")

    worker.run(*restart)
    sriov.check(nic(), tenant)
    worker.run(*restart)
    sriov.attach(tenant, nic())
    worker.run(*restart)
    assert len(sriov.plugged(tenant)) == 1
    sriov.detach(tenant, "nic1", timeout=DETACH)
    worker.run(*restart)
    (record,) = sriov.records("fdtest")
    sriov.clean(record)

    assert device(sriov, VF).state is DeviceState.FREE
