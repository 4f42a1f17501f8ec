"""Our storage pool and its volumes on a real libvirtd."""

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import libvirt
import pytest

from fabric_direct.calls.read_cache import reading_once
from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.libvirt.storage.driver import LibvirtVolume
from fabric_direct.drivers.libvirt.storage.pool import GIB, OwnPool
from fabric_direct.errors import InvalidSliver, NotFound, NotOurs
from fabric_direct.site.config import Site
from tests.limits import PATIENT

SLIVER = "fdtest-s1"


@pytest.fixture
def site(connection: libvirt.virConnect) -> Iterator[Site]:
    """A site whose pool is made by the test, if at all."""
    directory = Path(tempfile.mkdtemp(prefix="fdtest-", dir="/var/tmp"))
    directory.chmod(0o711)
    site = Site(site="TEST", volume_pool=directory / "volumes", limits=PATIENT)
    yield site
    remove_pool(connection, OwnPool.of(site, "localhost").name)
    shutil.rmtree(directory)


def remove_pool(connection: libvirt.virConnect, name: str) -> None:
    for pool in connection.listAllStoragePools():
        if pool.name() == name:
            if pool.isActive():
                pool.destroy()
            pool.undefine()


@pytest.fixture
def store(site: Site) -> OwnPool:
    return OwnPool.of(site, "localhost")


@pytest.fixture
def volumes(site: Site) -> LibvirtVolume:
    return LibvirtVolume(site, "localhost")


def make_volume(site: Site, component: str) -> Volume:
    return LibvirtVolume(site, "localhost").create(SLIVER, component, 1)


def test_looking_makes_no_pool(volumes: LibvirtVolume, store: OwnPool) -> None:
    assert volumes.find(SLIVER, "data") is None
    assert volumes.leftovers(SLIVER) == ()

    assert not store.path.exists()


def test_the_pool_starts_with_the_host(store: OwnPool) -> None:
    pool = store.pool()

    assert pool.isActive()
    assert pool.isPersistent()
    assert pool.autostart()
    assert pool.UUIDString() == str(store.uuid)


def test_a_pool_that_is_only_defined_is_started(store: OwnPool) -> None:
    store._define_pool()

    assert store.pool().isActive()


def test_a_stopped_pool_does_not_hide_what_is_in_it(volumes: LibvirtVolume, store: OwnPool) -> None:
    volumes.create(SLIVER, "data", 1)
    store.pool().destroy()

    assert volumes.find(SLIVER, "data") is not None


def test_threads_that_make_the_pool_at_once_all_get_it(site: Site) -> None:
    gate = threading.Barrier(8)

    def make(number: int) -> str:
        gate.wait()
        return make_volume(site, f"v{number}").source

    with ThreadPoolExecutor(8) as threads:
        sources = list(threads.map(make, range(8)))

    assert len(set(sources)) == 8
    assert all(Path(source).exists() for source in sources)


def test_processes_that_make_the_pool_at_once_all_get_it(site: Site) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as processes:
        made = [processes.submit(make_volume, site, f"v{number}") for number in range(6)]

    assert len({future.result().source for future in made}) == 6


def test_a_foreign_pool_of_our_name_stays_untouched(
    connection: libvirt.virConnect, store: OwnPool, volumes: LibvirtVolume, tmp_path: Path
) -> None:
    foreign = connection.storagePoolDefineXML(
        f"<pool type='dir'><name>{store.name}</name><target><path>{tmp_path}</path></target></pool>"
    )
    before = foreign.XMLDesc()

    with pytest.raises(NotOurs):
        volumes.create(SLIVER, "data", 1)

    assert foreign.XMLDesc() == before
    assert not foreign.isActive()
    assert not store.path.exists()


def test_a_foreign_pool_of_our_directory_stays_untouched(
    connection: libvirt.virConnect, store: OwnPool, volumes: LibvirtVolume
) -> None:
    name = f"fdtest-{store.name}"
    foreign = connection.storagePoolDefineXML(
        f"<pool type='dir'><name>{name}</name><target><path>{store.path}</path></target></pool>"
    )
    try:
        with pytest.raises(NotOurs, match=name):
            volumes.create(SLIVER, "data", 1)
        assert not foreign.isActive()
    finally:
        remove_pool(connection, name)


def test_a_volume_is_made_once(volumes: LibvirtVolume) -> None:
    one, other = (volumes.create(SLIVER, "data", 2) for _ in range(2))

    assert one == other == volumes.find(SLIVER, "data")
    assert one.size == 2
    assert Path(one.source).read_bytes().startswith(b"QFI\xfb")


def test_a_volume_is_deleted_once_and_twice(volumes: LibvirtVolume) -> None:
    made = volumes.create(SLIVER, "data", 1)

    for _ in range(2):
        volumes.delete(SLIVER, "data")

    assert not Path(made.source).exists()
    assert volumes.find(SLIVER, "data") is None
    assert volumes.leftovers(SLIVER) == ()


