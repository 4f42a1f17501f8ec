"""Address pools: who gets which address, who holds what, and that it stays so."""

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fabric_direct.drivers.libvirt.networks.address_pools import Held, Pools
from fabric_direct.errors import Conflict, DriverError, InvalidSliver, PoolExhausted, TimedOut
from fabric_direct.model import Interface
from fabric_direct.model.networks import SiteNetwork
from fabric_direct.site.addresses import (
    candidates,
    candidates6,
    check_addresses,
    host_address,
    reserved,
)
from fabric_direct.state.file_store import FileStore
from tests.unit.processes import APART

ANY = Interface()


def network(**settings: Any) -> SiteNetwork:
    defaults = {"strategy": "flat_dhcp", "subnet": "10.0.0.0/24"}
    return TypeAdapter(SiteNetwork).validate_python({**defaults, **settings})


NET = network()
NET6 = network(subnet6="fd00::/64")


@pytest.fixture
def pools(tmp_path: Path) -> Pools:
    return Pools(FileStore(tmp_path / "state"), timeout=60)


def hold(pools: Pools, sliver: str, settings: SiteNetwork = NET, **asked: Any) -> Held:
    return pools.hold(sliver, "nic1", "localhost", "one", settings, Interface(**asked))


# --- what is given


def test_a_nic_gets_the_lowest_free_address(pools):
    assert hold(pools, "a").ipv4 == IPv4Address("10.0.0.2")
    assert hold(pools, "b").ipv4 == IPv4Address("10.0.0.3")


def test_an_address_that_was_given_up_is_given_again(pools):
    hold(pools, "a")
    hold(pools, "b")
    pools.release("a", "nic1")
    assert hold(pools, "c").ipv4 == IPv4Address("10.0.0.2")


def test_the_same_nic_is_given_the_same_address_twice(pools):
    assert hold(pools, "a", NET6) == hold(pools, "a", NET6)


def test_an_address_that_is_asked_for_is_given(pools):
    asked = {"mac": "52:54:00:12:34:56", "ipv4": "10.0.0.77/24", "ipv6": "fd00::77/64"}
    held = hold(pools, "a", NET6, **asked)
    assert (held.mac, str(held.ipv4), str(held.ipv6)) == (asked["mac"], "10.0.0.77", "fd00::77")


def test_an_address_outside_of_the_pool_may_be_asked_for(pools):
    small = network(pool=["10.0.0.10", "10.0.0.11"])
    assert str(hold(pools, "a", small, ipv4="10.0.0.77/24").ipv4) == "10.0.0.77"


def test_only_the_pool_is_given_out_and_its_end_is_told(pools):
    small = network(pool=["10.0.0.10", "10.0.0.11"])
    assert [str(hold(pools, s, small).ipv4) for s in "ab"] == ["10.0.0.10", "10.0.0.11"]
    with pytest.raises(PoolExhausted, match="network one has no IPv4 address left"):
        hold(pools, "c", small)


def test_a_nic_that_gets_no_address_holds_nothing(pools):
    small = network(pool=["10.0.0.10", "10.0.0.10"])
    hold(pools, "a", small)
    with pytest.raises(PoolExhausted):
        hold(pools, "b", small)
    assert pools.of_sliver("b", "localhost") == ()


def test_a_mac_follows_from_the_ids_and_is_one_of_qemus(pools, tmp_path):
    held = hold(pools, "a")
    assert held.mac.startswith("52:54:00:")
    assert hold(Pools(FileStore(tmp_path / "other"), timeout=60), "a").mac == held.mac
    assert hold(pools, "b").mac != held.mac


def test_a_derived_mac_that_is_held_already_is_passed_over(pools, tmp_path):
    derived = hold(Pools(FileStore(tmp_path / "other"), timeout=60), "a").mac
    hold(pools, "b", mac=derived)
    assert hold(pools, "a").mac != derived


def test_the_ipv6_address_in_a_64_is_the_one_that_the_guest_forms_from_its_mac(pools):
    held = hold(pools, "a", NET6, mac="52:54:00:12:34:56")
    assert held.ipv6 == IPv6Address("fd00::5054:ff:fe12:3456")


