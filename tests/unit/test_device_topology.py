"""What is known of a host's PCI functions at one moment: what is refused, and the inventory."""

from dataclasses import replace
from typing import Any

import pytest

from fabric_direct.drivers.contract import (
    DeviceRecord,
    Holder,
    HostDevice,
    PciFunction,
    ProgramHolder,
)
from fabric_direct.drivers.libvirt.domains.claims import FunctionClaim
from fabric_direct.drivers.libvirt.domains.lookup import alias, domain_uuid
from fabric_direct.drivers.libvirt.passthrough.topology import Topology, with_uses_by_programs
from fabric_direct.errors import (
    DeviceClaimed,
    DeviceInUse,
    DeviceUnclean,
    FabricDirectError,
    InvalidSliver,
)
from fabric_direct.model import (
    DeviceState,
    Gpu,
    Nvme,
    PciAddress,
    PciComponent,
    SharedNic,
    SmartNic,
)
from fabric_direct.site.config import AllowedDevice

SLIVER = "sliver"
OWN = str(domain_uuid(SLIVER))
FOREIGN = "11111111-1111-1111-1111-111111111111"
PORT, GPU, AUDIO, DRIVE, TWIN, PF, VF, VF2, LONE = map(
    PciAddress.parse,
    (
        "00:01.0",
        "25:00.0",
        "25:00.1",
        "26:00.0",
        "26:01.0",
        "27:00.0",
        "27:10.0",
        "27:10.2",
        "28:00.0",
    ),
)

# A GPU with its audio behind a root port, two drives in one group, a NIC with two VFs, and a function
# that has no group.
FUNCTIONS = (
    PciFunction(PORT, "8086", "a2b0", kind="060400", iommu_group=14),
    PciFunction(GPU, "10de", "1eb8", kind="030200", iommu_group=14),
    PciFunction(AUDIO, "10de", "10f8", kind="040300", iommu_group=14),
    PciFunction(DRIVE, "144d", "a80a", kind="010802", iommu_group=15),
    PciFunction(TWIN, "144d", "a80a", kind="010802", iommu_group=15),
    PciFunction(PF, "8086", "10c9", iommu_group=16, virtual=(VF, VF2), links=("ens6f1",)),
    PciFunction(VF, "8086", "10ca", iommu_group=17, physical=PF, vf=0, links=("ens6f1v0",)),
    PciFunction(VF2, "8086", "10ca", iommu_group=18, physical=PF, vf=1),
    PciFunction(LONE, "10ee", "5000"),
)
ENTRIES = (
    AllowedDevice(type="GPU", model="Tesla-T4", bdf=GPU),
    AllowedDevice(type="GPU", bdf=AUDIO),
    AllowedDevice(type="NVME", bdf=DRIVE),
    AllowedDevice(type="NVME", bdf=TWIN),
    AllowedDevice(type="SmartNIC", bdf=PF),
    AllowedDevice(type="SharedNIC", uplink="ens6f1"),
)
TOPOLOGY = Topology("w1", {f.address: f for f in FUNCTIONS}, (), {}, ENTRIES)

BOTH = Gpu(id="gpu", bdf=(GPU, AUDIO))
ONE_DRIVE = Nvme(id="drive", bdf=(DRIVE,))
WHOLE_NIC = SmartNic(id="nic", bdf=(PF,))
SHARED = SharedNic(id="vf", bdf=(VF,))


def with_function(address: PciAddress, **values: Any) -> Topology:
    changed = replace(TOPOLOGY.functions[address], **values)
    return replace(TOPOLOGY, functions={**TOPOLOGY.functions, address: changed})


def claimed(*addresses: PciAddress, uuid: str = FOREIGN, label: str = "") -> Topology:
    claims = tuple(FunctionClaim(address, "foreign", uuid, label) for address in addresses)
    return replace(TOPOLOGY, claims=claims)


def recorded(address: PciAddress, component: str = "gpu", quarantined: str = "") -> Topology:
    made = DeviceRecord(address, "GPU", None, SLIVER, component, "10de", "1eb8", quarantined)
    return replace(TOPOLOGY, records={address: made})


