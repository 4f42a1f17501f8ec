"""The PCI functions of a host, as its kernel shows them."""

from collections.abc import Collection

from pydantic import TypeAdapter

from fabric_direct.drivers.contract import HostDriver, PciFunction
from fabric_direct.model import PciAddress

_FORM = TypeAdapter(tuple[PciFunction, ...])


def survey(
    host: HostDriver, *, timeout: float, named: Collection[PciAddress] | None = None
) -> dict[PciAddress, PciFunction]:
    """Return all PCI functions of a host by address, with what the host uses them for.

    :param timeout: seconds until an answer.
    :param named: the functions whose uses are wanted, with those that are passed through with them: no
        disk of another one is opened. All of them if absent.
    :raises Unreachable: if the host does not answer.
    :raises TimedOut: if no answer came in time.
    """
    only = {} if named is None else {"named": sorted(map(str, named))}
    found = _FORM.validate_python(host.call("pci.survey", timeout=timeout, **only))
    return {function.address: function for function in found}
