"""What tests may change on the worker, domains and networks apart, and back again.

It runs there for a whole session of tests, as a Python takes seconds to start: a line of JSON,
``[what, arguments…]``, is answered by another. ``show`` is the state; ``restore STATE`` makes it so
again and is what was not so, as ``[was, is]``; ``baseline`` makes it what ``lab up`` leaves.
"""

import json
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

PCI = Path("/sys/bus/pci/devices")
RECORDS = Path("/var/lib/fabric-direct/devices")
PATIENCE = "60"
"""Seconds for what the kernel and udev do in the background of an emulated machine."""
UPLINKS = {"enp1s0": "0000:01:00.0", "enp2s0": "0000:02:00.0"}
BASELINE_DRIVERS = {"10c9": "igb", "10ca": "igbvf", "10d3": "e1000e", "0010": "nvme"}


def command(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


# ---- as it is
def state() -> dict[str, str]:
    """As it is once udev has done what it was told of: the kernel makes the links of VFs anew."""
    command("udevadm", "settle", "-t", PATIENCE)
    return {**functions(), **uplinks(), **records(), **uses()}


def functions() -> dict[str, str]:
    """Drivers of the lab's devices, and how many VFs there are."""
    found = {}
    for path in sorted(PCI.iterdir()):
        if path.name >= "0000:01":
            found[f"driver {path.name}"] = driver(path)
            with suppress(FileNotFoundError):
                found[f"vfs {path.name}"] = (path / "sriov_numvfs").read_text().strip()
    return found


def driver(path: Path) -> str:
    try:
        return (path / "driver").readlink().name
    except FileNotFoundError:
        return ""


def uplinks() -> dict[str, str]:
    found = {}
    modes = json.loads(command("bridge", "-j", "-d", "link", "show"))
    links = json.loads(command("ip", "-j", "-d", "link", "show"))
    for link, physical in UPLINKS.items():
        bridge = (each.get("hwmode", "") for each in modes if each["ifname"] == link)
        found[f"mode {link}"] = next(filter(None, bridge), "")
        shown = next((each for each in links if each["ifname"] == link), {})
        found[f"up {link}"] = str("UP" in shown.get("flags", []))
        for vf in shown.get("vfinfo_list", []):
            found[f"vf {link} {vf['vf']}"] = vf_settings(vf, physical)
    return found


def vf_settings(vf: dict, physical: str) -> str:
    """As arguments of ``ip link set … vf N``, without a MAC that the VF's driver made up itself."""
    own = {
        path.read_text().strip()
        for path in (PCI / physical / f"virtfn{vf['vf']}").glob("net/*/address")
    }
    mac = "00:00:00:00:00:00" if vf["address"] in own else vf["address"]
    vlan = vf["vlan_list"][0]
    spoof, trust = ("on" if vf[key] else "off" for key in ("spoofchk", "trust"))
    return (
        f"mac {mac} vlan {vlan.get('vlan', 0)} qos {vlan.get('qos', 0)} spoofchk {spoof}"
        f" trust {trust} max_tx_rate {vf['rate']['max_tx']}"
    )


def records() -> dict[str, str]:
    return {f"record {path.name}": path.read_text() for path in RECORDS.glob("*")}


def uses() -> dict[str, str]:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    found = {f"mount {at}": what for what, at, *_ in mounts if what.startswith("/dev/nvme")}
    swaps = Path("/proc/swaps").read_text().splitlines()[1:]
    return found | {f"swap {line.split()[0]}": "on" for line in swaps}


# ---- as it was
def restore(wanted: dict[str, str]) -> dict[str, list[str]]:
    """Make it so again, unless it becomes so by itself."""
    end = time.monotonic() + float(PATIENCE)
    while difference(wanted) and time.monotonic() < end:
        time.sleep(0.1)
    return restore_now(wanted)


def restore_now(wanted: dict[str, str]) -> dict[str, list[str]]:
    """Make it so again; VFs first, as making them makes all of them anew."""
    left = difference(wanted)
    for kind, restore_one in RESTORE.items():
        for key, (was, now) in left.items():
            if key.split()[0] == kind:
                restore_one(*key.split()[1:], was=was, now=now)
    return left


def difference(wanted: dict[str, str]) -> dict[str, list[str]]:
    now = state()
    keys = sorted(wanted.keys() | now.keys())
    return {k: [wanted.get(k, ""), now.get(k, "")] for k in keys if wanted.get(k) != now.get(k)}


def restore_mount(at: str, was: str, now: str) -> None:
    if now:
        command("umount", at)


def restore_swap(device: str, was: str, now: str) -> None:
    if now:
        command("swapoff", device)


def restore_record(name: str, was: str, now: str) -> None:
    if now:
        (RECORDS / name).unlink()


def restore_vfs(address: str, was: str, now: str) -> None:
    (PCI / address / "sriov_numvfs").write_text("0")
    (PCI / address / "sriov_numvfs").write_text(was)
    command("udevadm", "settle", "-t", PATIENCE)


def restore_driver(address: str, was: str, now: str) -> None:
    path = PCI / address
    if not path.exists():
        Path("/sys/bus/pci/rescan").write_text("1")
        return
    (path / "driver_override").write_text("\n")
    if (path / "driver").exists():
        (path / "driver/unbind").write_text(address)
    Path("/sys/bus/pci/drivers_probe").write_text(address)


def restore_mode(link: str, was: str, now: str) -> None:
    if not now:
        command("lab-devices")
    command("bridge", "link", "set", "dev", link, "hwmode", was.lower())


def restore_up(link: str, was: str, now: str) -> None:
    command("ip", "link", "set", link, "up" if was == "True" else "down")


def restore_vf(link: str, vf: str, was: str, now: str) -> None:
    if was:
        command("ip", "link", "set", link, "vf", vf, *was.split())


RESTORE = {
    "mount": restore_mount,
    "swap": restore_swap,
    "record": restore_record,
    "vfs": restore_vfs,
    "driver": restore_driver,
    "mode": restore_mode,
    "up": restore_up,
    "vf": restore_vf,
}


# ---- as `lab up` leaves it
def baseline() -> dict[str, list[str]]:
    kept = {k: v for k, v in state().items() if k.split()[0] in {"vf", "up"}}
    for link, address in UPLINKS.items():
        kept |= {f"mode {link}": "VEB", f"vfs {address}": "4"}
    for path in PCI.iterdir():
        if path.name >= "0000:01":
            kept[f"driver {path.name}"] = own_driver(path)
    kept |= {"vfs 0000:03:00.0": "0"}
    return restore_now(kept)


def own_driver(path: Path) -> str:
    product = (path / "device").read_text().strip().removeprefix("0x")
    return BASELINE_DRIVERS.get(product, "")


ANSWERS = {"show": state, "restore": restore, "baseline": baseline}


def answer(what: str, *arguments: dict[str, str]) -> dict:
    try:
        return {"answer": ANSWERS[what](*arguments)}
    except Exception:  # noqa: BLE001 - the session of tests says which test it was
        return {"error": traceback.format_exc()}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)  # noqa: T201


main()
