"""1,000 instances placed on 10,000 hosts, and nova's own filters and weighers over the same hosts.

Each in a process of its own, on one core, in seconds of that core. Nova is asked for a few instances:
each takes it as long as any other. Its default filters and weighers look at less: cores, RAM, disk and
devices are left to Placement, which is not asked here.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fabric_direct.model import Capacities, PciAddress, PlacementRules
from fabric_direct.placement.request import DeviceNeed, Needs, Request
from fabric_direct.placement.state import FreeDevice, HostState, NumaNode
from tests.bench.measure import line

HOSTS, INSTANCES = 10_000, 1_000
NOVA = Path(__file__).parent / "placement_nova.py"
SYSTEM_PYTHON = "/usr/bin/python3"
"""The distribution's, whose packages are nova's."""
KINDS = 20
NODES = (NumaNode(0, 32, 128.0, {0: 10, 1: 21}), NumaNode(1, 32, 128.0, {0: 21, 1: 10}))


def main() -> None:
    """Print the figures."""
    ours, half = _measured(HOSTS, INSTANCES), _measured(HOSTS // 2, INSTANCES // 2)
    what = f"{INSTANCES} instances on {HOSTS} hosts, {ours['rules']}"
    line(what, ours["place"], "s", "<= 1", ours["place"] <= 1)
    growth = ours["place"] / half["place"]
    line("the same over half as many on half as many hosts", growth, "", "<= 4", growth <= 4)
    line(
        "memory that it takes, beside the hosts",
        ours["memory"],
        "MB",
        "<= 300",
        ours["memory"] <= 300,
    )
    line("the hosts as columns, once for the batch", ours["columns"], "s", "-", True)
    for hosts in (HOSTS // 10, HOSTS):
        _beside_nova(hosts)


def _beside_nova(hosts: int) -> None:
    nova = _nova(hosts)
    if isinstance(nova, str):
        print(f"nova's own, over {hosts} hosts: {nova}")  # noqa: T201
        return
    each = statistics.median(nova["seconds"])
    rules = f"{len(nova['filters'])} filters, {len(nova['weighers'])} weighers"
    line(f"nova's own, {rules}, over {hosts} hosts: an instance", each * 1000, "ms", "-", True)
    ours = _measured(hosts, INSTANCES)["place"] / INSTANCES
    line("the same over ours, one of 1000", each / ours, "times", "> 1", each > ours)


def _nova(hosts: int) -> Any:
    """Return what nova's filters and weighers take, or why they cannot be asked."""
    columns = [
        [h.name, h.cores, h.cores_used, int(h.ram) * 1024, int(h.ram_used) * 1024, int(h.disk)]
        for h in map(host, range(hosts))
    ]
    sizes = [one.needs.capacities for one in map(request, range(5))]
    asked = {"hosts": columns, "requests": [[s.core, s.ram * 1024, s.disk] for s in sizes]}
    if not Path(SYSTEM_PYTHON).exists():
        return f"there is no {SYSTEM_PYTHON}"
    command = [SYSTEM_PYTHON, "-I", str(NOVA)]
    done = subprocess.run(
        command, input=json.dumps(asked), check=False, capture_output=True, text=True
    )
    if done.returncode == 0:
        return json.loads(done.stdout)
    why = done.stderr.strip().split("\n")[-1]
    return f"cannot be asked, {why} (it is in the distribution's package python3-nova)"


def _measured(hosts: int, instances: int) -> dict[str, Any]:
    """Return what placing takes in a new process."""
    command = [sys.executable, "-m", "tests.bench.placement", str(hosts), str(instances)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _measure(hosts: int, instances: int) -> dict[str, Any]:
    """Return seconds of making the columns and of placing, and MB that placing adds."""
    from fabric_direct.placement import place as placing  # noqa: PLC0415 - after the core is chosen
    from fabric_direct.placement.arrays import columns  # noqa: PLC0415
    from fabric_direct.placement.plugins import rules  # noqa: PLC0415

    states, batch = [host(n) for n in range(hosts)], [request(n) for n in range(instances)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole, alone = [], []
    for _ in range(5):
        began = time.process_time()
        columns(states, batch)
        between = time.process_time()
        plan = placing.place(batch, states)
        alone.append(between - began)
        whole.append(time.process_time() - between)
        assert len(plan.assignments) == instances
    sound = rules(placing.DEFAULTS)
    return {
        "place": min(whole) - min(alone),
        "columns": min(alone),
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "rules": f"{len(sound.filters)} filters and {len(sound.costs)} costs",
    }


def host(number: int) -> HostState:
    """Return one of the hosts: each tenth has GPUs, each fiftieth an FPGA, each third VFs."""
    return HostState(
        f"w{number:05d}",
        cores=64,
        ram=256.0,
        disk=4000.0,
        cores_used=number % 17,
        ram_used=float(number % 31),
        numa_nodes=NODES,
        devices=tuple(_devices(number)),
        architectures=frozenset({"x86_64"}),
        traits=frozenset(
            {"HW_CPU_X86_AVX2", "HW_CPU_X86_AVX512F"} if number % 2 else {"HW_CPU_X86_AVX2"}
        ),
        images=frozenset({"ubuntu"}) if number % 4 else frozenset(),
    )


def _devices(number: int) -> list[FreeDevice]:
    gpus = [_device("GPU", "A30", 0x20 + n, 0, n % 2) for n in range(4 * (number % 10 == 0))]
    fpgas = [_device("FPGA", "U280", 0x40, 0, 1)] * (number % 50 == 0)
    vfs = range(16 * (number % 3 == 0))
    return [
        *gpus,
        *fpgas,
        *(_device("SharedNIC", "ConnectX-6", 0x60 + n // 8, n % 8, 0, "ens1", True) for n in vfs),
    ]


def _device(type_: str, model: str, bus: int, function: int, node: int, *uplink: Any) -> FreeDevice:
    return FreeDevice(type_, (PciAddress(0, bus, 0, function),), model, node, *uplink)


def request(number: int) -> Request:
    """Return one of the requests, of 20 kinds: one with a GPU, two with a VF in VEPA."""
    kind = number % KINDS
    gpu = [DeviceNeed(component="gpu", type="GPU", model="A30")] * (kind == 1)
    vf = [DeviceNeed(component="nic", type="SharedNIC", vepa=True)] * (kind in {2, 3})
    needs = Needs(
        owner=f"project{kind % 5}",
        capacities=Capacities(core=2 + kind, ram=4 + kind, disk=10),
        image="ubuntu",
        architecture="x86_64",
        devices=(*gpu, *vf),
        rules=PlacementRules(required_traits=("HW_CPU_X86_AVX2",)),
    )
    return Request(id=f"r{number}", needs=needs)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
        print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))  # noqa: T201
    else:
        main()
