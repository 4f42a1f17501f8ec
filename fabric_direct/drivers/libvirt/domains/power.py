"""The power of a domain: on, off, and the ACPI power button."""

import errno
import time

import libvirt

from fabric_direct.calls.deadline import Deadline, trying_again
from fabric_direct.calls.waiting import waiting_for
from fabric_direct.drivers.libvirt.connection.connections import Ignoring

# Seconds until the button is pressed again: a guest that is booting ignores it.
ASK_AGAIN = 10.0
# Seconds between two looks at a guest that is shutting down.
LOOK_AGAIN = 0.2
# How often a start is tried that ends with EAGAIN. The kernel's verifier of eBPF, to which libvirt gives
# the filter of the domain's devices, ends so when a signal comes (Linux 4.20 and later); libbpf tries as
# often, libvirt once.
STARTS = 5


def power_on(domain: libvirt.virDomain) -> None:
    """Start the domain, unless it runs already; again if a signal has interrupted libvirt."""
    left = STARTS
    while True:
        try:
            if not domain.isActive():
                domain.create()
        except libvirt.libvirtError as error:
            left -= 1
            if domain.isActive():
                return
            if not left or not _was_interrupted(error):
                raise
        else:
            return
        trying_again()


def power_off(domain: libvirt.virDomain) -> None:
    """Power the domain off, unless it is off already."""
    with Ignoring(libvirt.VIR_ERR_OPERATION_INVALID):
        if domain.isActive():
            domain.destroy()


def _was_interrupted(error: libvirt.libvirtError) -> bool:
    system = error.get_error_code() == libvirt.VIR_ERR_SYSTEM_ERROR
    return bool(system and error.get_int1() == errno.EAGAIN)


def shut_down(domain: libvirt.virDomain, timeout: float) -> bool:
    """Press the power button until the guest is off; return whether it was off in time."""
    deadline = Deadline.within(timeout)
    with waiting_for("the guest to shut down") as still:
        while domain.isActive():
            still("")
            _press_and_wait(domain, deadline.remaining(ASK_AGAIN))
            if deadline.remaining() <= 0:
                return not domain.isActive()
    return True


def _press_and_wait(domain: libvirt.virDomain, seconds: float) -> None:
    with Ignoring(libvirt.VIR_ERR_OPERATION_INVALID):
        domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
    again = Deadline.within(seconds)
    while domain.isActive() and again.remaining() > 0:
        time.sleep(LOOK_AGAIN)
