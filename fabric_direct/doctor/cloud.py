"""Check the cloud of a site: its entry in clouds.yaml, the login, the services.

::

    entry → login → services → rights, workers, hosts, agents, bandwidth,             cloud_contents
                               external network, security groups, key pair,
                               volume type, images
                             → the machine of each host, its root ports               cloud_workers

If a service does not answer, the checks that need it are skipped.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from keystoneauth1.discover import EndpointData
from openstack.config.loader import CONFIG_SEARCH_PATH
from openstack.connection import Connection
from openstack.exceptions import raise_from_response

from fabric_direct.calls.deadline import call_within
from fabric_direct.doctor import cloud_contents as contents
from fabric_direct.doctor import cloud_workers
from fabric_direct.doctor.cloud_rights import RIGHTS, check_rights
from fabric_direct.doctor.diagnosis import Diagnosis, Verdict, fail, ok, warn
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.session import cloud, configuration
from fabric_direct.errors import Denied, FabricDirectError, InvalidSite, Unsupported
from fabric_direct.site.config import OpenStackSettings, Site

_PLACES = tuple(dict.fromkeys(CONFIG_SEARCH_PATH))
_REACH = "check that the service runs, and that this machine reaches its address in the catalog"


@dataclass(frozen=True, slots=True)
class _Service:
    """A service of the cloud, and its cheapest request."""

    name: str
    product: str
    proxy: str
    question: str
    zed: tuple[int, int] | None = None
    """Its newest microversion in the Zed release, where that identifies a release."""
    without: str = ""
    """What to do where the cloud has no such service."""


_Check = tuple[str, str, Callable[[Connection], Diagnosis]]
_SERVICES = (
    _Service("identity", "Keystone", "identity", "/auth/projects"),
    _Service("compute", "Nova", "compute", "/flavors?limit=1", (2, 93)),
    _Service("network", "Neutron", "network", "/networks?limit=1&fields=id"),
    _Service(
        "volume",
        "Cinder",
        "block_storage",
        "/volumes?limit=1",
        (3, 70),
        without="if it has no volumes, write Storage: none below drivers in site.yaml",
    ),
    _Service("image", "Glance", "image", "/images?limit=1"),
)


def examine_cloud(site: Site) -> Iterator[Diagnosis]:
    """Check the cloud that the site's drivers use."""
    if site.openstack is None:
        remedy = "add openstack: {cloud: NAME}, an entry of clouds.yaml"
        yield fail("cloud", "site.yaml has no section openstack", remedy)
        return
    limit = site.limits.call
    for subject, check in (("clouds.yaml", check_entry), ("login", check_login)):
        found = _limited(subject, limit, check, site.openstack, limit)
        yield found
        if found.verdict is Verdict.FAIL:
            return
    yield from _examine_services(site, site.openstack)


def _examine_services(site: Site, settings: OpenStackSettings) -> Iterator[Diagnosis]:
    limit, answering = site.limits.call, set()
    connection = cloud(settings, call_limit=limit)
    for service in _services_of(site):
        found = _limited(service.name, limit, check_service, connection, service)
        answering |= set() if found.verdict is Verdict.FAIL else {service.name}
        yield found
    for name, subject, check in _checks(site, settings):
        if name in answering:
            yield _limited(subject, limit, check, connection)


def _services_of(site: Site) -> Iterator[_Service]:
    """Yield the services that are needed: volumes and images are those of VMs."""
    others: set[str] = set() if site.serves_vms else {"volume", "image"}
    if site.driver_for("Storage") not in {None, "openstack"}:
        others |= {"volume"}
    return (service for service in _SERVICES if service.name not in others)


def _checks(site: Site, settings: OpenStackSettings) -> Iterator[_Check]:
    """Yield the service, the subject and the function of each check of what the site names."""
    external = settings.external_network
    for service in _services_of(site):
        if service.product in RIGHTS:
            check = partial(check_rights, site=site, service=service.product)
            yield service.name, f"rights in {service.product}", check
    if site.serves_vms:
        yield from _worker_checks(site)
    yield "network", "network agents", contents.check_agents
    if site.serves_vms:
        yield "network", "bandwidth of vNICs", contents.check_limits
    yield "network", "external network", partial(contents.check_external_network, name=external)
    if site.serves_vms:
        yield from _server_checks(site, settings)


def _worker_checks(site: Site) -> Iterator[_Check]:
    """Yield the checks of where servers are made."""
    hosts = list(site.hosts)
    yield "compute", "workers", contents.check_workers
    yield "compute", "placement", contents.check_placement
    if hosts:
        yield "compute", "hosts of site.yaml", partial(contents.check_hosts, names=hosts)
    yield from _machines(site)


