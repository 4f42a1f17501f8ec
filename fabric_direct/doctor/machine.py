"""Check this machine: KVM, an IOMMU, bridges, dnsmasq, 802.1Q."""

import fcntl
import grp
import os
import platform
import pwd
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from fabric_direct.doctor.diagnosis import Diagnosis, Verdict, fail, info, ok, warn
from fabric_direct.model.networks import FlatNetwork, SiteNetwork, VlanNetwork

# <linux/kvm.h>: _IO(0xAE, 0x01).
_KVM_CREATE_VM = 0xAE01
_KVM = Path("/dev/kvm")
_ROOT = Path("/")


# --- KVM


def check_kvm(
    virt_type: str, device: Path = _KVM, cpuinfo: Path = Path("/proc/cpuinfo")
) -> Diagnosis:
    """Create a virtual machine with KVM, because the device may exist without working.

    :param virt_type: the host's setting; ``auto`` works without KVM.
    """
    if virt_type == "qemu":
        return info("KVM", "not used: virt_type is qemu")
    trouble = _kvm_trouble(device)
    if not trouble and platform.machine() == "x86_64" and not _virtualizes(cpuinfo):
        trouble = f"{device} answers, but the CPU says neither vmx nor svm: guests may not start"
    if not trouble:
        return ok("KVM", "works")
    return Diagnosis(
        "KVM",
        Verdict.FAIL if virt_type == "kvm" else Verdict.WARN,
        f"{trouble}; QEMU emulates then, some ten times slower",
        "enable virtualization in the firmware (or nested virtualization in the outer host) and load "
        "kvm_intel or kvm_amd; to do without it set virt_type: qemu for the host in site.yaml",
    )


def _kvm_trouble(device: Path) -> str:
    try:
        with device.open("rb") as kvm:
            os.close(fcntl.ioctl(kvm, _KVM_CREATE_VM, 0))
    except OSError as error:
        return f"{device}: {error.strerror}"
    return ""


def _virtualizes(cpuinfo: Path) -> bool:
    return bool(re.search(r"^flags\b.*\b(vmx|svm)\b", cpuinfo.read_text(), re.MULTILINE))


def check_kvm_permissions(user: pwd.struct_passwd | None, device: Path = _KVM) -> Diagnosis:
    """Check that libvirt's QEMU user may open the device.

    Otherwise libvirt probes QEMU's capabilities at each call, which takes 8 s or more.
    """
    subject = f"{device} for QEMU"
    if not device.exists():
        return info(subject, "is not there")
    if user is None or may(user, device, stat.S_IROTH | stat.S_IWOTH):
        return ok(subject, f"{user.pw_name if user else 'root'} may open it")
    return fail(
        subject,
        f"{user.pw_name} may not open it: libvirt's calls take 8 s and more",
        f"chown root:kvm {device} && chmod 0660 {device}; adduser {user.pw_name} kvm",
    )


def qemu_user(settings: Path = Path("/etc/libvirt/qemu.conf")) -> pwd.struct_passwd | None:
    """Return the user that libvirt runs QEMU as: configured, or the distribution's default."""
    text = settings.read_text() if os.access(settings, os.R_OK) else ""
    named = re.findall(r'^\s*user\s*=\s*"\+?([^"]+)"', text, re.MULTILINE)
    known = {user.pw_name: user for user in pwd.getpwall()}
    return next((known[n] for n in (*named, "libvirt-qemu", "qemu") if n in known), None)


def may(user: pwd.struct_passwd, path: Path, bits: int) -> bool:
    """Return whether a user has all of these permissions, given as those of others (``S_IROTH`` …)."""
    if user.pw_uid == 0:
        return True
    status = path.stat()
    if status.st_uid == user.pw_uid:
        return status.st_mode >> 6 & bits == bits
    groups = {user.pw_gid} | {g.gr_gid for g in grp.getgrall() if user.pw_name in g.gr_mem}
    return (status.st_mode >> 3 if status.st_gid in groups else status.st_mode) & bits == bits


