"""Volumes and the pool that they are in: names, formats, and the exact calls of libvirt."""

from pathlib import Path
from unittest.mock import MagicMock, call
from uuid import UUID

import libvirt
import pytest
from lxml import etree
from pytest_mock import MockerFixture

from fabric_direct.calls.read_cache import reading_once
from fabric_direct.drivers.libvirt.storage.driver import LibvirtVolume
from fabric_direct.drivers.libvirt.storage.pool import GIB, Backing, OwnPool, owner
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.errors import InvalidSliver, NotFound, NotOurs, NotVerified
from fabric_direct.site.config import Site

SCHEMAS = Path("/usr/share/libvirt/schemas")


def native(code: int, message: str = "no") -> libvirt.libvirtError:
    error = libvirt.libvirtError(message)
    error.err = (code, 0, message, 2, "", "", "", 0, 0)
    return error


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(site="TEST", volume_pool=tmp_path)


@pytest.fixture
def store(site: Site) -> OwnPool:
    return OwnPool.of(site, "localhost")


@pytest.fixture
def connection(mocker: MockerFixture) -> MagicMock:
    connection = MagicMock()
    mocker.patch("fabric_direct.drivers.libvirt.storage.pool.connect", return_value=connection)
    mocker.patch("fabric_direct.drivers.libvirt.storage.pool._PATIENCE", 0.2)
    return connection


@pytest.fixture
def pool(connection: MagicMock, store: OwnPool) -> MagicMock:
    """Our pool, active."""
    pool = connection.storagePoolLookupByName.return_value
    pool.UUIDString.return_value = str(store.uuid)
    pool.XMLDesc.return_value = f"<pool><target><path>{store.path}</path></target></pool>"
    pool.isActive.return_value = True
    return pool


@pytest.fixture
def volumes(site: Site) -> LibvirtVolume:
    return LibvirtVolume(site, "localhost")


def volume(path: str, size: int = GIB, kind: str = "qcow2") -> MagicMock:
    found = MagicMock()
    found.XMLDesc.return_value = f"<volume><target><format type='{kind}'/></target></volume>"
    found.path.return_value = path
    found.info.return_value = [0, size, 0]
    return found


def schema_of(name: str) -> etree.RelaxNG:
    path = SCHEMAS / f"{name}.rng"
    if not path.exists():
        pytest.skip(f"needs libvirt's schema {path}")
    return etree.RelaxNG(etree.parse(path))


def test_the_pool_is_valid_libvirt_xml(store: OwnPool) -> None:
    xml = render("pool.xml.j2", name=store.name, uuid=store.uuid, path="/x/a & <b>")

    document = etree.fromstring(xml)

    schema_of("storagepool").assertValid(document)
    assert document.findtext("target/path") == "/x/a & <b>"


@pytest.mark.parametrize(
    ("kind", "capacity", "backing"),
    [
        ("qcow2", GIB, None),
        ("raw", 4096, None),
        ("qcow2", None, Backing("/images/a&b.img", "raw", 1)),
        ("qcow2", 3 * GIB, Backing("/images/x.qcow2", "qcow2", 1)),
    ],
)
def test_a_volume_is_valid_libvirt_xml(
    kind: str, capacity: int | None, backing: Backing | None
) -> None:
    values = {"format": kind, "capacity": capacity, "backing": backing}

    document = etree.fromstring(render("volume.xml.j2", name="s.root", **values))

    schema_of("storagevol").assertValid(document)
    assert document.findtext("backingStore/path") == (backing.path if backing else None)


@pytest.mark.parametrize(
    ("name", "sliver"),
    [
        ("s-1.root", "s-1"),
        ("s-1.seed", "s-1"),
        ("s-1.console", "s-1"),
        ("s-1.volume.root", "s-1"),
        ("root", None),
        ("data.qcow2", None),
        ("s-1", None),
    ],
)
def test_a_name_says_whose_it_is(name: str, sliver: str | None) -> None:
    assert owner(name) == sliver


