"""The actor's site and its processor, one for each process, within the actor's time limit."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fabric_direct.calls import forks
from fabric_direct.errors import InvalidSite
from fabric_direct.model import Operation
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Limits, Site, load_site

CONFIG = "config.properties.file"
# The share of the actor's limit that is kept for starting and answering.
MARGIN = 0.05
_OPERATIONS = ("create", "modify", "delete", "poa")


@dataclass(frozen=True, slots=True)
class ActorLimits:
    """The parts of the actor's limit, in seconds."""

    site: Site
    total: float
    """A whole operation."""
    busy: float
    undo: float
    operation: float
    """The operation itself, without waiting for its turn and without undoing."""

    def cut(self, operation: Operation) -> bool:
        """Return whether the actor's limit is shorter than the site's own for this operation."""
        return bool(getattr(self.site.limits, operation.value) >= self.operation)

    @property
    def sentence(self) -> str:
        """A sentence for the error message."""
        return (
            f"it had {self.operation:.0f} s of the actor's limit of {self.site.actor.limit:.0f} s"
            " (site.yaml: actor.limit)"
        )


_processors: dict[Path, tuple[int, HandlerProcessor]] = {}
_lock = forks.Lock()


def processor_of(properties: dict[str, Any] | None) -> HandlerProcessor:
    """Return this process's processor for the site that a handler's properties name.

    When the file has changed, a new one is made; the former one finishes what it has begun.

    :raises InvalidSite: if no file is named, it cannot be read, or the state cannot be kept.
    """
    named = (properties or {}).get(CONFIG)
    if not named:
        raise InvalidSite("is missing", field=CONFIG, remedy="name site.yaml in the properties")
    path = Path(str(named))
    with _lock:
        changed = _changed(path)
        known = _processors.get(path)
        if known is None or known[0] != changed:
            _processors[path] = (changed, HandlerProcessor(_loaded(path)))
        return _processors[path][1]


def actor_limits(site: Site) -> ActorLimits:
    """Divide the actor's limit among the parts of an operation.

    A creation may be undone twice: by its steps, and by what is removed after them.
    """
    total = site.actor.limit * (1 - MARGIN)
    busy, undo = min(site.limits.busy, total / 10), min(site.limits.undo, total / 5)
    return ActorLimits(site, total, busy, undo, total - busy - 2 * undo)


def bounded(site: Site) -> Site:
    """Return the site with limits that end each operation and its undoing before the actor's."""
    has = actor_limits(site)
    cut = {name: min(getattr(site.limits, name), has.operation) for name in _OPERATIONS}
    values: dict[str, float] = {**site.limits.model_dump(), **cut}
    values |= {"busy": has.busy, "undo": has.undo}
    return site.model_copy(update={"limits": Limits(**values)})


def _loaded(path: Path) -> Site:
    site = bounded(load_site(path))
    _refuse_unusable(site.state_dir)
    return site


def _refuse_unusable(directory: Path) -> None:
    """Raise InvalidSite unless files can be made in the directory, which is made if it is not there."""
    try:
        # With the usual mode: QEMU's user has to get through to the volumes in it.
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise InvalidSite(
            "cannot be used",
            field="state_dir",
            where=str(directory),
            why=error.strerror or "",
            remedy="name a directory in site.yaml that this user may write to",
        ) from error


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise InvalidSite(f"cannot read {path}", why=error.strerror or "") from error
