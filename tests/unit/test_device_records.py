"""What is written down of devices: twice, and what either says counts."""

import json
import socket
from pathlib import Path

import pytest

from fabric_direct.drivers.contract import DeviceRecord, VfSettings
from fabric_direct.drivers.hosts.agent import record_files
from fabric_direct.drivers.libvirt.passthrough import records as records_module
from fabric_direct.drivers.libvirt.passthrough.records import DeviceRecords
from fabric_direct.errors import Unreachable
from fabric_direct.model import PciAddress
from fabric_direct.site.config import Site
from tests.unit.processes import APART

DRIVE = PciAddress.parse("0000:04:00.0")
VF = PciAddress.parse("0000:01:10.0")


def a_record(address: PciAddress = DRIVE, **values: object) -> DeviceRecord:
    facts = {
        "type": "NVME",
        "model": "P4510",
        "sliver": "sliver-1",
        "component": "drive",
        "vendor": "1b36",
        "product": "0010",
    }
    return DeviceRecord(address, **facts | values)  # type: ignore[arg-type]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(site="TEST", state_dir=tmp_path / "state")


@pytest.fixture
def here(site: Site) -> Path:
    return site.state_dir / "devices/localhost"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the host, which is this machine, keeps its own records."""
    path = tmp_path / "host/devices"
    monkeypatch.setattr(records_module, "ON_HOST", str(path))
    return path


@pytest.fixture
def records(site: Site, there: Path) -> DeviceRecords:
    return DeviceRecords(site, "localhost")


def test_nothing_is_written_down_at_first(records: DeviceRecords) -> None:
    assert records.read() == {}


def test_a_record_is_kept_in_both_places_for_root_alone(
    records: DeviceRecords, here: Path, there: Path
) -> None:
    records.write(a_record())

    for place in (here, there):
        (file,) = place.iterdir()
        assert file.name == "0000:04:00.0.json"
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_record_is_read_as_it_was_written(records: DeviceRecords) -> None:
    baseline = VfSettings(mac="02:00:00:00:00:01", vlan=0, trust=False, max_tx_rate=0)
    record = a_record(VF, type="SharedNIC", model=None, baseline=baseline)
    records.write(record)

    assert records.read() == {VF: record}


def test_a_record_replaces_the_one_before(records: DeviceRecords) -> None:
    records.write(a_record())
    records.write(a_record(quarantined="it still holds data"))

    assert records.read() == {DRIVE: a_record(quarantined="it still holds data")}


def test_a_record_that_is_struck_is_gone_from_both_places(
    records: DeviceRecords, here: Path, there: Path
) -> None:
    records.write(a_record())
    records.remove(DRIVE)

    assert records.read() == {}
    assert [*here.iterdir(), *there.iterdir()] == []


def test_what_is_not_written_down_can_be_struck(records: DeviceRecords) -> None:
    records.remove(DRIVE)

    assert records.read() == {}


@pytest.mark.parametrize("lost", ["here", "there"])
def test_what_either_place_says_counts(
    records: DeviceRecords, lost: str, request: pytest.FixtureRequest
) -> None:
    records.write(a_record())
    (request.getfixturevalue(lost) / f"{DRIVE}.json").unlink()

    assert records.read() == {DRIVE: a_record()}


@pytest.mark.parametrize("place", ["here", "there"])
def test_what_is_quarantined_in_either_place_is(
    records: DeviceRecords, place: str, request: pytest.FixtureRequest
) -> None:
    records.write(a_record())
    file = request.getfixturevalue(place) / f"{DRIVE}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quarantined": "by hand"}))

    assert records.read()[DRIVE].quarantined == "by hand"


def test_where_they_differ_the_hosts_counts(records: DeviceRecords, there: Path) -> None:
    records.write(a_record())
    record_files.write(str(there), str(DRIVE), _text(records, a_record(sliver="sliver-2"), there))

    assert records.read()[DRIVE].sliver == "sliver-2"


def _text(records: DeviceRecords, record: DeviceRecord, there: Path) -> str:
    before = (there / f"{record.address}.json").read_text()
    records.write(record)
    text = (there / f"{record.address}.json").read_text()
    record_files.write(records._directory, str(record.address), before)
    return text


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"address": "0000:04:00.0"}', b'{"address": "0000:05:00.0"}'],
    ids=["empty", "cut off", "a list", "no text", "incomplete", "another's"],
)
def test_what_cannot_be_read_is_quarantined(
    records: DeviceRecords, there: Path, content: bytes
) -> None:
    there.mkdir(parents=True)
    (there / f"{DRIVE}.json").write_bytes(content)

    assert records.read()[DRIVE].quarantined == "its record on the host cannot be read"


def test_a_record_of_another_address_is_not_believed(records: DeviceRecords, there: Path) -> None:
    records.write(a_record(VF))
    (there / f"{VF}.json").rename(there / f"{DRIVE}.json")

    assert records.read()[DRIVE].quarantined == "its record on the host cannot be read"


def test_whose_it_is_is_still_told_if_the_other_record_can_be_read(
    records: DeviceRecords, there: Path
) -> None:
    records.write(a_record())
    (there / f"{DRIVE}.json").write_text("")

    found = records.read()[DRIVE]

    assert (found.sliver, found.quarantined) == (
        "sliver-1",
        "its record on the host cannot be read",
    )


def test_files_that_are_no_records_are_let_alone(records: DeviceRecords, there: Path) -> None:
    """Such as one of a writer that was killed, which begins with a dot."""
    there.mkdir(parents=True)
    for name in ("notes.json", f"{DRIVE}.txt", f".{DRIVE}.json.x1", f".{DRIVE}.json"):
        (there / name).write_text("{")

    assert records.read() == {}


def test_a_place_that_is_no_directory_is_not_taken_for_an_empty_one(
    records: DeviceRecords, there: Path
) -> None:
    there.parent.mkdir(parents=True)
    there.write_text("")

    with pytest.raises(Exception, match="ENOTDIR"):
        records.read()


def _write_many(site: Site, there: str, bus: int) -> None:
    records_module.ON_HOST = there
    for slot in range(16):
        DeviceRecords(site, "localhost").write(a_record(PciAddress(0, bus, slot, 0)))


def test_records_of_many_processes_are_all_kept(
    records: DeviceRecords, site: Site, there: Path
) -> None:
    writers = [APART.Process(target=_write_many, args=(site, str(there), bus)) for bus in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert len(records.read()) == 3 * 16


@pytest.fixture
def away(tmp_path: Path) -> Site:
    """A site whose host does not answer."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    hosts = {"worker1": {"ssh": f"ssh://root@127.0.0.1:{port}"}}
    return Site.model_validate({"site": "TEST", "state_dir": tmp_path / "state", "hosts": hosts})


