"""The driver keeps the contract, and takes its settings from site.yaml."""

from pathlib import Path

import pytest
from volume_files import VolumeFiles

from fabric_direct import Site, load_site
from fabric_direct.drivers.contract import VolumeDriver
from fabric_direct.errors import DriverError, InvalidSite
from fabric_direct.testing import VolumeContract


@pytest.fixture
def site(tmp_path: Path) -> Site:
    settings = {"files": {"directory": str(tmp_path)}}
    drivers = {"VM": "fake", "Storage": "files"}
    return Site(site="test", state_dir=tmp_path, drivers=drivers, driver_settings=settings)


class TestVolumes(VolumeContract):
    @pytest.fixture
    def driver(self, site: Site) -> VolumeDriver:
        return VolumeFiles(site, "w1")

    @pytest.fixture
    def foreign(self) -> str:
        pytest.skip("a volume that is not ours is never attached")


def test_a_volume_is_a_sparse_file(site: Site, tmp_path: Path) -> None:
    VolumeFiles(site, "w1").create("vm-1", "data", 10)

    file = (tmp_path / "test" / "w1" / "vm-1.data").stat()
    assert file.st_size == 10 * 1024**3
    assert file.st_blocks == 0


def test_a_volume_of_another_site_is_left_alone(site: Site) -> None:
    other = VolumeFiles(site.model_copy(update={"site": "other"}), "w1")
    made = other.create("vm-1", "data", 1)

    driver = VolumeFiles(site, "w1")
    driver.delete("vm-1", "data")

    assert driver.stamped() == ()
    assert other.find("vm-1", "data") == made


def test_a_volume_whose_making_was_killed_is_named_and_completed(
    site: Site, tmp_path: Path
) -> None:
    half = tmp_path / "test" / "w1" / "vm-1.data"
    half.parent.mkdir(parents=True)
    half.touch()
    driver = VolumeFiles(site, "w1")

    assert driver.find("vm-1", "data") is None
    assert driver.leftovers("vm-1") == (str(half),)
    assert driver.create("vm-1", "data", 2).size == 2


def test_a_volume_that_is_deleted_meanwhile_is_left_out(site: Site, tmp_path: Path) -> None:
    driver = VolumeFiles(site, "w1")
    made = driver.create("vm-1", "data", 1)
    (tmp_path / "test" / "w1" / "vm-2.data").symlink_to("gone")

    assert driver.all_volumes() == (made,)


def test_what_the_system_says_is_an_error_of_the_library(site: Site, tmp_path: Path) -> None:
    (tmp_path / "test").touch()  # in the way

    with pytest.raises(DriverError, match="Not a directory"):
        VolumeFiles(site, "w1").create("vm-1", "data", 1)


def test_a_directory_that_is_not_there_is_refused(site: Site, tmp_path: Path) -> None:
    gone = {"files": {"directory": str(tmp_path / "gone")}}

    with pytest.raises(InvalidSite) as refused:
        VolumeFiles(site.model_copy(update={"driver_settings": gone}), "w1")

    assert refused.value.field == "driver_settings.files.directory"


def test_the_directory_is_relative_to_site_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for each in (folder / "volumes", elsewhere):
        each.mkdir(parents=True)
    (folder / "site.yaml").write_text(
        "site: test\n"
        "drivers: {VM: fake, Storage: files}\n"
        "driver_settings: {files: {directory: volumes}}\n"
    )
    monkeypatch.chdir(elsewhere)

    made = VolumeFiles(load_site("../here/site.yaml"), "w1").create("vm-1", "data", 1)

    assert Path(made.source).resolve() == folder / "volumes/test/w1/vm-1.data"
