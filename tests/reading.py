"""Which calls of drivers only read."""

from fabric_direct.calls.reading import reading
from fabric_direct.drivers.contract.bundle import CONTRACTS


def only_reads(call: str) -> bool:
    """Return whether a call such as ``compute.find`` changes nothing, by the contract of drivers."""
    kind, _, method = call.partition(".")
    return method in reading(*CONTRACTS.get(kind, ())).all
