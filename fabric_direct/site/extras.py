"""The extras of this package: what some drivers and commands need beside it."""

from importlib.util import find_spec

from fabric_direct.errors import Refused

EXTRAS = {
    "al2s": ("httpx",),
    "database": ("alembic", "psycopg", "sqlalchemy"),
    "libvirt": ("libvirt", "libvirt_qemu", "libvirtmod"),
    "metrics": ("opentelemetry.exporter.prometheus", "prometheus_client"),
    "nso": ("httpx",),
    "openstack": ("keystoneauth1", "openstack", "os_traits"),
    "page": ("anyio", "starlette", "uvicorn"),
    "placement": ("numpy",),
    "zones": ("anyio", "cryptography", "fastapi", "httpx", "numpy", "uvicorn"),
}
"""The modules that each brings along."""
_COMPILED = "; it is compiled: libvirt-dev, pkg-config, gcc and python3-dev of Debian, or the like"


def require(extra: str) -> None:
    """Raise Refused, with what to install, unless the modules of an extra are there."""
    missing = [name for name in EXTRAS[extra] if not _is_there(name)]
    if missing:
        raise Refused(
            f"{extra} needs packages that are not installed: {', '.join(missing)}",
            remedy=_install(extra),
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package that it is in
        return False


def how_to_install(error: ImportError, driver: str = "") -> str:
    """Return what to install for a module that cannot be imported.

    :param driver: the one that needs it: where several extras have the module, that of its name.
    """
    module = (error.name or "").partition(".")[0]
    extras = [extra for extra, modules in EXTRAS.items() if module in modules]
    if not extras:
        return "pip install -U fabric-direct, with its dependencies"
    return _install(driver if driver in extras else extras[0])


def _install(extra: str) -> str:
    return f"pip install 'fabric-direct[{extra}]'{_COMPILED if extra == 'libvirt' else ''}"