def test_the_default_directory_has_the_plain_name() -> None:
    site = Site(site="TEST", state_dir=Path("/var/lib/fabric-direct"))

    assert OwnPool.of(site, "localhost").name == "fabric-direct"


def test_another_directory_has_a_name_and_uuid_of_its_own() -> None:
    one, other = (
        OwnPool.of(Site(site="TEST", volume_pool=Path(path)), "localhost") for path in ("/a", "/b")
    )

    assert one.name != other.name
    assert one.uuid != other.uuid
    assert one.name == f"fabric-direct-{one.uuid.hex[:8]}"


def test_the_pool_is_made_on_first_use(
    connection: MagicMock, store: OwnPool, mocker: MockerFixture
) -> None:
    connection.storagePoolLookupByName.side_effect = native(libvirt.VIR_ERR_NO_STORAGE_POOL)
    made = connection.storagePoolDefineXML.return_value
    made.isActive.return_value = False

    assert store.pool() is made

    xml = etree.fromstring(connection.storagePoolDefineXML.call_args.args[0])
    assert UUID(xml.findtext("uuid")) == store.uuid
    assert made.mock_calls == [
        call.isActive(),
        call.setAutostart(1),
        call.create(libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD),
    ]


def test_a_pool_that_another_thread_starts_meanwhile_is_taken(
    store: OwnPool, pool: MagicMock
) -> None:
    pool.isActive.side_effect = [False, False, True]
    pool.create.side_effect = native(libvirt.VIR_ERR_OPERATION_INVALID, "already active")

    assert store.pool() is pool


def test_a_pool_that_cannot_be_started_is_an_error(store: OwnPool, pool: MagicMock) -> None:
    pool.isActive.return_value = False
    pool.create.side_effect = native(libvirt.VIR_ERR_OPERATION_INVALID)

    with pytest.raises(libvirt.libvirtError):
        store.pool()


def test_a_pool_of_our_name_with_another_uuid_is_left_alone(
    store: OwnPool, pool: MagicMock
) -> None:
    pool.UUIDString.return_value = "11111111-2222-3333-4444-555555555555"

    with pytest.raises(NotOurs):
        store.pool()

    assert not pool.create.called
    assert not pool.setAutostart.called


def test_a_pool_of_our_name_with_another_directory_is_left_alone(
    store: OwnPool, pool: MagicMock
) -> None:
    pool.XMLDesc.return_value = "<pool><target><path>/elsewhere</path></target></pool>"

    with pytest.raises(NotOurs):
        store.find("x")


def test_a_directory_that_another_pool_has_is_left_alone(
    connection: MagicMock, store: OwnPool
) -> None:
    connection.storagePoolLookupByName.side_effect = native(libvirt.VIR_ERR_NO_STORAGE_POOL)
    connection.storagePoolDefineXML.side_effect = native(
        libvirt.VIR_ERR_OPERATION_FAILED, "Storage source conflict with pool: 'default'"
    )

    with pytest.raises(NotOurs, match="default"):
        store.pool()


def test_a_console_log_has_a_pool_of_its_own(store: OwnPool) -> None:
    console = store.console("s-1")

    assert console.path == store.path / "s-1.console"
    assert console.name == f"{store.name}.s-1.console"
    assert console.uuid != store.uuid


def test_a_pool_is_removed_with_its_files(store: OwnPool, pool: MagicMock) -> None:
    pool.listVolumes.return_value = ["log"]

    store.remove()

    pool.storageVolLookupByName.assert_called_once_with("log")
    pool.storageVolLookupByName.return_value.delete.assert_called_once_with(0)
    assert pool.mock_calls[-3:] == [call.destroy(), call.delete(0), call.undefine()]


