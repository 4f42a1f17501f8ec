"""Check controllers of network services, P4 switches and bare metal: answers, credentials, rights."""

import stat
from collections.abc import Iterator
from pathlib import Path

from fabric_direct.doctor.diagnosis import Diagnosis, fail, ok, warn
from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.contract.network_services import ServiceController
from fabric_direct.errors import FabricDirectError
from fabric_direct.handlers import registry
from fabric_direct.site.config import Site


def check_controllers(site: Site) -> Iterator[Diagnosis]:
    """Check each controller that a driver of site.yaml asks."""
    services, used = site.services, site.drivers.values()
    if services.nso and "nso" in used:
        yield from _check_controller(site, "nso", services.nso.password_file)
    if services.al2s and "al2s" in used:
        yield from _check_controller(site, "al2s", services.al2s.key_file)


def check_switches(site: Site) -> Iterator[Diagnosis]:
    """Check each P4 switch that is given away: login, rights, installer."""
    if "p4switch" not in site.drivers.values():
        return
    for name in site.p4_switches:
        yield _check_switch(site, name)


def check_bare_metal(site: Site) -> Iterator[Diagnosis]:
    """Check that the API of bare-metal nodes answers, and name those that a person has to look at."""
    try:
        driver = registry.bare_metal(site, next(iter(site.hosts), ""))
        if driver is None:
            return
        said, nodes = driver.examine(), driver.nodes()
    except FabricDirectError as error:
        remedy = error.remedy or "see drivers.BareMetal of site.yaml"
        yield fail("bare metal", error.without_remedy, remedy)
        return
    yield ok("bare metal", ", ".join(said))
    for node in nodes:
        if node.condition is NodeCondition.QUARANTINED:
            why = node.why or f"it is {node.state}"
            remedy = "clean it with Ironic's own tools; nobody gets it before it is available"
            yield warn(f"node {node.name}", f"it may be unclean: {why}", remedy)


def _check_switch(site: Site, name: str) -> Diagnosis:
    subject = f"switch {name}"
    try:
        driver = registry.driver("service", "p4switch")(site, "")
        user, installer, whose = driver.examine(name)
    except FabricDirectError as error:
        remedy = error.remedy or f"see p4_switches.{name} of site.yaml"
        return fail(subject, error.without_remedy, remedy)
    if user != "user 0":
        return fail(subject, f"{user}, not root", f"set p4_switches.{name}.sudo, or log in as root")
    if not installer:
        remedy = "install ONIE there, with a GRUB entry ONIE or an entry of EFI"
        return fail(subject, "it cannot be told to install itself", remedy)
    return ok(subject, f"{installer}, {whose}")


def _check_controller(site: Site, name: str, secret: Path) -> Iterator[Diagnosis]:
    if secret.is_file() and secret.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield warn(f"services.{name}", f"{secret} can be read by others", f"chmod go= {secret}")
    try:
        controller: ServiceController = registry.driver("service", name)(site, "")
        said = controller.examine()
    except FabricDirectError as error:
        remedy = error.remedy or f"see services.{name} of site.yaml"
        yield fail(name.upper(), error.without_remedy, remedy)
    else:
        yield ok(name.upper(), ", ".join(said))
