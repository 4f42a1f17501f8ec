"""Data volumes as sparse files: ``<directory>/<site>/<host>/<sliver>.<component>``."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, DirectoryPath

from fabric_direct import Site
from fabric_direct.drivers.contract import Stamped, Volume
from fabric_direct.drivers.contract.site_checks import verify_size
from fabric_direct.errors import DriverError, InvalidSliver, NotFound

GIB = 1024**3


class Settings(BaseModel):
    """What site.yaml says below ``driver_settings.files``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    directory: DirectoryPath
    """Where the files are; nobody else uses it."""


class VolumeFiles:
    """A :class:`~fabric_direct.drivers.contract.VolumeDriver` whose volumes are files."""

    settings_model = Settings

    def __init__(self, site: Site, host: str) -> None:
        self._host = host
        self._folder = site.settings_of("files", Settings).directory / site.site / host

    def check(self, name: str) -> None:
        raise InvalidSliver(f"no volume {name!r}", field="volume", why="files are made, not found")

    def existing(self, name: str) -> Volume:
        raise NotFound(f"no volume {name!r}", where=self._host)

    def find(self, sliver_id: str, component: str) -> Volume | None:
        found = _read(self._path(sliver_id, component))
        return found if found and found.size else None  # one without a size is half made

    def volumes(self, sliver_id: str) -> tuple[Volume, ...]:
        return self._like(f"{sliver_id}.*")

    def all_volumes(self) -> tuple[Volume, ...]:
        return self._like("*.*")

    def stamped(self) -> tuple[Stamped, ...]:
        return tuple(Stamped(v.sliver, "volume", v.source) for v in self.all_volumes())

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        return tuple(v.source for v in self.volumes(sliver_id))

    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        path = self._path(sliver_id, component)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                if file.tell() == 0:  # new, or half made by a process that was killed
                    file.truncate(size * GIB)
            volume = _volume(path)
        except OSError as error:
            raise DriverError("cannot make a volume", where=str(path), why=str(error)) from error
        verify_size(volume, size, self._host)
        return volume

    def delete(self, sliver_id: str, component: str) -> None:
        path = self._path(sliver_id, component)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise DriverError("cannot delete a volume", where=str(path), why=str(error)) from error

    def _path(self, sliver_id: str, component: str) -> Path:
        return self._folder / f"{sliver_id}.{component}"  # neither has a dot

    def _like(self, pattern: str) -> tuple[Volume, ...]:
        found = map(_read, sorted(self._folder.glob(pattern)))
        return tuple(volume for volume in found if volume)


def _read(path: Path) -> Volume | None:
    try:
        return _volume(path)
    except FileNotFoundError:  # not there, or deleted by another thread meanwhile
        return None


def _volume(path: Path) -> Volume:
    sliver, _, component = path.name.partition(".")
    return Volume(sliver, component, str(path), path.stat().st_size // GIB)