def refusal(view: Topology, component: PciComponent, kind: type[FabricDirectError]) -> str:
    """Return field, where and words of the refusal of what the sliver asks for."""
    with pytest.raises(kind) as caught:
        view.refuse(component, SLIVER, OWN)
    return str(caught.value)


def device(view: Topology, address: PciAddress) -> HostDevice:
    return next(found for found in view.devices({}) if found.address == address)


class TestAPciDomainBeyondFourDigits:
    """Intel VMD: the drives are in a domain of their own, in the IOMMU group of its controller."""

    DRIVE = PciAddress.parse("10000:01:00.0")

    def view(self) -> Topology:
        drive = PciFunction(self.DRIVE, "144d", "a80a", kind="010802", iommu_group=16)
        return replace(TOPOLOGY, functions={**TOPOLOGY.functions, self.DRIVE: drive})

    def test_is_shown_as_not_allowed_with_the_reason(self) -> None:
        shown = device(self.view(), self.DRIVE)

        assert shown.state is DeviceState.NOT_ALLOWED
        assert "PCI domain 10000" in shown.why

    def test_is_refused_in_the_allow_list(self) -> None:
        with pytest.raises(ValueError, match=r"PCI domain 10000.*name its controller"):
            AllowedDevice(type="NVME", bdf=self.DRIVE)

    def test_leaves_with_its_controller_whose_group_it_is_in(self) -> None:
        assert self.view().peers(PF) == ()
        assert device(self.view(), PF).state is DeviceState.FREE


class TestWhatAProgramHasByVfio:
    HELD = ProgramHolder("/dev/vfio/15 is held by testpmd (pid 7)")
    MINE = ProgramHolder("/dev/vfio/15 is held by domain foreign (pid 8)", FOREIGN)

    def view(self, *holders: ProgramHolder, claims: Topology = TOPOLOGY) -> Topology:
        twins = {a: replace(TOPOLOGY.functions[a], held=holders) for a in (DRIVE, TWIN)}
        functions = with_uses_by_programs({**TOPOLOGY.functions, **twins}, claims.claims)
        return replace(claims, functions=functions)

    def test_is_used_and_the_program_named(self) -> None:
        view = self.view(self.HELD)

        assert "testpmd (pid 7)" in refusal(view, ONE_DRIVE, DeviceInUse)
        assert device(view, DRIVE).state is DeviceState.HOST_USED
        assert device(view, TWIN).why == self.HELD.use

    def test_of_a_domain_is_not_told_again_beside_its_claim(self) -> None:
        view = self.view(self.MINE, claims=claimed(DRIVE))

        assert device(view, DRIVE).function.uses == ()
        assert device(view, TWIN).function.uses == ()
        assert device(view, DRIVE).state is DeviceState.USED

    def test_beside_the_domain_that_has_it_is_told(self) -> None:
        view = self.view(self.MINE, self.HELD, claims=claimed(DRIVE))

        assert device(view, DRIVE).function.uses == (self.HELD.use,)

    def test_of_a_domain_that_libvirt_does_not_know_is_told(self) -> None:
        view = self.view(self.MINE, claims=claimed(GPU))

        assert device(view, DRIVE).state is DeviceState.HOST_USED

    def test_of_a_function_without_a_group_is_explained_by_a_claim_on_itself_only(self) -> None:
        alone = replace(TOPOLOGY.functions[LONE], held=(self.MINE,))
        seen = {**TOPOLOGY.functions, LONE: alone}

        assert with_uses_by_programs(seen, claimed(LONE).claims)[LONE].uses == ()
        assert with_uses_by_programs(seen, claimed(DRIVE).claims)[LONE].uses == (self.MINE.use,)


