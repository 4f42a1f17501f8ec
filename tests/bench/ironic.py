"""`make bench-ironic`: our processor against the bare API calls, on the lab's Ironic, in one run.

*Bare* is what one writes with openstacksdk and no more: an allocation, what is deployed, the node told
to be active with a config drive, a look each 0.3 s until it is, and SSH until a command answers. Then
it is told to be deleted, and looked at until it is available. *Ours* is ``processor.create`` until its
outcome, by the node's own host key, and ``processor.delete`` until its outcome.

They take turns on a machine, and medians are compared; then so many nodes of fake hardware at once.
"""

import argparse
import logging
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openstack
import paramiko
from openstack.baremetal.v1._proxy import Proxy

from fabric_direct.drivers.cloudinit import user_data
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.bench.measure import keep, line
from tests.bench.openstack_lab import new_key
from tests.bench.ssh import answers

STATE = Path("/var/lib/fabric-direct/bare-metal")
IMAGES = "http://172.24.5.1:8080/images/fabric-guest"
ADDRESS, MASK = "172.24.5.51", "255.255.255.0"
CREATE, DELETE, AT_ONCE = 1.05, 1.1, 0.9
# Seconds between two looks.
EACH = 0.3


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="tests.bench.ironic")
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    parser.add_argument("--many", type=int, default=20, help="how many nodes at once")
    options = parser.parse_args(arguments)
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    os.environ["OS_CLIENT_CONFIG_FILE"] = str(STATE / "clouds.yaml")
    with tempfile.TemporaryDirectory(prefix="fdbench-") as folder:
        key = new_key(Path(folder))
        with HandlerProcessor(_site(Path(folder), key), workers=options.many) as ours:
            _one_by_one(options.rounds, key, ours)
            _at_once(options.many, ours)
    keep("ironic")


def _site(folder: Path, key: Path) -> Site:
    return Site.model_validate(
        {
            "site": "BENCH",
            "state_dir": folder / "state",
            "drivers": {"BareMetal": "ironic"},
            "guest_access": {"ssh_key": key},
            "ironic": {
                "cloud": "ironic",
                "clouds_file": STATE / "clouds.yaml",
                "images": {"guest": _image() | {"user": "root"}},
            },
        }
    )


def _image() -> dict[str, str]:
    arguments = (STATE / "images/fabric-guest.cmdline").read_text().strip()
    booted = {"kernel": f"{IMAGES}.kernel", "ramdisk": f"{IMAGES}.ramdisk"}
    return booted | {"kernel_arguments": arguments}


def _sliver(kind: str, **values: Any) -> BareMetalSliver:
    usual = {"id": f"fdbench-{secrets.token_hex(4)}", "name": "bench", "image": "guest"}
    return BareMetalSliver.model_validate(usual | {"resource_class": kind} | values)


def _connect() -> Proxy:
    return openstack.connect(cloud="ironic").baremetal


# --- the bare calls


def _reserved(ironic: Proxy, kind: str) -> Any:
    """Return a node that is allocated."""
    made = ironic.create_allocation(name=f"bench-{secrets.token_hex(4)}", resource_class=kind)
    while made.state == "allocating":
        time.sleep(EACH)
        made = ironic.get_allocation(made.id)
    assert made.state == "active", made.last_error
    return ironic.get_node(made.node_id)


def _deploy(ironic: Proxy, kind: str, key: Path) -> Any:
    """Return a node that is active."""
    node, image = _reserved(ironic, kind), _image()
    info = {"kernel": image["kernel"], "ramdisk": image["ramdisk"]}
    info["ramdisk_kernel_arguments"] = image["kernel_arguments"]
    ironic.update_node(node, instance_info=info)
    (port,) = ironic.ports(node=node.id)
    ironic.set_node_provision_state(node, "active", config_drive=_drive(port.address, key))
    _until(ironic, node, "active")
    return node


