"""Try the features of a host's kernel, in a network namespace that ends with the trial."""

from collections.abc import Mapping
from enum import Enum, auto

from fabric_direct.drivers.contract import HostDriver
from fabric_direct.errors import DriverError

_VLANS = ("ip", "link", "add", "type", "bridge", "vlan_filtering", "1")
_PAIRS = ("ip", "link", "add", "type", "veth")
_SHAPING = ("tc", "qdisc", "add", "dev", "lo", "root", "htb")
_TUNNELS = ("ip", "link", "add", "type", "vxlan", "id", "1", "dstport", "4789")
_HOOK = "tc qdisc add dev lo clsact"
_COPY = "tc filter add dev lo ingress matchall action mirred egress mirror dev lo"
_MIRRORS = ("sh", "-c", f"{_HOOK} && {_COPY}")
_OPTIONS = "CONFIG_NET_CLS_MATCHALL, CONFIG_NET_ACT_MIRRED"
_PAIR = "ip link add fd0 type veth peer name fd1 && ip link set fd0 up && ip link set fd1 up"
_HOP = "ip route add 192.0.2.0/24 via inet6 fe80::1 dev fd0"
_GATEWAYS = ("sh", "-c", f"{_PAIR} && {_HOP}")
_CHAIN = "add chain inet fd forward { type filter hook forward priority 0; }"
_FILTERS = ("sh", "-c", f"nft 'add table inet fd; {_CHAIN}'")
_REFUSALS = "not supported", "nknown", "not found", "disabled", "not enabled"


class Need(Enum):
    """The features that services may need besides segments."""

    TUNNELS = auto()
    MIRRORS = auto()
    GATEWAYS = auto()
    FILTERS = auto()


_TRIALS = {
    "bridges that filter VLANs (CONFIG_BRIDGE_VLAN_FILTERING)": (None, _VLANS),
    "pairs of links (CONFIG_VETH)": (None, _PAIRS),
    "HTB (CONFIG_NET_SCH_HTB)": (None, _SHAPING),
    "VXLAN (CONFIG_VXLAN)": (Need.TUNNELS, _TUNNELS),
    f"mirrors ({_OPTIONS})": (Need.MIRRORS, _MIRRORS),
    "IPv4 routes by IPv6 hops (Linux 5.2, CONFIG_IPV6)": (Need.GATEWAYS, _GATEWAYS),
    "filters (CONFIG_NF_TABLES_INET, the program nft)": (Need.FILTERS, _FILTERS),
}


def missing(host: HostDriver, needs: Mapping[Need, object], limit: float) -> str:
    """Return what the kernel lacks for services, or an empty text.

    :param needs: whether they need something.
    :param limit: seconds for each trial.
    :raises DriverError: if it cannot be tried.
    """
    tried = {n: trial for n, (need, trial) in _TRIALS.items() if need is None or needs.get(need)}
    return ", ".join(name for name, trial in tried.items() if _refused(host, trial, limit))


def _refused(host: HostDriver, command: tuple[str, ...], limit: float) -> bool:
    result = host.run(("unshare", "--net", *command), timeout=limit)
    why = result.stderr.decode(errors="replace").strip()
    if result.code and not any(words in why for words in _REFUSALS):
        raise DriverError(f"cannot try {' '.join(command)}", why=why)
    return bool(result.code)
