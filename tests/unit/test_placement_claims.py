"""What is promised to slivers before it can be seen: nobody else is given it."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.calls.deadline import Deadline
from fabric_direct.errors import DriverError, NoHost, TimedOut
from fabric_direct.handlers.registry import host_drivers
from fabric_direct.model import NodeSliver, PciAddress
from fabric_direct.placement.claims import Claims, HostClaim, depleted
from fabric_direct.placement.placer import Placer
from fabric_direct.placement.state import FreeDevice, HostState
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from tests.unit.processes import APART

MakeVm = Callable[..., NodeSliver]
GPU, AUDIO, OTHER = map(PciAddress.parse, ("25:00.0", "25:00.1", "26:00.0"))


@pytest.fixture
def claims(tmp_path: Path) -> Claims:
    return Claims(FileStore(tmp_path / "state"), lifetime=60, timeout=60)


def claim(sliver: str = "a", host: str = "w1", **values: Any) -> HostClaim:
    return HostClaim(sliver, host, **({"cores": 2, "ram": 4.0, "disk": 8.0} | values))


def take(claims: Claims, *taken: HostClaim) -> None:
    with claims.changing() as book:
        book.take(taken)


def test_a_claim_is_what_was_taken(claims: Claims) -> None:
    taken = claim(devices=(GPU, AUDIO), owner="p1")
    take(claims, taken)
    assert claims.since(time.time()) == (taken,)


def test_a_sliver_has_one_claim(claims: Claims) -> None:
    take(claims, claim(host="w1"))
    take(claims, claim(host="w2"))
    assert [c.host for c in claims.since(time.time())] == ["w2"]


def test_nothing_is_claimed_if_any_of_it_goes_wrong(claims: Claims) -> None:
    def take_two_and_fail() -> None:
        with claims.changing() as book:
            book.take([claim("a"), claim("b")])
            raise NoHost("the third fits nowhere")

    with pytest.raises(NoHost):
        take_two_and_fail()
    assert claims.since(0) == ()


def test_one_that_is_not_ended_expires(tmp_path: Path) -> None:
    claims = Claims(FileStore(tmp_path), lifetime=60, timeout=60, clock=lambda: 1000.0)
    take(claims, claim())
    assert claims.since(1060.0)
    assert claims.since(1060.1) == ()


def test_one_that_has_expired_cannot_be_renewed(tmp_path: Path) -> None:
    now = 1000.0
    claims = Claims(FileStore(tmp_path), lifetime=60, timeout=60, clock=lambda: now)
    take(claims, claim())
    now = 1060.1
    assert not claims.renew("a", "w1")


def test_one_that_lasts_is_renewed_on_its_own_host(tmp_path: Path) -> None:
    now = 1000.0
    claims = Claims(FileStore(tmp_path), lifetime=60, timeout=60, clock=lambda: now)
    take(claims, claim())
    now = 1060.0
    assert not claims.renew("a", "w2")
    assert claims.renew("a", "w1")
    assert claims.since(1120.0)


def test_one_that_is_settled_counts_for_who_looked_before(claims: Claims) -> None:
    take(claims, claim())
    looked = time.time()
    claims.settle("a")
    assert claims.since(looked)
    assert not claims.since(time.time() + 0.001)


def test_where_a_sliver_was_put_is_remembered_until_it_is_dropped(claims: Claims) -> None:
    assert claims.home("a") is None
    take(claims, claim(host="w2"))
    claims.settle("a")
    assert claims.home("a") == "w2"
    claims.drop("a")
    assert claims.home("a") is None


def test_what_was_never_written_makes_no_file(claims: Claims, tmp_path: Path) -> None:
    claims.settle("a")
    claims.drop("a")
    assert (claims.since(0), claims.home("a")) == ((), None)
    assert not (tmp_path / "state").exists()


def test_who_places_all_the_time_is_not_waited_for_forever(tmp_path: Path) -> None:
    claims = Claims(FileStore(tmp_path), lifetime=60, timeout=0.1)
    with claims.changing(), pytest.raises(TimedOut, match="claims"), claims.changing():
        raise AssertionError("not reached")


def test_a_broken_file_is_named(claims: Claims, tmp_path: Path) -> None:
    take(claims, claim())
    path = tmp_path / "state" / "placement.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(DriverError, match=str(path)):
        claims.since(0)


class TestDepleted:
    def host(self, **values: Any) -> HostState:
        devices = (FreeDevice("GPU", (GPU, AUDIO)), FreeDevice("GPU", (OTHER,)))
        given = {"name": "w1", "cores": 8, "ram": 16.0, "disk": 100.0, "cores_used": 1}
        return HostState(**(given | {"devices": devices} | values))

    def test_what_is_claimed_is_taken(self) -> None:
        (host,) = depleted([self.host()], [claim("a", owner="p1", devices=(AUDIO,)), claim("b")])

        assert (host.cores_used, host.ram_used, host.disk_used) == (5, 8.0, 16.0)
        assert [device.functions for device in host.devices] == [(OTHER,)]
        assert host.slivers == {"a": "p1", "b": None}

    def test_a_sliver_that_its_host_shows_is_not_counted_twice_but_its_devices_are_its_own(
        self,
    ) -> None:
        there = self.host(slivers={"a": "p1"})

        (host,) = depleted([there], [claim("a", devices=(GPU, AUDIO))])

        assert (host.cores_used, host.slivers) == (1, {"a": "p1"})
        assert [device.functions for device in host.devices] == [(OTHER,)]

    def test_other_hosts_stay_as_they_are(self) -> None:
        host = self.host(name="w2")
        assert depleted([host], [claim(host="w1")]) == (host,)


SITE: dict[str, Any] = {
    "site": "TEST",
    "drivers": dict.fromkeys(
        ("VM", "vNIC", "Storage", "GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"), "fake"
    ),
    "guest": "fake",
    "images": {"tiny": {}},
    "hosts": {"w1": {}, "w2": {}, "w3": {}},
    "fake": {
        "hosts": {
            "w1": {"cores": 8, "ram": 64, "disk": 100, "gpus": 2},
            "w2": {"cores": 16, "ram": 12, "disk": 100, "gpus": 4},
            "w3": {"cores": 16, "ram": 64, "disk": 25, "gpus": 1},
        }
    },
}


def choose(state_dir: Path, slivers: list[NodeSliver]) -> list[NodeSliver]:
    """Place slivers on hosts that show none of them, one after the other; return those with a place."""
    site = Site.model_validate(SITE | {"state_dir": state_dir})
    deadline = Deadline.within(60)
    drivers = {host: host_drivers(site, host).within(deadline, 10) for host in site.hosts}
    placer = Placer(
        site, Claims(FileStore(state_dir), lifetime=60, timeout=60), drivers.__getitem__
    )
    found = []
    for sliver in slivers:
        try:
            found.append(placer.choose(sliver).sliver)
        except NoHost:
            continue
    return found


def test_threads_and_processes_that_place_at_once_never_take_the_same(
    tmp_path: Path, vm: MakeVm
) -> None:
    """Each process has hosts in memory of its own: what the others take it knows by the claims alone."""
    size = {"core": 2, "ram": 3, "disk": 5}
    gpu = ({"type": "GPU", "id": "gpu"},)
    slivers = [
        vm(id=f"s{n}", host="auto", capacities=size, components=gpu if n % 2 else ())
        for n in range(40)
    ]
    with ProcessPoolExecutor(2, APART) as processes, ThreadPoolExecutor(8) as threads:
        elsewhere = [processes.submit(choose, tmp_path, slivers[n:20:2]) for n in range(2)]
        here = [threads.submit(choose, tmp_path, slivers[20 + n :: 8]) for n in range(8)]
        placed = [sliver for future in elsewhere + here for sliver in future.result(60)]

    on = Counter(str(sliver.host) for sliver in placed)
    assert on == {"w1": 4, "w2": 4, "w3": 5}  # by cores, RAM and disk
    devices = [(s.host, d.bdf) for s in placed for d in s.devices()]
    assert len(devices) == len(set(devices)) <= 7
