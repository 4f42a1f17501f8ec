"""The PCI functions of a host, as its kernel shows them."""

from pydantic import TypeAdapter

from fabric_direct.drivers.contract import HostDriver, PciFunction
from fabric_direct.model import PciAddress

_FORM = TypeAdapter(tuple[PciFunction, ...])


def survey(host: HostDriver, *, timeout: float) -> dict[PciAddress, PciFunction]:
    """Return all PCI functions of a host by address, with what the host uses them for.

    :param timeout: seconds until an answer.
    :raises Unreachable: if the host does not answer.
    :raises TimedOut: if no answer came in time.
    """
    found = _FORM.validate_python(host.call("pci.survey", timeout=timeout))
    return {function.address: function for function in found}
