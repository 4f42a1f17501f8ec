"""Check libvirt of a host."""

from urllib.parse import urlsplit

from fabric_direct.calls.deadline import call_within
from fabric_direct.doctor.diagnosis import Diagnosis, fail, ok
from fabric_direct.errors import FabricDirectError
from fabric_direct.site.config import Host
from fabric_direct.site.extras import how_to_install

_START = (
    "install libvirt-daemon-system and qemu-system-x86; start it: systemctl start libvirtd, "
    "or without systemd: libvirtd -d"
)
_REMOTE = "check that `virsh -c URI list` works here without a password, and libvirtd runs there"


def is_local(host: Host) -> bool:
    """Return whether the host is this machine."""
    return not urlsplit(host.libvirt).hostname


def check_libvirt(name: str, host: Host, limit: float) -> Diagnosis:
    """Connect to a host's libvirt, and read its version and QEMU's.

    :param limit: time limit in seconds.
    """
    subject = f"libvirt of {name}"
    try:
        found = call_within(limit, f"libvirt at {host.libvirt}", _versions, host.libvirt)
    except ImportError as error:
        return fail(subject, str(error), how_to_install(error))
    except FabricDirectError as error:
        return fail(subject, error.without_remedy, _START if is_local(host) else _REMOTE)
    return ok(subject, f"{host.libvirt}: {found}")


def _versions(uri: str) -> str:
    # Here, because libvirt-python may be missing.
    from fabric_direct.drivers.libvirt.connection import connections  # noqa: PLC0415

    connection = connections.connect(uri)
    with connections.translated("ask for the version", uri):
        qemu, libvirt = connection.getVersion(), connection.getLibVersion()
    return f"libvirt {_dotted(libvirt)}, QEMU {_dotted(qemu)}"


def _dotted(version: int) -> str:
    """Return libvirt's number 9000003 as 9.0.3."""
    return f"{version // 1_000_000}.{version // 1_000 % 1_000}.{version % 1_000}"