def test_the_ipv6_address_in_another_prefix_is_the_lowest_free(pools):
    narrow = network(subnet6="fd00::/120")
    assert [str(hold(pools, s, narrow).ipv6) for s in "ab"] == ["fd00::2", "fd00::3"]


def test_a_network_without_ipv6_gives_none(pools):
    assert hold(pools, "a").ipv6 is None


def test_the_same_address_may_be_held_on_two_networks(pools):
    hold(pools, "a")
    other = pools.hold("b", "nic1", "localhost", "two", NET, ANY)
    assert other.ipv4 == IPv4Address("10.0.0.2")


# --- what is refused


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("interface.mac", {"mac": "52:54:00:12:34:56"}),
        ("interface.ipv4", {"ipv4": "10.0.0.77/24"}),
        ("interface.ipv6", {"ipv6": "fd00::77/64"}),
    ],
)
def test_what_is_held_for_another_nic_is_not_given(pools, field, asked):
    hold(pools, "a", NET6, **asked)
    with pytest.raises(Conflict, match="held for a/nic1 on one") as refused:
        hold(pools, "b", NET6, **asked)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "asked", [{"mac": "52:54:00:12:34:56"}, {"ipv4": "10.0.0.77/24"}, {"ipv6": "fd00::77/64"}]
)
def test_a_nic_that_holds_an_address_is_not_given_another(pools, asked):
    before = hold(pools, "a", NET6)
    with pytest.raises(Conflict, match="delete the port first"):
        hold(pools, "a", NET6, **asked)
    assert pools.of_sliver("a", "localhost") == (before,)


@pytest.mark.parametrize(("host", "name"), [("elsewhere", "one"), ("localhost", "two")])
def test_a_nic_that_has_a_place_is_not_given_one_elsewhere(pools, host, name):
    hold(pools, "a")
    with pytest.raises(Conflict):
        pools.hold("a", "nic1", host, name, NET, ANY)


def test_what_is_taken_is_told_to_others_alone(pools):
    held = hold(pools, "a", ipv4="10.0.0.77/24")
    asked = Interface(ipv4=IPv4Interface("10.0.0.77/24"))
    assert pools.taken("one", asked, "b") == (("ipv4", held),)
    assert pools.taken("one", asked, "a") == ()
    assert pools.taken("two", asked, "b") == ()


def test_the_database_itself_refuses_to_give_an_address_to_two(pools, tmp_path):
    hold(pools, "a")
    db = sqlite3.connect(tmp_path / "state" / "pools.sqlite")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(
            "INSERT INTO port VALUES ('b', 'nic1', 'localhost', 'one', 'mac', '10.0.0.2', NULL)"
        )
    db.close()


# --- what stays


def test_what_is_held_is_listed_by_sliver_and_by_network(pools):
    a = hold(pools, "a", NET6)
    a2 = pools.hold("a", "nic2", "localhost", "two", NET, ANY)
    b = hold(pools, "b")
    assert pools.of_sliver("a", "localhost") == (a, a2)
    assert pools.of_network("one", "localhost") == (a, b)
    assert pools.of_network("one", "elsewhere") == pools.of_sliver("a", "elsewhere") == ()


def test_what_is_given_up_twice_is_given_up(pools):
    hold(pools, "a")
    pools.release("a", "nic1")
    pools.release("a", "nic1")
    assert pools.of_network("one", "localhost") == ()


def test_what_is_held_survives_a_restart(pools, tmp_path):
    held = hold(pools, "a", NET6)
    later = Pools(FileStore(tmp_path / "state"), timeout=60)
    assert later.of_sliver("a", "localhost") == (held,)
    assert hold(later, "b").ipv4 != held.ipv4


def test_looking_makes_no_file(pools, tmp_path):
    assert pools.of_sliver("a", "localhost") == ()
    assert not (tmp_path / "state").exists()


def test_nobody_else_may_read_it(pools, tmp_path):
    hold(pools, "a")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / "pools.sqlite").stat().st_mode) == 0o600


def test_threads_never_get_the_same_address(pools):
    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(lambda n: hold(pools, f"s{n}", NET6), range(40)))
    assert (
        len({h.ipv4 for h in held})
        == len({h.ipv6 for h in held})
        == len({h.mac for h in held})
        == 40
    )


