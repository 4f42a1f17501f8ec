"""Check the Python packages of the drivers."""

from importlib import import_module, metadata
from importlib.util import find_spec

from fabric_direct.doctor.diagnosis import Diagnosis, fail, ok
from fabric_direct.site.extras import how_to_install

_TOLD = {
    "libvirt": "libvirt-python",
    "openstack": "openstacksdk",
    "pycdlib": "pycdlib",
    "pyroute2": "pyroute2",
    "paramiko": "paramiko",
}


def check_libraries() -> Diagnosis:
    """Import the libraries that are installed: drivers import them at first use, which is late."""
    there = {module: package for module, package in _TOLD.items() if find_spec(module)}
    wrong = {p: error for module, p in there.items() if (error := _trouble(module))}
    if wrong:
        said = "; ".join(f"{package}: {error}" for package, error in wrong.items())
        return fail("Python libraries", said, "; ".join(map(how_to_install, wrong.values())))
    versions = ", ".join(f"{p} {metadata.version(p)}" for p in there.values())
    return ok("Python libraries", versions)


def _trouble(module: str) -> ImportError | None:
    try:
        import_module(module)
    except ImportError as error:
        return error
    return None
