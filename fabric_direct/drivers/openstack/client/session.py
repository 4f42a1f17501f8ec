"""The connection to a cloud: one for each cloud and process, shared by its threads.

A token and the connections to the APIs are the process's own, so a forked child forgets what it
inherited without closing it, and authenticates for itself.
"""

import importlib.metadata
import json
import netrc
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import yaml
from keystoneauth1.access import AccessInfo
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import Unauthorized
from keystoneauth1.identity.base import BaseIdentityPlugin
from keystoneauth1.plugin import BaseAuthPlugin
from keystoneauth1.session import Session
from openstack.config import OpenStackConfig, loader
from openstack.config.cloud_region import CloudRegion
from openstack.connection import Connection
from openstack.exceptions import NotSupported
from openstack.service_description import ServiceDescription

from fabric_direct.calls import forks
from fabric_direct.drivers.openstack.client import entry
from fabric_direct.drivers.openstack.client.answers import Checked
from fabric_direct.drivers.openstack.client.errors import NONSENSE, in_library, translated
from fabric_direct.drivers.openstack.client.kept_session import KeptSession, kept_session
from fabric_direct.drivers.openstack.client.transport import LOGIN, Transport, uncached
from fabric_direct.errors import InvalidSite, Unreachable
from fabric_direct.site.config import OpenStackSettings

__all__ = ["Cloud", "cloud", "uncached"]

# requests imports it at its first request. A fork in the midst of that has a child that waits for ever.
_IMPORTED = netrc

_Key = tuple[str, Path | None, float]

_lock = forks.Lock()
_connections: dict[_Key, "Cloud"] = {}
# Kept, so that nothing closes them: closing takes locks that a thread of the parent may have held.
_inherited: list["Cloud"] = []


def cloud(settings: OpenStackSettings, *, call_limit: float = 60.0) -> Connection:
    """Return this process's connection to a cloud; it is authenticated at its first request.

    A request with all of its tries begins and is tried again within ``call_limit`` seconds only. GET,
    HEAD and DELETE are tried again if the API cannot be reached or is busy, nothing else is. What is
    read with a :class:`~fabric_direct.calls.read_cache.ReadCache` is read once; see :func:`uncached`.

    :param call_limit: the limit of a call, in seconds.
    :raises InvalidSite: if clouds.yaml has no such cloud or cannot be read.
    """
    key = (settings.cloud, settings.clouds_file, call_limit)
    with _lock:
        if key not in _connections:
            _connections[key] = _connect(settings, call_limit)
        return _connections[key]


class _Session(Session):
    """keystoneauth's session, which repeats nothing by itself and logs no contents."""

    kept: KeptSession | None = None

    def request(self, url: str, method: str, **how: Any) -> Any:  # type: ignore[override]
        """Send a request once, whatever clouds.yaml says: a repeated POST makes two things.

        After a login that was refused, the next caller of :func:`cloud` reads clouds.yaml again.
        """
        how.update(connect_retries=0, status_code_retries=0, log=False)
        try:
            response = super().request(url, method, **how)
        except Unauthorized:
            if url.endswith(LOGIN):
                _forget(self)
            raise
        if self.kept:
            self.kept.save()
        return response

    def invalidate(self, auth: BaseAuthPlugin | None = None) -> bool:
        """Drop the token; true also if another thread was first, so that this one tries again, too."""
        super().invalidate(auth)
        return True


class _LoginLock:
    """The lock of a login, which refuses the thread that has it.

    Where the identity API refuses to tell its versions, keystoneauth asks again with a token: in the
    midst of the login that is to give one, it would wait for itself for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise Unauthorized("the identity API tells its versions to nobody without a token")
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = None
        self._lock.release()


def _remembering(auth: Any) -> Callable[..., AccessInfo]:
    """Return what gives a plugin's login, and takes its lock only if a new one is needed.

    keystoneauth takes the lock, and reads the token's time, several times for each request: a hundred
    threads would mostly wait for each other.
    """
    log_in = auth.get_access
    known: tuple[Any, float] = (None, 0.0)

    def get_access(session: Session, **how: Any) -> AccessInfo:
        nonlocal known
        ref, until = known
        if ref is None or ref is not auth.auth_ref or time.time() >= until:
            ref = log_in(session, **how)
            known = ref, ref.expires.timestamp() - auth.MIN_TOKEN_LIFE_SECONDS
        return cast(AccessInfo, ref)

    return get_access


class Cloud(Connection):
    """openstacksdk's connection, each service of which is discovered by one thread only."""

    def __init__(self, **how: Any) -> None:
        self.services: dict[str, Any] = {}
        self.discovering = {name: threading.Lock() for name in _SERVICES}
        super().__init__(**how)
        # Reads are read from the API, whatever clouds.yaml says of caches.
        self.cache_enabled = False