def _hold_ten(path: Path, name: str) -> list[str]:
    pools = Pools(FileStore(path.parent), timeout=60)
    return [str(hold(pools, f"{name}-{n}").ipv4) for n in range(10)]


def test_processes_never_get_the_same_address(tmp_path):
    path = tmp_path / "pools.sqlite"
    with APART.Pool(2) as pool:
        both = pool.starmap(_hold_ten, [(path, "a"), (path, "b")])
    assert len(set(both[0] + both[1])) == 20


def test_a_database_that_others_keep_locked_ends_the_waiting(tmp_path):
    pools = Pools(FileStore(tmp_path), timeout=0.01)
    hold(pools, "a")
    db = sqlite3.connect(tmp_path / "pools.sqlite", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    with pytest.raises(TimedOut, match="locked"):
        hold(pools, "b")
    db.close()


def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "pools.sqlite"
    path.write_text("this is not SQLite, and longer than its header would be: " * 20)
    with pytest.raises(DriverError, match=str(path)):
        hold(Pools(FileStore(path.parent), timeout=1), "a")


# --- addresses


def test_the_host_has_the_first_address():
    assert str(host_address(NET)) == "10.0.0.1"


def test_the_host_leaves_its_address_to_the_router_of_a_vlan():
    routed = network(strategy="vlan", vlan=304, uplink="ens6f1", gateway="10.0.0.1")
    assert str(host_address(routed)) == "10.0.0.2"
    assert str(next(candidates(routed))) == "10.0.0.3"


def test_what_others_have_is_reserved():
    settings = network(gateway="10.0.0.254", dns=["10.0.0.253", "9.9.9.9"])
    kept = {"10.0.0.0", "10.0.0.1", "10.0.0.253", "10.0.0.254", "10.0.0.255", "9.9.9.9"}
    assert {str(address) for address in reserved(settings)} == kept


@given(st.integers(1, 2**32 - 2).map(IPv4Address), st.integers(16, 30))
def test_no_reserved_address_is_ever_given_out(address, prefix):
    subnet = IPv4Network((address, prefix), strict=False)
    settings = network(subnet=subnet)
    first = [a for a, _ in zip(candidates(settings), range(5), strict=False)]
    assert not set(first) & reserved(settings)
    assert all(a in subnet for a in first)


@given(st.binary(min_size=6, max_size=6))
def test_every_mac_has_its_own_address_in_a_64(octets):
    subnet = IPv6Network("fd00:1:2:3::/64")
    (address,) = candidates6(subnet, octets.hex(":"))
    packed = address.packed
    assert address in subnet
    assert bytes([packed[8] ^ 2]) + packed[9:11] + packed[13:] == octets


@pytest.mark.parametrize(
    ("asked", "field", "why"),
    [
        ({"ipv4": "10.0.1.5/24"}, "interface.ipv4", "outside"),
        ({"ipv4": "10.0.0.5/25"}, "interface.ipv4", "prefix length"),
        ({"ipv4": "10.0.0.0/24"}, "interface.ipv4", "reserved"),
        ({"ipv4": "10.0.0.255/24"}, "interface.ipv4", "reserved"),
        ({"ipv4": "10.0.0.1/24"}, "interface.ipv4", "reserved"),
        ({"ipv4": "10.0.0.254/24"}, "interface.ipv4", "reserved"),
        ({"ipv6": "fd01::5/64"}, "interface.ipv6", "outside"),
        ({"ipv6": "fd00::5/80"}, "interface.ipv6", "prefix length"),
        ({"ipv6": "fd00::/64"}, "interface.ipv6", "reserved"),
        ({"ipv6": "fd00::1/64"}, "interface.ipv6", "reserved"),
    ],
)
def test_an_address_that_cannot_be_had_is_refused_with_its_field(asked, field, why):
    settings = network(subnet6="fd00::/64", gateway="10.0.0.254")
    with pytest.raises(InvalidSliver, match=why) as refused:
        check_addresses(settings, Interface(**asked))
    assert refused.value.field == field


def test_ipv6_cannot_be_had_where_there_is_none():
    with pytest.raises(InvalidSliver, match="no IPv6"):
        check_addresses(NET, Interface(ipv6="fd00::5/64"))