class TestTheUplinkOfAVf:
    @pytest.mark.parametrize("named", ["eth2", "eth9"])
    def test_is_the_one_that_the_allow_list_names(self, named: str) -> None:
        """A kernel that does not tell representors apart gives them beside the uplink."""
        view = with_function(PF, links=("eth10", "eth2", "eth8", "eth9"))
        view = replace(view, entries=(AllowedDevice(type="SharedNIC", uplink=named),))

        assert view.vf_of(VF2) == (named, 1)
        assert device(view, VF).uplink == named
        assert set(view.allowed()) == {VF, VF2}

    def test_is_that_of_the_entry_that_allows_it_where_a_function_has_two_ports(self) -> None:
        entries = (
            AllowedDevice(type="SharedNIC", uplink="ens1"),
            AllowedDevice(type="SharedNIC", uplink="ens1d1", vepa=True),
        )
        view = replace(with_function(PF, links=("ens1", "ens1d1")), entries=entries)

        assert view.uplink_of(VF) == view.allowed()[VF].uplink

    def test_is_the_first_of_its_pf_if_the_allow_list_names_none(self) -> None:
        view = replace(with_function(PF, links=("eth2", "eth10")), entries=())

        assert view.vf_of(VF2) == ("eth2", 1)


class TestTheAllowList:
    def test_an_entry_with_an_uplink_stands_for_the_vfs_that_it_has_now(self) -> None:
        more = with_function(PF, virtual=(VF,))

        assert {a for a, entry in TOPOLOGY.allowed().items() if entry.uplink} == {VF, VF2}
        assert {a for a, entry in more.allowed().items() if entry.uplink} == {VF}

    @pytest.mark.parametrize(
        "view",
        [
            with_function(PF, virtual=()),
            with_function(PF, links=()),
            replace(TOPOLOGY, functions={}),
        ],
        ids=["no VFs", "another uplink", "no such NIC"],
    )
    def test_an_uplink_without_vfs_allows_none(self, view: Topology) -> None:
        assert not [entry for entry in view.allowed().values() if entry.uplink]

    @pytest.mark.parametrize(
        "component",
        [
            Gpu(id="c", model="Tesla-T4", bdf=(GPU,)),
            BOTH,
            Gpu(id="c", model="RTX6000", bdf=(AUDIO,)),
            ONE_DRIVE,
            WHOLE_NIC,
            SHARED,
        ],
        ids=["same model", "no model", "entry without model", "drive", "PF", "VF of an uplink"],
    )
    def test_what_it_names_passes(self, component: PciComponent) -> None:
        TOPOLOGY.refuse(component, SLIVER, OWN)

    @pytest.mark.parametrize(
        ("component", "words"),
        [
            (Gpu(id="c", bdf=(LONE,)), r"^bdf\[0\]: 0000:28:00.0 is not allowed as GPU "),
            (Gpu(id="c", bdf=(GPU, LONE)), r"^bdf\[1\]: 0000:28:00.0 is not allowed as GPU "),
            (Nvme(id="c", bdf=(GPU,)), r"^bdf\[0\]: .* as NVME .*: it allows it as GPU Tesla-T4\."),
            (Gpu(id="c", model="RTX6000", bdf=(GPU,)), r"allowed as GPU RTX6000 .*GPU Tesla-T4\."),
            (SharedNic(id="c", bdf=(PF,)), r"is not allowed as SharedNIC .*as SmartNIC\."),
            (SmartNic(id="c", bdf=(VF,)), r"is not allowed as SmartNIC .*as SharedNIC\."),
        ],
        ids=["not named", "second", "other type", "other model", "PF as VF", "VF as PF"],
    )
    def test_what_it_does_not_name_is_refused(self, component: PciComponent, words: str) -> None:
        with pytest.raises(InvalidSliver, match=words) as caught:
            TOPOLOGY.refuse(component, SLIVER, OWN)

        assert caught.value.where == "site.yaml: hosts.w1.devices"

    def test_what_is_not_on_the_host_is_refused(self) -> None:
        gone = replace(TOPOLOGY, functions={GPU: TOPOLOGY.functions[GPU]})

        words = refusal(gone, BOTH, InvalidSliver)

        assert words == "bdf[1]: there is no PCI function 0000:25:00.1 (w1)"