class _Service:
    """A service of a connection, discovered at its first use; what it returns is checked."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._service: ServiceDescription[Any] = getattr(Connection, name)

    def __get__(self, instance: Cloud | None, owner: type[Cloud]) -> Any:
        if instance is None:
            return self._service
        if self._name not in instance.services:
            with instance.discovering[self._name], translated(self._use(), instance.name):
                instance.services[self._name] = Checked(self._discover(instance))
        return instance.services[self._name]

    def _discover(self, cloud: Cloud) -> Any:
        try:
            found = self._service.__get__(cloud, type(cloud))
        except NotSupported as error:
            raise self._silent(cloud, str(error)) from error
        if self._name in _MICROVERSIONED and isinstance(found, Adapter):
            versions = Adapter.get_endpoint_data(found)
            if versions is None or versions.max_microversion is None:
                # Otherwise openstacksdk would use the oldest version, which ignores filters by tag.
                raise self._silent(cloud, "its version document could not be read")
        return found

    def _silent(self, cloud: Cloud, why: str) -> Unreachable:
        remedy = "check that the API is up"
        return Unreachable(f"cannot {self._use()}", where=cloud.name, why=why, remedy=remedy)

    def _use(self) -> str:
        return f"use the {self._name.replace('_', ' ')} API"


_SERVICES = (
    *("compute", "network", "block_storage", "image", "identity", "placement"),
    "baremetal",
)
_MICROVERSIONED = frozenset({"compute", "block_storage", "placement", "baremetal"})
for _name in _SERVICES:
    setattr(Cloud, _name, _Service(_name))


def _connect(settings: OpenStackSettings, call_limit: float) -> Cloud:
    with translated("read the clouds", settings.cloud):
        config = configuration(settings)
        with _understood(settings.cloud, "openstack.cloud", _files(config)):
            made = Cloud(config=_region(config, settings.cloud))
            session: Any = made.session
            auth: Any = session.auth
            if isinstance(session.auth, BaseIdentityPlugin):  # a stand-alone service has no logins
                auth._lock = _LoginLock()
                auth.get_access = _remembering(auth)
            session.kept = kept_session(settings.cloud, session.auth)
        for scheme in ("http://", "https://"):
            session.mount(scheme, Transport(call_limit, session.kept))
    return made


def configuration(settings: OpenStackSettings) -> OpenStackConfig:
    """Return the clouds that this machine has, by clouds.yaml and secure.yaml.

    :raises InvalidSite: if one of them cannot be read.
    """
    path, environment = settings.clouds_file, os.environ.get
    secure_files = loader.SECURE_FILES
    if path is None:
        # openstacksdk takes the first that it can read.
        found = _first(environment("OS_CLIENT_CONFIG_FILE"), loader.CONFIG_FILES)
        secure = _first(environment("OS_CLIENT_SECURE_FILE"), secure_files)
    else:
        secure_files = [str(path.with_name("secure.yaml")), *secure_files]
        found, secure = path, _first(None, secure_files)
    for each in filter(None, (found, secure)):
        entry.refuse_sections(_document(each), str(each))
    with _understood(settings.cloud, "openstack.clouds_file", str(found or "")):
        return OpenStackConfig(
            config_files=None if path is None else [str(path)],
            secure_files=None if path is None else secure_files,
            # OS_CLIENT_CONFIG_FILE would be preferred to the file that site.yaml names.
            load_envvars=path is None,
            session_constructor=_Session,
            app_name="fabric-direct",
            app_version=importlib.metadata.version("fabric-direct"),
        )


def _first(preferred: str | None, files: Iterable[str]) -> Path | None:
    """Return the first file that may be read."""
    names = [preferred, *files] if preferred else files
    return next((Path(name) for name in names if os.access(name, os.R_OK)), None)


def _files(config: OpenStackConfig) -> str:
    """Return which files were read, for messages."""
    return " and ".join(filter(None, (config.config_filename, config.secure_config_filename)))


def _region(config: OpenStackConfig, name: str) -> CloudRegion:
    known, files = config.cloud_config["clouds"], _files(config)
    if name in known:
        entry.refuse_values(known[name], f"clouds.{name}", files)
    found = config.get_one(cloud=name)
    entry.refuse_files(found.config, f"clouds.{name}", files)
    _refuse_without_password(found, str(config.config_filename))
    return found


@contextmanager
def _understood(name: str, field: str, files: str) -> Iterator[None]:
    """Turn what openstacksdk stumbles over in clouds.yaml into InvalidSite: no API was asked."""
    try:
        yield
    except NONSENSE as error:
        if not in_library(error):
            raise
        raise InvalidSite(
            f"openstacksdk cannot read the entry of {name}",
            field=field,
            where=files,
            why=type(error).__name__,
            remedy="correct its values; --verbose says more",
        ) from error


def _refuse_without_password(region: CloudRegion, file: str) -> None:
    """Raise InvalidSite before keystoneauth raises a bare Exception at the first request."""
    wanted = "password" in (region.config.get("auth_type") or "")
    if wanted and not region.config["auth"].get("password"):
        raise InvalidSite(
            f"{region.name} has no password",
            field="openstack.cloud",
            where=file,
            remedy="put it into a file secure.yaml beside clouds.yaml",
        )


def _document(path: Path) -> Any:
    """Return the content of a file, which openstacksdk would ignore with a warning if it is not YAML.

    :raises InvalidSite: it names the line only and has no cause: either could quote a password.
    """
    refused = partial(InvalidSite, f"cannot read {path.name}", field="openstack.clouds_file")
    try:
        text = path.read_text()
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise refused(where=str(path), why=error.strerror or "") from error
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise refused(where=f"{path}{line}", why="it is not YAML") from None
    except json.JSONDecodeError as error:
        raise refused(where=f"{path}, line {error.lineno}", why="it is not JSON") from None
    except (UnicodeDecodeError, yaml.YAMLError):
        raise refused(where=str(path), why="it is not text") from None


def _forget(session: Session) -> None:
    with _lock:
        for key, known in tuple(_connections.items()):
            if known.session is session:
                del _connections[key]


@forks.in_child
def _after_fork() -> None:
    _inherited.extend(_connections.values())
    _connections.clear()