def test_looking_makes_no_pool(
    connection: MagicMock, store: OwnPool, volumes: LibvirtVolume
) -> None:
    connection.storagePoolLookupByName.side_effect = native(libvirt.VIR_ERR_NO_STORAGE_POOL)

    assert volumes.find("s-1", "data") is None
    assert volumes.volumes("s-1") == ()
    assert volumes.leftovers("s-1") == ()

    connection.storagePoolDefineXML.assert_not_called()


def test_a_volume_is_made_as_qcow2_of_that_size(volumes: LibvirtVolume, pool: MagicMock) -> None:
    pool.createXML.return_value = volume("/pool/s-1.volume.data", 5 * GIB)

    made = volumes.create("s-1", "data", 5)

    xml = etree.fromstring(pool.createXML.call_args.args[0])
    assert xml.findtext("name") == "s-1.volume.data"
    assert xml.findtext("capacity") == str(5 * GIB)
    assert xml.find("target/format").get("type") == "qcow2"
    assert (made.sliver, made.component, made.size) == ("s-1", "data", 5)


def test_a_volume_that_is_there_is_taken(volumes: LibvirtVolume, pool: MagicMock) -> None:
    pool.createXML.side_effect = native(libvirt.VIR_ERR_STORAGE_VOL_EXIST)
    pool.storageVolLookupByName.return_value = volume("/pool/s-1.volume.data")

    assert volumes.create("s-1", "data", 1).source == "/pool/s-1.volume.data"


def test_a_volume_that_is_there_with_another_size_is_told(
    volumes: LibvirtVolume, pool: MagicMock
) -> None:
    pool.createXML.side_effect = native(libvirt.VIR_ERR_STORAGE_VOL_EXIST)
    pool.storageVolLookupByName.return_value = volume("/pool/s-1.volume.data", 2 * GIB)

    with pytest.raises(NotVerified, match="2 GiB"):
        volumes.create("s-1", "data", 1)


def test_deleting_what_is_absent_succeeds(volumes: LibvirtVolume, pool: MagicMock) -> None:
    pool.storageVolLookupByName.side_effect = native(libvirt.VIR_ERR_NO_STORAGE_VOL)

    volumes.delete("s-1", "data")


def test_deleting_waits_until_the_volume_is_free(
    volumes: LibvirtVolume, pool: MagicMock, mocker: MockerFixture
) -> None:
    again = mocker.patch("fabric_direct.drivers.libvirt.storage.pool.trying_again")
    found = pool.storageVolLookupByName.return_value
    found.delete.side_effect = [native(libvirt.VIR_ERR_OPERATION_INVALID, "in use"), None]

    volumes.delete("s-1", "data")

    assert found.delete.call_count == 2
    again.assert_called_once_with()


def test_only_the_slivers_own_volumes_are_listed(volumes: LibvirtVolume, pool: MagicMock) -> None:
    pool.listVolumes.return_value = ["s-1.volume.a", "s-1.root", "s-11.volume.b", "s-1", "data"]
    pool.storageVolLookupByName.side_effect = lambda name: volume(f"/pool/{name}")

    assert [v.component for v in volumes.volumes("s-1")] == ["a"]
    assert volumes.leftovers("s-1") == (f"volume {volumes._store.path}/s-1.volume.a",)


def test_a_present_volume_is_found_once_it_was_put_there(
    volumes: LibvirtVolume, pool: MagicMock
) -> None:
    pool.storageVolLookupByName.side_effect = [
        native(libvirt.VIR_ERR_NO_STORAGE_VOL),
        volume("/pool/archive", GIB + 1),
    ]
    pool.listVolumes.return_value = ["archive"]

    found = volumes.existing("archive")

    assert (found.sliver, found.source, found.size) == ("", "/pool/archive", 2)
    pool.refresh.assert_called_once_with(0)


def test_a_raw_volume_is_no_present_volume(volumes: LibvirtVolume, pool: MagicMock) -> None:
    pool.storageVolLookupByName.return_value = volume("/pool/archive", kind="raw")

    with pytest.raises(InvalidSliver, match="not qcow2"):
        volumes.check("archive")


