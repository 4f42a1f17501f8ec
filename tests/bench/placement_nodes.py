"""1,000 bare-metal slivers placed on 10,000 nodes: in a process of its own, in seconds of one core."""

import json
import os
import subprocess
import sys
import time

from fabric_direct.drivers.contract import BareMetalNode, NodeCondition
from fabric_direct.drivers.contract.bare_metal import NodePort
from fabric_direct.model.bare_metal import BareMetalSliver
from tests.bench.measure import line

NODES, SLIVERS = 10_000, 1_000
FEW, MANY = (20, 20), (200, SLIVERS)
"""How many models of nodes there are, and how many kinds of slivers."""


def main() -> None:
    """Print the figures."""
    for models, kinds in (FEW, MANY):
        took = _measured(models, kinds)
        what = f"{SLIVERS} bare-metal slivers of {kinds} kinds, {NODES} nodes of {models} models"
        line(what, took, "s", "<= 2", took <= 2)


def _measured(models: int, kinds: int) -> float:
    command = [sys.executable, "-m", "tests.bench.placement_nodes", str(models), str(kinds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took: float = json.loads(done.stdout)
    return took


def _measure(models: int, kinds: int) -> float:
    from fabric_direct.placement.nodes import place_nodes  # noqa: PLC0415 - after the core is chosen

    nodes = [node(number, number % models) for number in range(NODES)]
    batch = [sliver(number, number % kinds) for number in range(SLIVERS)]
    took = []
    for _ in range(5):
        began = time.process_time()
        plan = place_nodes(batch, nodes)
        took.append(time.process_time() - began)
        assert len(plan.assignments) == SLIVERS
    return min(took)


def node(number: int, model: int) -> BareMetalNode:
    """Return one of the nodes; each seventh is in use."""
    return BareMetalNode(
        id=f"id-{number}",
        name=f"n{number:05d}",
        condition=NodeCondition.FREE if number % 7 else NodeCondition.ACTIVE,
        state="available",
        power="off",
        resource_class=f"class-{model % 4}",
        traits=tuple(f"CUSTOM_T{trait}" for trait in range(model % 5)),
        cores=8 + model,
        ram=(16 + model) * 1024,
        disk=100 + model,
        architecture="x86_64",
        ports=(NodePort(f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"),),
    )


def sliver(number: int, kind: int) -> BareMetalSliver:
    """Return one of the slivers."""
    return BareMetalSliver.model_validate(
        {
            "id": f"s{number}",
            "name": "box",
            "image": "debian-12",
            "resource_class": None if kind % 3 else f"class-{kind % 4}",
            "traits": [] if kind % 5 else ["CUSTOM_T1"],
            "capacities": {"core": 1 + kind % 40, "ram": 1 + kind % 30, "disk": 1 + kind // 7},
        }
    )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
        print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))  # noqa: T201
    else:
        main()