def test_nothing_is_free_on_a_host_that_does_not_answer(away: Site) -> None:
    with pytest.raises(Unreachable):
        DeviceRecords(away, "worker1").read()


def test_a_record_is_written_on_the_host_or_not_at_all(away: Site) -> None:
    with pytest.raises(Unreachable):
        DeviceRecords(away, "worker1").write(a_record())
    assert record_files.read(str(away.state_dir / "devices/worker1")) == {}


def test_a_record_is_not_struck_while_the_host_does_not_answer(away: Site) -> None:
    directory = str(away.state_dir / "devices/worker1")
    record_files.write(directory, str(DRIVE), "{}")

    with pytest.raises(Unreachable):
        DeviceRecords(away, "worker1").remove(DRIVE)
    assert list(record_files.read(directory)) == [str(DRIVE)]


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "../../etc/passwd", "/etc/passwd"])
def test_a_name_cannot_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name"):
        record_files.write(str(tmp_path), name, "text")
    with pytest.raises(ValueError, match="is not a valid name"):
        record_files.remove(str(tmp_path), name)


class TestWhatIsOurs:
    """Another site that works with the host keeps its records there, too."""

    def test_a_record_on_the_host_alone_is_not(self, records: DeviceRecords, there: Path) -> None:
        records.write(a_record())
        theirs = json.loads(next(there.iterdir()).read_text()) | {"address": str(VF)}
        record_files.write(str(there), str(VF), json.dumps(theirs))

        assert records.read().keys() == {DRIVE, VF}
        assert [record.address for record in records.own()] == [DRIVE]

    def test_a_record_here_is_with_what_the_host_says_of_it(
        self, records: DeviceRecords, here: Path, there: Path
    ) -> None:
        records.write(a_record(quarantined="it was not erased"))
        name = next(here.iterdir()).name
        text = json.loads((here / name).read_text()) | {"quarantined": ""}
        (here / name).write_text(json.dumps(text))

        (record,) = records.own()

        assert record.quarantined == "it was not erased"