def _drive(mac: str, key: Path) -> dict[str, Any]:
    loaded = paramiko.PKey.from_path(key)
    public = f"{loaded.get_name()} {loaded.get_base64()}"
    address = {"ip_address": ADDRESS, "netmask": MASK, "routes": []}
    return {
        "meta_data": {"uuid": secrets.token_hex(8), "hostname": "b", "public_keys": {"k": public}},
        "user_data": user_data(_sliver("baremetal", ssh_keys=[public])),
        "network_data": {
            "links": [{"id": "n", "type": "phy", "ethernet_mac_address": mac}],
            "networks": [{"id": "n4", "link": "n", "type": "ipv4", **address}],
            "services": [],
        },
    }


def _delete(ironic: Proxy, node: Any) -> None:
    ironic.set_node_provision_state(node, "deleted")
    _until(ironic, node, "available")


def _until(ironic: Proxy, node: Any, state: str) -> None:
    while (found := ironic.get_node(node.id)).provision_state != state or found.reservation:
        assert not found.last_error, found.last_error
        time.sleep(EACH)


# --- one after the other


def _one_by_one(rounds: int, key: Path, processor: HandlerProcessor) -> None:
    ironic, loaded = _connect(), paramiko.PKey.from_path(key)

    def bare() -> Iterator[None]:
        node = _deploy(ironic, "baremetal", key)
        while not answers(ADDRESS, "root", loaded):
            time.sleep(EACH)
        yield
        _delete(ironic, node)
        yield

    def ours() -> Iterator[None]:
        nics = [{"id": "nic1", "ipv4": f"{ADDRESS}/24"}]
        sliver = _sliver("baremetal", nics=nics, wait_for="login")
        assert (made := processor.create(sliver).result()).ok, made
        yield
        assert (gone := processor.delete(sliver.ref()).result()).ok, gone
        yield

    ways: dict[str, Callable[[], Iterator[None]]] = {"bare": bare, "ours": ours}
    lives: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    print(f"  load of this machine before: {os.getloadavg()[0]:.1f}")  # noqa: T201
    for number in range(rounds + 1):
        for name, live in ways.items():
            life = _timed(live())
            print(f"  {number or 'warm-up'} {name}: {life[0]:.2f} s, {life[1]:.2f} s")  # noqa: T201
            lives[name] += [life] if number else []
    for place, (what, wanted) in enumerate(
        (("create to a command by SSH", CREATE), ("delete to an available node", DELETE))
    ):
        medians = [statistics.median(life[place] for life in lives[name]) for name in ways]
        _lines(f"machine, {what}", medians[0], medians[1], wanted)


def _timed(life: Iterator[None]) -> tuple[float, float]:
    began = time.perf_counter()
    next(life)
    made = time.perf_counter()
    next(life)
    return made - began, time.perf_counter() - made


def _lines(what: str, bare: float, ours: float, wanted: float) -> None:
    line(f"{what}, bare calls", bare, "s", "-", True)
    line(f"{what}, ours", ours, "s", "-", True)
    ratio = ours / bare
    line(f"{what}, ours over bare calls", ratio, "times", f"<= {wanted:.2f}", ratio <= wanted)


# --- many at once


def _at_once(many: int, processor: HandlerProcessor) -> None:
    """Compare with the bare calls, each in a thread and with a connection of its own."""
    connections = [_connect() for _ in range(many)]

    def bare(ironic: Proxy) -> None:
        node = _reserved(ironic, "fake")
        ironic.set_node_provision_state(node, "active")
        _until(ironic, node, "active")
        _delete(ironic, node)

    def ours() -> None:
        slivers = [_sliver("fake", wait_for="address") for _ in range(many)]
        for begin in (processor.create, lambda s: processor.delete(s.ref())):
            outcomes = [future.result() for future in [begin(sliver) for sliver in slivers]]
            assert all(outcome.ok for outcome in outcomes), outcomes

    began = time.perf_counter()
    with ThreadPoolExecutor(many) as pool:
        list(pool.map(bare, connections))
    bare_seconds, began = time.perf_counter() - began, time.perf_counter()
    ours()
    our_seconds = time.perf_counter() - began
    _lines(f"{many} nodes at once, a whole life", bare_seconds, our_seconds, 1 / AT_ONCE)


if __name__ == "__main__":
    main()
