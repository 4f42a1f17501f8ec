"""What is installed: handlers and drivers, of this package and of others, by their entry points.

A kind is the last part of a group: ``volume`` of ``fabric_direct.volume``. A process reads once what is
installed; a module is imported when something of it is loaded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fabric_direct.errors import FabricDirectError, InvalidSite
from fabric_direct.site.extras import how_to_install

_OURS = "fabric-direct"
_MOST = 300
"""Characters of an error of others that are repeated."""


@cache
def names(kind: str) -> tuple[str, ...]:
    """Return the names of what is installed of a kind, sorted."""
    return tuple(sorted(_installed().select(group=f"fabric_direct.{kind}").names))


def load(kind: str, name: str, field: str = "") -> Any:
    """Return what an entry point names; its module is imported now if it was not before.

    :param name: one of :func:`names`.
    :param field: of site.yaml, which names it.
    :raises InvalidSite: if it cannot be loaded, whatever its module raises, or several packages
        provide it.
    """
    point = _only(kind, name, field)
    with blaming("load", kind, name, field, passing=(KeyboardInterrupt,)):
        return _loaded(point)


@contextmanager
def blaming(
    verb: str,
    kind: str,
    name: str,
    field: str = "",
    passing: tuple[type[BaseException], ...] = (FabricDirectError, KeyboardInterrupt),
) -> Iterator[None]:
    """Turn what the code of a package raises into an error that names package and entry point.

    :param verb: what is done, as in *cannot* ``load``.
    :param passing: what is raised as it is.
    :raises InvalidSite: instead of SystemExit, too, which would end the thread that it is raised in.
    """
    try:
        yield
    except passing:
        raise
    except BaseException as error:
        raise InvalidSite(
            f"cannot {verb} {described(kind, name)}",
            field=field,
            why=_said(error),
            remedy=_remedy(kind, name, error),
        ) from error


def described(kind: str, name: str) -> str:
    """Return how messages name what is installed, with its package and entry point."""
    return f"the {_what(kind)} {name!r} of {_origin(_only(kind, name))}"


@cache
def _installed() -> Any:
    """Return the entry points of all packages; cached because reading them is slow."""
    return entry_points()


@cache
def _points(kind: str, name: str) -> tuple[EntryPoint, ...]:
    return tuple(_installed().select(group=f"fabric_direct.{kind}", name=name))


@cache
def _loaded(point: EntryPoint) -> Any:
    return point.load()


def _only(kind: str, name: str, field: str = "") -> EntryPoint:
    """Return the entry point of that name.

    :raises InvalidSite: if several packages have one. Of a package that is found twice, Python counts
        the first.
    """
    points = _points(kind, name)
    if len(points) > 1:
        raise InvalidSite(
            f"several packages provide the {_what(kind)} {name!r}",
            field=field,
            why="; ".join(sorted(map(_origin, points))),
            remedy="uninstall all but one",
        )
    return points[0]


def _what(kind: str) -> str:
    return "handler" if kind == "handlers" else f"{kind} driver"


def _origin(point: EntryPoint) -> str:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
    return f"{package}, entry point {point.name} = {point.value}"


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_MOST].removesuffix(": ")


def _remedy(kind: str, name: str, error: BaseException) -> str:
    dist = _only(kind, name).dist
    if isinstance(error, ImportError) and dist and dist.name == _OURS:
        return how_to_install(error, name)
    return "repair or uninstall the package"