class TestAnIommuGroup:
    def test_holds_the_other_functions_but_no_bridge(self) -> None:
        assert TOPOLOGY.peers(GPU) == (AUDIO,)
        assert TOPOLOGY.peers(DRIVE) == (TWIN,)

    @pytest.mark.parametrize("address", [LONE, PciAddress.parse("99:00.0")])
    def test_a_function_without_one_has_no_peers(self, address: PciAddress) -> None:
        assert TOPOLOGY.peers(address) == ()

    def test_is_only_had_if_all_of_it_is_allowed(self) -> None:
        fewer = replace(TOPOLOGY, entries=tuple(e for e in ENTRIES if e.bdf != TWIN))

        words = refusal(fewer, ONE_DRIVE, InvalidSliver)

        assert words.startswith(
            "bdf[0]: 0000:26:00.0 can only be passed through with 0000:26:01.0, which is not allowed "
            "(site.yaml: hosts.w1.devices): both are in IOMMU group 15."
        )

    def test_whose_other_function_a_domain_has_is_refused(self) -> None:
        words = refusal(claimed(TWIN), ONE_DRIVE, DeviceClaimed)

        assert words.startswith(
            "bdf[0]: domain foreign has 0000:26:01.0 (w1): it belongs to foreign"
        )

    def test_whose_other_function_the_host_uses_is_refused(self) -> None:
        used = with_function(TWIN, uses=("nvme1n1 is mounted on /srv", "nvme1n2 is swap"))

        words = refusal(used, ONE_DRIVE, DeviceInUse)

        assert words.startswith(
            "bdf[0]: the host uses 0000:26:01.0 (w1): nvme1n1 is mounted on /srv; nvme1n2 is swap."
        )

    def test_whose_other_function_is_not_clean_is_refused(self) -> None:
        words = refusal(recorded(TWIN, "old"), ONE_DRIVE, DeviceUnclean)

        assert words.startswith(
            "bdf[0]: 0000:26:01.0 is not clean yet (w1): sliver/old had it last."
        )


class TestOneOwner:
    def test_what_another_domain_has_is_refused(self) -> None:
        words = refusal(claimed(AUDIO), BOTH, DeviceClaimed)

        assert words.startswith("bdf[0]: domain foreign has 0000:25:00.1")

    def test_the_owner_is_named_by_sliver_and_component(self) -> None:
        uuid = str(domain_uuid("other"))

        words = refusal(claimed(LONE, GPU, uuid=uuid, label="ua-other-g-0"), BOTH, DeviceClaimed)

        assert "it belongs to other/g" in words

    def test_the_owner_of_a_clouds_domain_is_named_by_its_record(self) -> None:
        had = claimed(GPU, label=alias("another", "gpu"))
        kept = {GPU: replace(recorded(GPU).records[GPU], sliver="another")}

        words = refusal(replace(had, records=kept), BOTH, DeviceClaimed)

        assert "it belongs to another/gpu" in words

    def test_what_another_component_of_the_sliver_has_is_refused(self) -> None:
        taken = claimed(GPU, uuid=OWN, label=alias(SLIVER, "first"))

        assert "it belongs to sliver/first" in refusal(taken, BOTH, DeviceClaimed)

    def test_what_its_domain_has_without_our_stamp_is_refused(self) -> None:
        assert refusal(claimed(GPU, uuid=OWN, label="hostdev0"), BOTH, DeviceClaimed)

    def test_what_the_component_has_already_is_its_own(self) -> None:
        claimed(GPU, AUDIO, uuid=OWN, label=alias(SLIVER, "gpu")).refuse(BOTH, SLIVER, OWN)

    def test_a_nic_one_of_whose_vfs_a_domain_has_is_refused(self) -> None:
        assert "domain foreign has 0000:27:10.0" in refusal(claimed(VF), WHOLE_NIC, DeviceClaimed)

    def test_a_vf_whose_nic_a_domain_has_is_refused(self) -> None:
        assert "domain foreign has 0000:27:00.0" in refusal(claimed(PF), SHARED, DeviceClaimed)

    def test_a_vf_beside_one_that_a_domain_has_passes(self) -> None:
        claimed(VF2).refuse(SHARED, SLIVER, OWN)


