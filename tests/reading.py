"""Which calls of drivers only read."""

from fabric_direct.drivers.contract.kinds import marks


def only_reads(call: str) -> bool:
    """Return whether a call such as ``compute.find`` changes nothing, by the contract of drivers."""
    kind, _, method = call.partition(".")
    return method in marks(kind).all
