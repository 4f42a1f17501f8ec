"""What is done to clean a device, by its type, and what is not believed. A real worker: tests/worker."""

from typing import Any

import pytest

from fabric_direct.drivers.contract import DeviceRecord
from fabric_direct.drivers.libvirt.passthrough.cleaning import clean
from fabric_direct.errors import DriverError, NotVerified, Unreachable
from fabric_direct.model import PciAddress

FIRST, SECOND = PciAddress.parse("0000:06:00.0"), PciAddress.parse("0000:06:00.1")
RESET = {str(FIRST): "flr", str(SECOND): "pm"}
ERASED = {"method": "format, crypto erase", "proof": "6 MiB read, all empty"}
ERASED_DISKS = ERASED | {"namespaces": ["nvme1n1"], "bytes": 4 << 40}


class Worker:
    """Answers the functions that run on a worker."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"pci.reset": RESET, "pci.bind": "nvme", "nvme.erase": ERASED_DISKS} | {
            name.replace("_", ".", 1): value for name, value in answers.items()
        }
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Any:
        limit = arguments.pop("limit", None)
        assert limit is None or limit <= timeout
        self.calls.append((function, arguments))
        answer = self.answers.get(function)
        if isinstance(answer, Exception):
            raise answer
        return answer


def function(**values: Any) -> dict[str, Any]:
    return {"address": str(FIRST), "vendor": "10de", "product": "1e30", "alive": True} | values


def record(kind: str) -> DeviceRecord:
    return DeviceRecord(FIRST, kind, None, "sliver-1", "dev", "10de", "1e30")


def cleaned(worker: Worker, kind: str = "GPU", *others: PciAddress) -> str:
    return clean(worker, record(kind), (FIRST, *others), timeout=60)  # type: ignore[arg-type]


def test_a_drive_is_given_to_its_own_driver_and_erased() -> None:
    worker = Worker(pci_survey=[function()])

    assert cleaned(worker, "NVME") == (
        "0000:06:00.0 was erased (nvme1n1) by format, crypto erase: 6 MiB read, all empty"
    )
    address = {"address": str(FIRST)}
    assert worker.calls == [
        ("pci.bind", address),
        ("nvme.erase", address),
        ("pci.survey", {"named": [str(FIRST)]}),
    ]


@pytest.mark.parametrize("kind", ["GPU", "SmartNIC", "SharedNIC", "FPGA"])
def test_anything_else_is_reset_with_all_its_functions(kind: str) -> None:
    worker = Worker(pci_survey=[function()])

    assert cleaned(worker, kind, SECOND) == (
        "0000:06:00.0 was reset (flr); 0000:06:00.1 was reset (pm)"
    )
    assert worker.calls[0] == ("pci.reset", {"addresses": [str(FIRST), str(SECOND)]})


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ([], "does not answer"),
        ([function(alive=False)], "does not answer"),
        ([function(product="1e04")], "10de:1e04, not 10de:1e30"),
    ],
    ids=["gone", "dead", "another device"],
)
def test_what_is_not_there_as_it_was_is_not_clean(there: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(NotVerified, match=why):
        cleaned(Worker(pci_survey=there))


@pytest.mark.parametrize("step", ["pci_reset", "pci_survey"])
@pytest.mark.parametrize("kind", [DriverError, Unreachable])
def test_a_step_that_fails_is_not_passed_over(step: str, kind: type[DriverError]) -> None:
    answers = {"pci_survey": [function()]} | {step: kind("no")}

    with pytest.raises(kind):
        cleaned(Worker(**answers))


def test_a_drive_that_still_holds_data_is_not_clean() -> None:
    left = DriverError("nvme.erase failed", why="EIO, nvme1n1 still holds data")

    with pytest.raises(DriverError, match="still holds data"):
        cleaned(Worker(pci_survey=[function()], nvme_erase=left), "NVME")
