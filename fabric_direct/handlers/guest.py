"""What handlers want of a guest, on top of its driver."""

from collections.abc import Callable, Sequence

from fabric_direct.deadline import Deadline, wait_until
from fabric_direct.drivers.base import GuestAddress, GuestDriver, GuestInterface, Port
from fabric_direct.errors import DriverError
from fabric_direct.model import ObservedGuest

# Characters of a serial number that a virtio disk shows (VIRTIO_BLK_ID_BYTES).
VIRTIO_SERIAL = 20
# Seconds for one look into a guest.
_LOOK = 30.0
_SERIALS = ("find", "-L", "/sys/block", "-mindepth", "2", "-maxdepth", "2", "-name", "serial")


class Guest:
    """One guest, through the driver that looks into it."""

    def __init__(self, driver: GuestDriver, address: GuestAddress) -> None:
        self.driver, self.address = driver, address

    def meet(self, console: Callable[[], str], *, timeout: float) -> None:
        """Return when the guest's host key is known, from its console.

        The console of a cloud is dear to read, so it is read when the guest's SSH server answers.

        :raises TimedOut: if it did not show one within ``timeout`` seconds.
        """
        what = "the guest to show its SSH host key on its console"
        wait_until(what, lambda: self._shown(console), timeout=timeout)

    def wait_ready(self, ports: Sequence[Port], *, timeout: float) -> None:
        """Return when the guest answers, its boot script has run, and its NICs have their addresses.

        :raises Unreachable: if it does not answer.
        :raises TimedOut: if the rest does not come about within ``timeout`` seconds.
        """
        deadline = Deadline.within(timeout)
        addressed = "the guest's NICs to have their addresses"
        self.driver.wait(self.address, timeout=timeout)
        wait_until("the guest to finish its boot", self._booted, timeout=deadline.remaining())
        wait_until(addressed, lambda: self._has(ports), timeout=deadline.remaining())

    def observe(self) -> ObservedGuest:
        """Ask the guest; one that does not answer is not reachable, which is no error."""
        try:
            if not self.driver.ping(self.address):
                return ObservedGuest(reachable=False)
            return ObservedGuest(
                reachable=True,
                via=self.driver.name,
                boot_finished=self.driver.boot_finished(self.address),
                ssh_host_key=self.driver.ssh_host_key(self.address),
            )
        except DriverError:
            return ObservedGuest(reachable=False)

    def interfaces(self) -> dict[str, GuestInterface]:
        """Return the guest's interfaces by MAC address; none if it does not answer."""
        try:
            return {i.mac.lower(): i for i in self.driver.interfaces(self.address)}
        except DriverError:
            return {}

    def disks(self) -> dict[str, str]:
        """Return the names of the guest's virtio disks by serial number; none if it does not say."""
        try:
            read = ("-exec", "grep", "-H", ".", "{}", "+")
            answer = self.driver.run(self.address, (*_SERIALS, *read), timeout=_LOOK)
        except DriverError:
            return {}
        lines = (line.partition(":") for line in answer.stdout.decode(errors="replace").split("\n"))
        return {serial: path.split("/")[3] for path, _, serial in lines if serial}

    def _shown(self, console: Callable[[], str]) -> bool:
        return self.driver.listens(self.address) and self.driver.learn(self.address, console())

    def _booted(self) -> bool:
        return self.driver.boot_finished(self.address) is not False

    def _has(self, ports: Sequence[Port]) -> bool:
        found = self.interfaces()
        return all(_on(found.get(port.mac), port) for port in ports)


def _on(interface: GuestInterface | None, port: Port) -> bool:
    """Return whether the guest's interface has the IPv4 address that is held for it."""
    if interface is None:
        return False
    have = {address.partition("/")[0] for address in interface.addresses}
    return port.ipv4 is None or str(port.ipv4.ip) in have
