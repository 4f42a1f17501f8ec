"""The power of a domain: on, off, and the button that a guest is asked by."""

import time

import libvirt

from fabric_direct.deadline import Deadline

# Seconds until a guest that has not gone off is asked again: one that is booting hears nothing.
ASK_AGAIN = 10.0
# Seconds between two looks at a guest that is going off.
LOOK_AGAIN = 0.2


def power_on(domain: libvirt.virDomain) -> None:
    """Start the domain; that it runs already is no error."""
    try:
        if not domain.isActive():
            domain.create()
    except libvirt.libvirtError:
        if not domain.isActive():
            raise


def power_off(domain: libvirt.virDomain) -> None:
    """Cut the power; that it is off already is no error."""
    try:
        if domain.isActive():
            domain.destroy()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:
            raise


def shut_down(domain: libvirt.virDomain, timeout: float) -> bool:
    """Press the power button until the guest is off; return whether it went off in time."""
    deadline = Deadline.within(timeout)
    while domain.isActive():
        _press_power_button(domain)
        again = Deadline.within(deadline.remaining(ASK_AGAIN))
        while domain.isActive() and again.remaining() > 0:
            time.sleep(LOOK_AGAIN)
        if deadline.remaining() <= 0:
            return not domain.isActive()
    return True


def _press_power_button(domain: libvirt.virDomain) -> None:
    try:
        domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:
            raise