class TestUse:
    def test_a_function_that_the_host_uses_is_refused(self) -> None:
        used = with_function(AUDIO, uses=("it is heard",))

        assert "the host uses 0000:25:00.1" in refusal(used, BOTH, DeviceInUse)

    def test_a_nic_one_of_whose_vfs_the_host_uses_is_refused(self) -> None:
        used = with_function(VF2, uses=("ens6f1v1 has the address 10.0.0.1/24",))

        assert "the host uses 0000:27:10.2" in refusal(used, WHOLE_NIC, DeviceInUse)

    def test_a_vf_of_a_nic_that_the_host_uses_passes(self) -> None:
        with_function(PF, uses=("ens6f1 has the default route",)).refuse(SHARED, SLIVER, OWN)

    def test_a_function_that_the_sliver_has_is_not_looked_at(self) -> None:
        label = alias(SLIVER, "drive")
        had = claimed(DRIVE, uuid=OWN, label=label)
        used = with_function(TWIN, uses=("nvme1n1 is mounted on /srv",))

        replace(had, functions=used.functions).refuse(ONE_DRIVE, SLIVER, OWN)


class TestCleanliness:
    def test_a_function_that_was_not_cleaned_is_refused(self) -> None:
        words = refusal(recorded(AUDIO, "old"), BOTH, DeviceUnclean)

        assert "0000:25:00.1 is not clean yet (w1): sliver/old had it last." in words
        assert words.endswith("name another device; fabric-direct devices w1 says whose it is.")

    def test_one_that_is_quarantined_is_refused_to_its_last_owner_too(self) -> None:
        words = refusal(recorded(GPU, quarantined="block 7 is not zero"), BOTH, DeviceUnclean)

        assert (
            "0000:25:00.0 is quarantined (w1): sliver/gpu had it last: block 7 is not zero" in words
        )

    def test_one_whose_record_cannot_be_read_is_refused(self) -> None:
        nobody = DeviceRecord(
            GPU, "", None, "", "", "", "", quarantined="its record cannot be read"
        )

        words = refusal(replace(TOPOLOGY, records={GPU: nobody}), BOTH, DeviceUnclean)

        assert "an unknown sliver had it last: its record cannot be read" in words

    def test_what_was_written_down_for_the_component_itself_is_its_own(self) -> None:
        recorded(GPU).refuse(BOTH, SLIVER, OWN)

    def test_a_nic_one_of_whose_vfs_was_not_cleaned_is_refused(self) -> None:
        assert "0000:27:10.2" in refusal(recorded(VF2, "vf"), WHOLE_NIC, DeviceUnclean)

    def test_one_that_does_not_answer_is_refused(self) -> None:
        words = refusal(with_function(AUDIO, alive=False), BOTH, DeviceUnclean)

        assert words.startswith("bdf[1]: 0000:25:00.1 does not answer (w1)")


