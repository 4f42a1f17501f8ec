"""Which driver serves which field of a NIC, as docs/operating.md has it.

``python -m tests.fields_table`` prints it.
"""

from collections.abc import Iterator

from fabric_direct.drivers.libvirt.defaults import WORKER_DRIVERS
from fabric_direct.handlers.registry import driver
from fabric_direct.model import Interface, SharedNic, SmartNic, VNic, VNicInterface

INTERFACES = {VNic: VNicInterface, SmartNic: Interface, SharedNic: Interface}
COLUMNS = (
    (VNic, "network", "libvirt"),
    (VNic, "network", "openstack"),
    (SmartNic, "device", WORKER_DRIVERS["SmartNIC"]),
    (SharedNic, "device", WORKER_DRIVERS["SharedNIC"]),
)


def rows() -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    heads = [f"{kind.model_fields['type'].default} by `{name}`" for kind, _, name in COLUMNS]
    yield f"| `interface:` | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    for field in VNicInterface.model_fields:
        yield f"| `{field}` | {' | '.join(_cells(field))} |"


def _cells(field: str) -> Iterator[str]:
    for kind, group, name in COLUMNS:
        known = field in INTERFACES[kind].model_fields
        yield ("refused" if field in driver(group, name).unserved else "served") if known else "–"


if __name__ == "__main__":
    print(*rows(), sep="\n")  # noqa: T201
