"""Check the Python packages of the drivers."""

from importlib import import_module, metadata

from fabric_direct.doctor.diagnosis import Diagnosis, fail, ok

# Drivers import them at first use, so a missing one would be noticed late.
_NEEDED = {
    "libvirt": "libvirt-python",
    "openstack": "openstacksdk",
    "pycdlib": "pycdlib",
    "pyroute2": "pyroute2",
    "paramiko": "paramiko",
}

INSTALL = "install fabric-direct again with its dependencies: pip install -U fabric-direct"


def check_libraries() -> Diagnosis:
    """Import the libraries that the drivers use."""
    wrong = [
        f"{package}: {why}" for module, package in _NEEDED.items() if (why := _trouble(module))
    ]
    if wrong:
        return fail("Python libraries", "; ".join(wrong), INSTALL)
    versions = ", ".join(f"{p} {metadata.version(p)}" for p in _NEEDED.values())
    return ok("Python libraries", versions)


def _trouble(module: str) -> str:
    try:
        import_module(module)
    except ImportError as error:
        return str(error)
    return ""