# --- devices


def check_iommu(*, needed: bool, root: Path = _ROOT) -> Diagnosis:
    """Check that PCI devices can be passed through: an IOMMU with groups, and vfio-pci.

    :param needed: whether the site lists devices of this host.
    """
    groups = root / "sys/kernel/iommu_groups"
    count = len(list(groups.iterdir())) if groups.is_dir() else 0
    vfio = (root / "sys/bus/pci/drivers/vfio-pci").exists() or has_module("vfio-pci", root)
    if count and vfio:
        return ok("IOMMU", f"{count} groups, vfio-pci is there")
    lacks = "no IOMMU group" if not count else "no vfio-pci"
    if not needed:
        return info("IOMMU", f"{lacks}; the site passes no device through")
    return warn(
        "IOMMU",
        f"{lacks}: the devices of site.yaml cannot be passed through",
        "enable VT-d or AMD-Vi in the firmware, boot with intel_iommu=on (Intel), modprobe vfio-pci",
    )


def has_module(name: str, root: Path = _ROOT) -> bool:
    """Return whether the kernel has a module loaded, built in, or in its directory."""
    if (root / "sys/module" / name.replace("-", "_")).exists():
        return True
    lists = root / "lib/modules" / platform.release()
    files = [path for kind in ("builtin", "dep") if (path := lists / f"modules.{kind}").exists()]
    pattern = re.compile(rf"/{name}\.ko", re.MULTILINE)
    return any(pattern.search(path.read_text()) for path in files)


# --- networks


def check_networks(networks: Mapping[str, SiteNetwork], root: Path = _ROOT) -> Iterator[Diagnosis]:
    """Check the bridges, links and programs that the site's networks need."""
    for name, network in networks.items():
        if isinstance(network, FlatNetwork) and network.bridge:
            yield check_bridge(name, network.bridge, root)
        if isinstance(network, VlanNetwork) and network.uplink:
            yield check_uplink(name, network.uplink, root)
    if any(isinstance(network, VlanNetwork) for network in networks.values()):
        yield check_8021q(root)
    if any(not isinstance(network, FlatNetwork) for network in networks.values()):
        yield check_dnsmasq()


def check_bridge(network: str, bridge: str, root: Path = _ROOT) -> Diagnosis:
    """Check that the bridge of a flat network exists."""
    if (root / "sys/class/net" / bridge / "bridge").is_dir():
        return ok(f"network {network}", f"bridge {bridge} is there")
    there = (root / "sys/class/net" / bridge).exists()
    found = f"{bridge} is not a bridge" if there else f"there is no bridge {bridge}"
    remedy = f"ip link add {bridge} type bridge && ip link set {bridge} up, or name another one"
    return fail(f"network {network}", found, remedy)


def check_uplink(network: str, uplink: str, root: Path = _ROOT) -> Diagnosis:
    """Check that the uplink of a VLAN network exists."""
    if (root / "sys/class/net" / uplink).exists():
        return ok(f"network {network}", f"uplink {uplink} is there")
    remedy = f"name one of this machine's in site.yaml: networks: {network}: uplink"
    return fail(f"network {network}", f"there is no uplink {uplink}", remedy)


def check_8021q(root: Path = _ROOT) -> Diagnosis:
    """Check that the kernel supports VLAN interfaces."""
    if has_module("8021q", root):
        return ok("802.1Q", "the kernel has it")
    return fail(
        "802.1Q",
        "the kernel has no module 8021q: networks of strategy vlan cannot be made",
        "install the kernel's extra modules, or use the strategies flat and flat_dhcp",
    )


def check_dnsmasq() -> Diagnosis:
    """Check that dnsmasq is installed, the DHCP server of libvirt's networks."""
    found = shutil.which("dnsmasq", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found:
        return ok("dnsmasq", found)
    return fail(
        "dnsmasq", "is not installed: no network with DHCP starts", "apt-get install dnsmasq-base"
    )
