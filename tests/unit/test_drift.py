"""Which slivers of a site differ from their stamps, by listings; on fake drivers."""

from collections import Counter
from collections.abc import Callable

import pytest

from fabric_direct.drivers.fake import FakeCompute, Substrate, substrate
from fabric_direct.model import NodeSliver, State
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, FakeHostSettings, Host, Site
from fabric_direct.upkeep.drift import Drift
from tests.outcomes import done
from tests.unit.test_behind_our_back import (
    CHANGES,
    REF,
    fake_site,
    fakes,
    living,
    move,
    node,
    server,
)

__all__ = ["fake_site", "fakes", "living", "node"]

MakeVm = Callable[..., NodeSliver]
LISTINGS = ("compute.servers", "network.all_ports")
SURVEYS = {"device.survey": 10}
"""One for the domains and VFs of each of ten hosts."""


class TestTheDriftOfASite:
    def test_is_nothing_where_nobody_touched_anything(
        self, processor: HandlerProcessor, living: NodeSliver
    ) -> None:
        drift = processor.drift()

        assert (drift.drifts, len(drift.servers), drift.silent) == ((), 1, {})

    @pytest.mark.parametrize("what", sorted(CHANGES.keys() - {"it was stopped"}))
    def test_has_the_sliver_that_others_changed(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver, what: str
    ) -> None:
        change, _ = CHANGES[what]
        change(fakes)

        (drift,) = processor.drift().drifts

        assert (drift.sliver, drift.host, len(drift.differences)) == (REF, "localhost", 1)

    def test_has_no_sliver_that_somebody_stopped(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        server(state=State.STOPPED)(fakes)

        assert processor.drift().drifts == ()

    def test_has_a_server_that_was_moved(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        fake_site: Site,
        living: NodeSliver,
    ) -> None:
        move(fakes, fake_site)

        (drift,) = processor.drift().drifts

        assert drift.host == "other"
        assert "it is on host other, not on localhost" in drift.differences

    def test_names_a_host_that_does_not_answer_and_has_what_is_on_the_others(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        fake_site: Site,
        living: NodeSliver,
    ) -> None:
        change, sentence = CHANGES["a NIC was unplugged"]
        change(fakes)
        substrate(fake_site, "other").fault("compute.servers", kind="fail")

        drift = processor.drift()

        assert drift.drifts == (Drift(REF, "localhost", (sentence,)),)
        assert [*drift.silent] == ["other"]

    def test_of_some_hosts_asks_no_other(
        self, processor: HandlerProcessor, fake_site: Site, living: NodeSliver
    ) -> None:
        other = substrate(fake_site, "other")
        other.calls.clear()

        assert len(processor.drift(["localhost"]).servers) == 1
        assert not other.calls
        assert processor.drift(["other"]).servers == ()

    def test_says_that_the_devices_of_a_host_were_not_looked_at(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        fakes.fault("device.survey", kind="fail")

        drift = processor.drift()

        assert (drift.drifts, [*drift.silent]) == ((), ["localhost"])


class TestTheCalls:
    """They grow with hosts, not with slivers."""

    @pytest.fixture
    def fake_site(self, fake_site: Site) -> Site:
        vfs = (AllowedDevice(type="SharedNIC", uplink="ens1", vepa=True),)
        names = [f"w{number}" for number in range(10)]
        has = dict.fromkeys(names, FakeHostSettings(vfs=20))
        return fake_site.model_copy(
            update={
                "hosts": dict.fromkeys(names, Host(devices=vfs)),
                "fake": fake_site.fake.model_copy(update={"hosts": has}),
            }
        )

    @pytest.fixture
    def hosts(self, fake_site: Site) -> list[Substrate]:
        return [substrate(fake_site, host) for host in fake_site.hosts]

    def calls(self, processor: HandlerProcessor, hosts: list[Substrate]) -> Counter[str]:
        """Return how often each method is called by a look at the whole site."""
        for each in hosts:
            each.calls.clear()
        drift = processor.drift()
        assert (drift.drifts, drift.silent) == ((), {})
        return sum((each.calls for each in hosts), Counter[str]())

    def make(self, fake_site: Site, hosts: list[Substrate], vm: MakeVm, number: int) -> None:
        """Put slivers on the hosts, as their creations would leave them."""
        for index in range(number):
            name, has = f"w{index % 10}", hosts[index % 10]
            nic = {"type": "vNIC", "id": "nic", "network": "red"}
            _pf, *vfs = sorted(has.devices)
            vf = {"type": "SharedNIC", "id": "vf", "bdf": [str(vfs[index // 10])]}
            sliver = vm(id=f"s{index}", host=name, components=(nic, vf))
            with HandlerProcessor(fake_site) as processor:
                done(processor.create(sliver).result())

    def test_are_as_many_for_forty_slivers_as_for_ten(
        self, processor: HandlerProcessor, fake_site: Site, hosts: list[Substrate], vm: MakeVm
    ) -> None:
        self.make(fake_site, hosts, vm, 10)
        few = self.calls(processor, hosts)
        self.make(fake_site, hosts, vm, 40)

        many = self.calls(processor, hosts)

        assert len(processor.drift().servers) == 40
        assert many == few == {**dict.fromkeys(LISTINGS, 10), **SURVEYS}

    def test_are_one_of_each_listing_for_a_cloud(
        self,
        processor: HandlerProcessor,
        fake_site: Site,
        hosts: list[Substrate],
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.make(fake_site, hosts, vm, 10)
        cloud = substrate(fake_site, "")
        for each in hosts:
            cloud.servers |= each.servers
            cloud.ports |= each.ports
        monkeypatch.setattr(FakeCompute, "cloud", True)
        cloud.calls.clear()

        calls = self.calls(processor, hosts)

        assert cloud.calls == {"compute.servers": 1, "network.all_ports": 1}
        assert calls == SURVEYS