@pytest.mark.parametrize("name", ["s-1.root", "s-1.volume.data", "s-1.seed", "probe.0123"])
def test_a_slivers_own_disk_is_no_present_volume(
    volumes: LibvirtVolume, pool: MagicMock, name: str
) -> None:
    with pytest.raises(NotFound):
        volumes.existing(name)


def test_a_missing_volume_is_refused_with_its_field(
    volumes: LibvirtVolume, pool: MagicMock
) -> None:
    pool.storageVolLookupByName.side_effect = native(libvirt.VIR_ERR_NO_STORAGE_VOL)
    pool.listVolumes.return_value = []

    with pytest.raises(InvalidSliver) as refused:
        volumes.check("nix")

    assert refused.value.field == "volume"


def test_uploaded_bytes_replace_what_was_there(store: OwnPool, pool: MagicMock) -> None:
    old, new = pool.storageVolLookupByName.return_value, pool.createXML.return_value
    stream = new.connect.return_value.newStream.return_value
    stream.send.side_effect = [3, 2]

    store.upload("s-1.seed", b"12345")

    old.delete.assert_called_once_with(0)
    new.upload.assert_called_once_with(stream, 0, 5)
    assert stream.mock_calls == [call.send(b"12345"), call.send(b"45"), call.finish()]


def test_an_upload_that_breaks_is_aborted(store: OwnPool, pool: MagicMock) -> None:
    stream = pool.createXML.return_value.connect.return_value.newStream.return_value
    stream.send.side_effect = native(libvirt.VIR_ERR_RPC)

    with pytest.raises(libvirt.libvirtError):
        store.upload("s-1.seed", b"12345")

    stream.abort.assert_called_once_with()


def test_an_image_is_looked_at_through_an_overlay_that_goes_again(
    store: OwnPool, pool: MagicMock
) -> None:
    pool.createXML.return_value.info.return_value = [0, 7 * GIB, 0]

    assert store.backing("/images/x") == Backing("/images/x", "qcow2", 7 * GIB)

    pool.createXML.return_value.delete.assert_called_once_with(0)


def test_an_image_that_is_not_qcow2_is_raw(store: OwnPool, pool: MagicMock) -> None:
    found = volume("probe", GIB)
    pool.createXML.side_effect = [native(libvirt.VIR_ERR_INTERNAL_ERROR), found]

    assert store.backing("/images/x") == Backing("/images/x", "raw", GIB)


def test_a_missing_image_is_refused_with_its_field(store: OwnPool, pool: MagicMock) -> None:
    pool.createXML.side_effect = native(libvirt.VIR_ERR_SYSTEM_ERROR, "No such file")

    with pytest.raises(InvalidSliver, match="No such file") as refused:
        store.backing("/images/x")

    assert refused.value.field == "image"


def test_a_lost_connection_is_not_taken_for_a_bad_image(store: OwnPool, pool: MagicMock) -> None:
    error = native(libvirt.VIR_ERR_INTERNAL_ERROR, "client socket is closed")
    error.err = (libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_FROM_RPC, *error.err[2:])
    pool.createXML.side_effect = error

    with pytest.raises(libvirt.libvirtError):
        store.backing("/images/x")


def test_a_plan_asks_for_the_pool_and_what_is_in_it_once(
    volumes: LibvirtVolume, pool: MagicMock, connection: MagicMock
) -> None:
    pool.listVolumes.return_value = ["s1.volume.data"]
    pool.storageVolLookupByName.return_value = volume("/x/s1.volume.data")

    with reading_once():
        for _ in range(2):
            assert [each.component for each in volumes.volumes("s1")] == ["data"]
            assert volumes.leftovers("s1") != ()

    assert connection.storagePoolLookupByName.call_count == 1
    assert pool.refresh.call_count == 1
