"""Data volumes as sparse files: ``<directory>/<site>/<host>/<sliver>.<component>``."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict
from pydantic.types import PathType

from fabric_direct import Site
from fabric_direct.drivers.contract import ListedVolumes, LocalPath, Volume
from fabric_direct.errors import DriverError

GIB = 1024**3


class Settings(BaseModel):
    """What site.yaml says below ``driver_settings.files``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    directory: Annotated[LocalPath, PathType("dir")]
    """Where the files are; nobody else uses it."""


class VolumeFiles(ListedVolumes):
    """A driver whose volumes are files."""

    settings_model = Settings

    def __init__(self, site: Site, host: str) -> None:
        self._folder = site.settings_of("files", Settings).directory / site.site / host

    def all_volumes(self) -> tuple[Volume, ...]:
        return tuple(v for file in sorted(self._folder.glob("*.*")) for v in _volume(file))

    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        with self._file("make", sliver_id, component) as path:
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                if file.tell() == 0:  # new, or half made by a process that was killed
                    file.truncate(size * GIB)
        return self.verified(sliver_id, component, size)

    def delete(self, sliver_id: str, component: str) -> None:
        with self._file("delete", sliver_id, component) as path:
            path.unlink(missing_ok=True)

    @contextmanager
    def _file(self, verb: str, sliver_id: str, component: str) -> Iterator[Path]:
        path = self._folder / f"{sliver_id}.{component}"  # neither has a dot
        try:
            yield path
        except OSError as error:
            raise DriverError(f"cannot {verb} a volume", where=str(path), why=str(error)) from error


def _volume(file: Path) -> Iterator[Volume]:
    sliver, _, component = file.name.partition(".")
    with suppress(FileNotFoundError):  # another thread has deleted it meanwhile
        yield Volume(sliver, component, str(file), file.stat().st_size // GIB)
