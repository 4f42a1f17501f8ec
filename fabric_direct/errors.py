"""The errors that this library raises, as a tree.

::

    FabricDirectError            what happened, where, why, and what to do about it
    ├── Refused                  bad input: nothing was touched                    (exit code 2)
    │   ├── InvalidSliver        a field of the sliver, or one that this site cannot serve
    │   └── InvalidSite          site.yaml: file, line and field
    ├── NotFound                 no such sliver, network, volume or device
    ├── Conflict                 the request conflicts with what exists on the substrate
    │   ├── NotOurs              something of that name lacks this site's stamp; it is left alone
    │   ├── SliverBusy           another process works on this sliver
    │   ├── DeviceClaimed        another domain, live or defined, has the device
    │   ├── DeviceInUse          the host itself uses the device
    │   ├── DeviceUnclean        the device was not cleaned after its last use, or is quarantined
    │   ├── DeviceLost           the device belongs to a server that has lost it
    │   ├── NoHost               no host can take the sliver, or each that could refused it
    │   ├── PoolExhausted        a network has no free address left
    │   └── QuotaExceeded        the project's quota has no room for it
    ├── DriverError              an API reported an error; the message quotes it
    │   ├── Unreachable          the API, host or guest does not answer
    │   ├── Denied               credentials were rejected, or lack a permission
    │   ├── TimedOut             no answer within the call's limit, or the operation's limit is reached
    │   └── Unsupported          this hardware or version cannot do it (EOPNOTSUPP and the like)
    ├── NotVerified              the call succeeded, but what was read back differs from the request
    └── Interrupted              somebody asked to begin nothing more, in the middle of the operation

Every message says what happened, where, why, and what to do. Errors of libraries are translated where
the library is called, and kept as ``__cause__``.
"""

from pathlib import Path


class FabricDirectError(Exception):
    """Base class of all errors that this library raises on purpose.

    :param what: what failed, as a short sentence without a full stop.
    :param where: the host, file, network or device.
    :param why: the reason; in the words of the API, if an API gave one.
    :param remedy: what the reader can do about it.
    :param field: path of the offending field, for example ``components[1].interface.mac``.
    """

    def __init__(
        self, what: str, *, where: str = "", why: str = "", remedy: str = "", field: str = ""
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.remedy = remedy
        self.field = field

    @property
    def field_and_what(self) -> str:
        """What failed, after the field; once, where ``what`` has it already."""
        named = not self.field or f"{self.field}: " in self.what
        return self.what if named else f"{self.field}: {self.what}"

    @property
    def without_remedy(self) -> str:
        """One line: ``field: what (where): why``."""
        where = f" ({self.where})" if self.where else ""
        why = f": {self.why}" if self.why else ""
        return self.field_and_what + where + why

    def __str__(self) -> str:
        """Return one line: ``field: what (where): why. remedy.``."""
        said = self.without_remedy
        return f"{said.rstrip('.')}. {self.remedy.rstrip('.')}." if self.remedy else said

    def __reduce__(self) -> tuple[object, ...]:
        """Keep all attributes across a pickle: pool workers send errors to their parent."""
        return (_rebuild, (type(self), dict(self.__dict__)))


def _rebuild(kind: type[FabricDirectError], attributes: dict[str, str]) -> FabricDirectError:
    return kind(**attributes)


class Refused(FabricDirectError):
    """The request is invalid; nothing was changed."""


class InvalidSliver(Refused):
    """A field of the sliver is wrong, or this site cannot serve it."""


class InvalidSite(Refused):
    """The site's configuration is wrong."""


class NotFound(FabricDirectError):
    """The subject of the operation does not exist."""


class Conflict(FabricDirectError):
    """The request conflicts with what exists on the substrate."""


class NotOurs(Conflict):
    """Something of that name exists without this site's stamp; it was left alone."""


class SliverBusy(Conflict):
    """Another process works on this sliver."""


class DeviceClaimed(Conflict):
    """Another domain of the host, live or defined, has the device."""


class DeviceInUse(Conflict):
    """The host itself uses the device: a mounted file system, a route, an address."""


class DeviceUnclean(Conflict):
    """The device was not cleaned after its last use, or could not be: it is quarantined."""


class DeviceLost(Conflict):
    """No domain has the device, but a server's stamp names it: it is that sliver's, with its data."""


class NoHost(Conflict):
    """No host can take the sliver, or each that could refused it."""


class PoolExhausted(Conflict):
    """A network has no free address left."""


class QuotaExceeded(Conflict):
    """The request exceeds the project's quota."""


class DriverError(FabricDirectError):
    """An API reported an error."""


class Unreachable(DriverError):
    """The API, host or guest does not answer."""


class Denied(DriverError):
    """Credentials were rejected, or lack a permission."""


class TimedOut(DriverError):
    """There was no answer within the limit of the call or of the operation."""


class Unsupported(DriverError):
    """The hardware, driver or version at hand cannot do this."""


class NotVerified(FabricDirectError):
    """The call succeeded, but what was read back differs from the request."""


class Interrupted(FabricDirectError):
    """Somebody asked to begin nothing more, in the middle of the operation; it was not undone."""


class LockLost(Interrupted):
    """Another process may have taken over what this one works on; nothing more was begun or undone."""


def unusable(what: str, path: Path, error: OSError) -> DriverError:
    """Return the error of a file of the state directory that cannot be used.

    :param what: what cannot be done, as in *cannot* ``lock sliver 4711``.
    """
    return DriverError(
        f"cannot {what}",
        where=str(path),
        why=error.strerror or str(error),
        remedy="check the state directory: fabric-direct doctor",
    )
