"""Bare-metal nodes and slivers, as the tests of their placement are about them."""

from typing import Any

from hypothesis import strategies as st

from fabric_direct.drivers.contract import BareMetalNode, NodeCondition
from fabric_direct.drivers.contract.bare_metal import NodePort
from fabric_direct.model.bare_metal import BareMetalSliver

MACS = tuple(f"52:54:00:00:00:0{number}" for number in range(4))


def node(name: str, *macs: str, **values: Any) -> BareMetalNode:
    """Return a free node of 8 cores, 32 GiB and 100 GiB of disk, unless told otherwise."""
    usual: dict[str, Any] = {
        "id": f"id-{name}",
        "name": name,
        "condition": NodeCondition.FREE,
        "state": "available",
        "power": "off",
        "resource_class": "small",
        "traits": (),
        "cores": 8,
        "ram": 32 * 1024,
        "disk": 100,
        "architecture": "x86_64",
        "ports": tuple(NodePort(mac) for mac in macs),
    }
    return BareMetalNode(**(usual | values))


def metal(id_: str = "m1", **values: Any) -> BareMetalSliver:
    """Return a sliver that any node fits, unless told otherwise."""
    return BareMetalSliver.model_validate({"id": id_, "name": id_, "image": "debian-12"} | values)


_CLASSES = st.sampled_from(["small", "large", None])
_TRAITS = st.lists(st.sampled_from(["CUSTOM_A", "CUSTOM_B"]), unique=True).map(sorted)
_SIZES = st.sampled_from([None, 1, 2, 3])
_MACS = st.lists(st.sampled_from(MACS), unique=True, max_size=2)
_CONDITIONS = st.sampled_from([*[NodeCondition.FREE] * 4, *NodeCondition])
_NAMES = st.sampled_from(["n0", "n1", "n2", "absent"])


@st.composite
def _nodes(draw: st.DrawFn) -> list[BareMetalNode]:
    return [
        node(
            f"n{number}",
            *draw(_MACS),
            condition=draw(_CONDITIONS),
            tenant=draw(st.sampled_from([None, "someone"])),
            resource_class=draw(_CLASSES),
            traits=tuple(draw(_TRAITS)),
            cores=draw(_SIZES),
            ram=(size := draw(_SIZES)) and size * 1024,
            disk=draw(_SIZES),
            architecture=draw(st.sampled_from([None, "x86_64", "aarch64"])),
        )
        for number in draw(st.permutations(range(draw(st.integers(0, 5)))))
    ]


@st.composite
def _slivers(draw: st.DrawFn) -> list[BareMetalSliver]:
    return [_sliver(draw, number) for number in range(draw(st.integers(1, 4)))]


def _sliver(draw: st.DrawFn, number: int) -> BareMetalSliver:
    macs = draw(_MACS)
    nics = [{"id": f"nic{n}", "mac": mac} for n, mac in enumerate(macs)]
    nics += [{"id": f"any{n}"} for n in range(draw(st.sampled_from([0, 0, 1])))]
    sizes = {name: draw(_SIZES) for name in ("core", "ram", "disk")}
    rarely = draw(st.integers(0, 9))
    return metal(
        f"m{number}",
        node=draw(_NAMES) if rarely == 0 else None,
        nics=nics if rarely in {1, 2} else [],
        resource_class=draw(_CLASSES),
        traits=draw(_TRAITS),
        capacities={name: size for name, size in sizes.items() if rarely > 4},
    )


_WANTED = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")


@st.composite
def _contested(draw: st.DrawFn) -> tuple[list[BareMetalNode], list[BareMetalSliver]]:
    had = st.sampled_from(["A", "B", "C", "AB", "AC", "BC"])
    nodes = [
        node(f"n{n}", traits=tuple(f"CUSTOM_{each}" for each in draw(had)), cores=n // 2)
        for n in range(5)
    ]
    wanted = st.sampled_from(_WANTED)
    return nodes, [metal(f"m{number}", traits=[draw(wanted)]) for number in range(3)]


NODES, SLIVERS, CONTESTED = _nodes(), _slivers(), _contested()
"""Strategies: the nodes of a site in any order, and a batch; both, where many want the same nodes."""