def test_slivers_with_like_names_keep_their_own_volumes(volumes: LibvirtVolume) -> None:
    volumes.create("fdtest-a", "b-c", 1)
    volumes.create("fdtest-a-b", "c", 1)

    assert [v.component for v in volumes.volumes("fdtest-a")] == ["b-c"]
    assert [v.component for v in volumes.volumes("fdtest-a-b")] == ["c"]
    assert len(volumes.leftovers("fdtest-a")) == 1


def put(path: Path, kind: str) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", kind, path, "1G"], check=True)


def test_a_file_that_the_operator_puts_there_is_a_present_volume(
    volumes: LibvirtVolume, store: OwnPool
) -> None:
    store.pool()
    put(store.path / "archive", "qcow2")

    volumes.check("archive")
    found = volumes.existing("archive")

    assert found == Volume("", "", str(store.path / "archive"), 1)


def test_a_raw_file_is_no_present_volume(volumes: LibvirtVolume, store: OwnPool) -> None:
    store.pool()
    put(store.path / "archive", "raw")

    with pytest.raises(InvalidSliver, match="not qcow2"):
        volumes.check("archive")


def test_a_present_volume_stays_when_slivers_go(volumes: LibvirtVolume, store: OwnPool) -> None:
    store.pool()
    put(store.path / "archive", "qcow2")

    volumes.delete(SLIVER, "archive")

    assert volumes.existing("archive").source == str(store.path / "archive")
    assert volumes.volumes(SLIVER) == ()


def test_a_slivers_disk_cannot_be_had_as_a_present_volume(volumes: LibvirtVolume) -> None:
    volumes.create(SLIVER, "data", 1)

    with pytest.raises(NotFound):
        volumes.existing(f"{SLIVER}.volume.data")
    with pytest.raises(InvalidSliver):
        volumes.check("nobody-put-it-there")


def test_uploaded_bytes_are_in_the_file(store: OwnPool) -> None:
    for content in (b"first" * 100_000, b"second"):
        volume = store.upload(f"{SLIVER}.seed", content)

    assert Path(volume.path()).read_bytes() == b"second"


@pytest.fixture
def console(store: OwnPool, connection: libvirt.virConnect) -> Iterator[OwnPool]:
    store.pool()
    console = store.console(SLIVER)
    console.pool()
    yield console
    remove_pool(connection, console.name)


def test_the_tail_of_a_growing_file_is_read(console: OwnPool) -> None:
    log = console.path / "log"

    log.write_bytes(b"x" * 1000)
    first = console.tail("log", 10)
    log.write_bytes(b"x" * 1000 + b"the end")

    assert first == b"x" * 10
    assert console.tail("log", 10) == b"xxxthe end"
    assert console.tail("absent", 10) == b""


def test_a_header_that_a_guest_forged_in_its_console_harms_no_other_volume(
    console: OwnPool, store: OwnPool, volumes: LibvirtVolume
) -> None:
    made = volumes.create(SLIVER, "data", 1)
    forged = b"QFI\xfb" + bytes(3) + b"\x03" + bytes(16) + b"\x00\x00\x40" + bytes(60)
    (console.path / "log").write_bytes(forged)

    with pytest.raises(libvirt.libvirtError):
        console.pool().refresh()

    assert store.names() == (f"{SLIVER}.console", f"{SLIVER}.volume.data")
    assert volumes.find(SLIVER, "data") == made


def test_a_pool_is_removed_with_its_files_and_directory(console: OwnPool) -> None:
    (console.path / "log").write_bytes(b"text")

    for _ in range(2):
        console.remove()

    assert not console.path.exists()
    assert not console.is_there()


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_an_image_is_looked_at_and_nothing_is_left(store: OwnPool, kind: str, site: Site) -> None:
    store.create("image", 3 * GIB, kind=kind)

    found = store.backing(store.file("image"))

    assert (found.format, found.size) == (kind, 3 * GIB)
    assert store.names() == ("image",)


def test_a_plan_that_makes_the_pool_for_an_image_finds_what_is_in_it(
    volumes: LibvirtVolume, store: OwnPool, tmp_path: Path
) -> None:
    store.path.mkdir()
    put(store.path / "archive", "qcow2")
    image = store.path.parent / "image"
    put(image, "qcow2")

    with reading_once():
        assert volumes.volumes(SLIVER) == ()  # there is no pool yet
        store.backing(str(image))
        volumes.check("archive")


def test_what_is_no_image_is_refused(store: OwnPool, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InvalidSliver) as refused:
            store.backing(str(path))
        assert refused.value.field == "image"

    assert store.names() == ()