def _server_checks(site: Site, settings: OpenStackSettings) -> Iterator[_Check]:
    """Yield the checks of what servers are made with."""
    key, kind = settings.key_name, settings.volume_type
    yield "network", "security groups", partial(contents.check_security_groups, site=site)
    yield "compute", "key pair", partial(contents.check_key_pair, name=key)
    yield "volume", "volume type", partial(contents.check_volume_type, name=kind)
    for name in site.images:
        yield "image", f"image {name}", partial(contents.check_image, name=name, site=site)


def _machines(site: Site) -> Iterator[_Check]:
    """Yield the checks of the machines that the site's hosts are."""
    for name in site.hosts:
        check = partial(cloud_workers.check_machine, site=site, name=name)
        yield "compute", f"machine of {name}", check
    if len(site.hosts) > 1:
        check = partial(cloud_workers.check_distinct, site=site)
        yield "compute", "machines of site.yaml", check
    for name in filter(site.passes_devices, site.hosts):
        check = partial(cloud_workers.check_root_ports, site=site, name=name)
        yield "image", f"root ports on {name}", check


def _limited(
    subject: str, limit: float, check: Callable[..., Diagnosis], *args: object
) -> Diagnosis:
    """Return what a check found, or why it failed."""
    try:
        with translated(f"check {subject}"):
            return call_within(limit, f"the check of {subject}", check, *args)
    except FabricDirectError as error:
        return fail(subject, error.without_remedy, error.remedy or _REACH)


# --- login


def check_entry(settings: OpenStackSettings, limit: float) -> Diagnosis:
    """Check that clouds.yaml has the cloud's entry."""
    try:
        cloud(settings, call_limit=limit)
    except InvalidSite as error:
        return _no_entry(settings, error)
    return ok("clouds.yaml", f"{configuration(settings).config_filename} has {settings.cloud}")


def _no_entry(settings: OpenStackSettings, error: InvalidSite) -> Diagnosis:
    """Return why the file cannot be used, or which entries it has instead."""
    subject = "clouds.yaml"
    remedy = "fix it, or name another file in site.yaml: openstack: clouds_file"
    if error.field == "openstack.clouds_file":
        return fail(subject, f"{error.where}: {error.why}", remedy)
    if error.field != "openstack.cloud":
        return fail(subject, error.without_remedy, error.remedy or remedy)
    config = configuration(settings)
    if not config.config_filename:
        return fail(subject, f"is in none of {', '.join(_PLACES)}", remedy)
    known = [name for name in config.get_cloud_names() if name != "envvars"]
    if settings.cloud in known:
        return fail(subject, error.without_remedy, remedy)
    found = f"{config.config_filename} has no {settings.cloud!r}, but {', '.join(known) or 'none'}"
    remedy = "name one of these in site.yaml: openstack: cloud, or add it to the file"
    return fail(subject, found, remedy)


def check_login(settings: OpenStackSettings, limit: float) -> Diagnosis:
    """Log in, and report user and project."""
    connection = cloud(settings, call_limit=limit)
    try:
        access = contents.access_of(connection)
    except Denied as error:
        user = connection.config.config["auth"].get("username") or "us"
        found = f"Keystone refuses to log {user} in: {error.why}"
        remedy = f"check user, password and project of {settings.cloud} in clouds.yaml"
        return fail("login", found, remedy)
    region = connection.config.region_name or "any"
    return ok("login", f"{access.username} in project {access.project_name}, region {region}")


def check_service(connection: Connection, service: _Service) -> Diagnosis:
    """Send a service its cheapest request, and report its versions."""
    try:
        with translated(f"ask {service.product}", connection.name):
            proxy = getattr(connection, service.proxy)
            raise_from_response(proxy.get(service.question))
            data = proxy.get_endpoint_data()
    except Unsupported as error:
        return fail(service.name, error.without_remedy, service.without or error.remedy)
    found = f"{service.product} at {data.url}, {_version(data)}"
    newest = data.max_microversion
    if service.zed is None or (newest and newest >= service.zed):
        return ok(service.name, found)
    return warn(
        service.name,
        f"{found}: older than Zed, which has {_dotted(service.zed)}",
        "upgrade the cloud; releases before Zed are untested",
    )


def _version(data: EndpointData) -> str:
    version = f"version {_dotted(data.api_version)}" if data.api_version else "version unknown"
    if not data.max_microversion:
        return version
    oldest, newest = _dotted(data.min_microversion), _dotted(data.max_microversion)
    return f"{version}, microversions {oldest} to {newest}"


def _dotted(version: Iterable[float] | None) -> str:
    return ".".join(map(str, version or ()))