class TestTheInventory:
    def test_has_every_function_by_address(self) -> None:
        shuffled = replace(TOPOLOGY, functions=dict(reversed(list(TOPOLOGY.functions.items()))))

        assert [d.function for d in shuffled.devices({})] == list(FUNCTIONS)

    def test_says_what_a_function_may_be_passed_through_as(self) -> None:
        gpu, vf, lone = (device(TOPOLOGY, address) for address in (GPU, VF, LONE))

        assert (gpu.type, gpu.model, gpu.peers) == ("GPU", "Tesla-T4", (AUDIO,))
        assert (vf.type, vf.model, vf.uplink) == ("SharedNIC", None, "ens6f1")
        assert (lone.type, lone.uplink) == (None, None)

    def test_has_the_bridge_mode_of_an_uplink_at_its_pf_and_its_vfs(self) -> None:
        modes = {d.address: d.bridge_mode for d in TOPOLOGY.devices({"ens6f1": "vepa"})}

        assert {address for address, mode in modes.items() if mode == "vepa"} == {PF, VF, VF2}

    def test_a_function_whose_group_is_allowed_and_idle_is_free(self) -> None:
        assert {d.address for d in TOPOLOGY.devices({}) if d.state is DeviceState.FREE} == {
            GPU,
            AUDIO,
            DRIVE,
            TWIN,
            PF,
            VF,
            VF2,
        }

    @pytest.mark.parametrize(
        ("view", "address", "state", "why", "owner"),
        [
            (TOPOLOGY, LONE, "not allowed", "", None),
            (
                with_function(LONE, uses=("it is the console",)),
                LONE,
                "not allowed",
                "it is the console",
                None,
            ),
            (
                replace(TOPOLOGY, entries=ENTRIES[:1]),
                GPU,
                "not allowed",
                "0000:25:00.1 of its IOMMU group is not allowed",
                None,
            ),
            (claimed(GPU), GPU, "used", "", "foreign"),
            (claimed(GPU), AUDIO, "used", "foreign has 0000:25:00.0", None),
            (claimed(VF), PF, "used", "foreign has 0000:27:10.0", None),
            (claimed(PF), VF, "used", "foreign has 0000:27:00.0", None),
            (claimed(LONE), LONE, "used", "", "foreign"),
            (claimed(VF2), VF, "free", "", None),
            (
                with_function(AUDIO, uses=("it is heard", "it is seen")),
                GPU,
                "host-used",
                "it is heard; it is seen",
                None,
            ),
            (with_function(PF, uses=("ens6f1 has the default route",)), VF, "free", "", None),
            (recorded(GPU), GPU, "unclean", "sliver/gpu had it last", "sliver/gpu"),
            (recorded(GPU), AUDIO, "unclean", "sliver/gpu had 0000:25:00.0 last", None),
            (recorded(VF), PF, "unclean", "sliver/gpu had 0000:27:10.0 last", None),
            (with_function(GPU, alive=False), GPU, "unclean", "it does not answer", None),
            (
                recorded(GPU, quarantined="block 7 is not zero"),
                GPU,
                "quarantined",
                "block 7 is not zero",
                "sliver/gpu",
            ),
        ],
    )
    def test_says_the_state_why_and_the_owner(
        self, view: Topology, address: PciAddress, state: str, why: str, owner: str | None
    ) -> None:
        found = device(view, address)

        assert (found.state, found.why, found.owner) == (DeviceState(state), why, owner)

    def test_what_a_sliver_has_is_used_though_it_is_written_down(self) -> None:
        had = claimed(GPU, uuid=OWN, label=alias(SLIVER, "gpu"))

        found = device(replace(had, records=recorded(GPU).records), GPU)

        assert (found.state, found.owner) == (DeviceState.USED, "sliver/gpu")

    def test_names_the_domains_that_have_it_and_whether_now(self) -> None:
        now = FunctionClaim(GPU, "node", OWN, "", live=True)
        later = FunctionClaim(GPU, "node", OWN, "", live=False)
        stopped = FunctionClaim(GPU, "other", FOREIGN, "")

        assert device(replace(TOPOLOGY, claims=(later, now, later, stopped)), GPU).domains == (
            Holder("node", OWN, live=True),
            Holder("other", FOREIGN),
        )
        assert device(replace(TOPOLOGY, claims=(later,)), GPU).domains == (
            Holder("node", OWN, live=False),
        )
        assert device(TOPOLOGY, GPU).domains == ()

    def test_what_is_quarantined_is_so_though_a_domain_has_it(self) -> None:
        view = replace(claimed(GPU), records=recorded(GPU, quarantined="no").records)

        assert device(view, GPU).state is DeviceState.QUARANTINED


class TestTheFunctionsOfOneDevice:
    def test_are_those_of_its_slot_without_vfs(self) -> None:
        beside = PciAddress.parse("27:00.3")
        more = {beside: PciFunction(beside, "8086", "10ca", physical=PF, vf=0)}

        assert TOPOLOGY.slot_mates(GPU) == (AUDIO,)
        assert TOPOLOGY.slot_mates(VF) == ()
        assert replace(TOPOLOGY, functions={**TOPOLOGY.functions, **more}).slot_mates(PF) == ()

    @pytest.mark.parametrize(
        "view",
        [
            claimed(AUDIO),
            recorded(AUDIO),
            with_function(AUDIO, uses=("it is heard",)),
            replace(TOPOLOGY, entries=ENTRIES[:1]),
        ],
        ids=["claimed", "not clean", "used by the host", "not allowed"],
    )
    def test_are_spare_while_nobody_has_or_uses_them(self, view: Topology) -> None:
        assert TOPOLOGY.spare_mates(GPU) == (AUDIO,)
        assert view.spare_mates(GPU) == ()
