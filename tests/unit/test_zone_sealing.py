"""Sealed blobs: of use to their own zone, for their purpose, until their end, and to nobody else."""

import base64
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_direct.errors import Conflict, InvalidSite
from fabric_direct.zones.sealing import Seal, seal_of

KEY, OTHER = (base64.urlsafe_b64encode(bytes([byte]) * 32) for byte in (1, 2))
VALUE = ["host-7.example", {"gpu": ["0000:25:00.0"]}]


def test_the_zone_that_sealed_a_value_gets_it_back() -> None:
    seal = Seal([KEY])

    assert seal.open(seal.seal(VALUE, "offer", 60), "offer") == VALUE


def test_nobody_else_can_read_it() -> None:
    blob = Seal([KEY]).seal(VALUE, "offer", 60)

    assert b"host-7" not in base64.urlsafe_b64decode(blob)


@given(st.data())
def test_one_that_was_altered_anywhere_is_refused(data: st.DataObject) -> None:
    raw = bytearray(base64.urlsafe_b64decode(Seal([KEY]).seal(VALUE, "offer", 60)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(Conflict, match="not this zone's, or was altered"):
        Seal([KEY]).open(base64.urlsafe_b64encode(raw).decode(), "offer")


@pytest.mark.parametrize("blob", ["", "x", "gAAAA", "=" * 100, "A" * 16_384, "\ud800", "ä"])
def test_what_is_no_blob_is_refused(blob: str) -> None:
    with pytest.raises(Conflict, match="not this zone's"):
        Seal([KEY]).open(blob, "offer")


def test_another_zones_is_refused() -> None:
    with pytest.raises(Conflict, match="not this zone's"):
        Seal([OTHER]).open(Seal([KEY]).seal(VALUE, "offer", 60), "offer")


def test_one_for_another_purpose_is_refused() -> None:
    with pytest.raises(Conflict, match="not this zone's"):
        Seal([KEY]).open(Seal([KEY]).seal(VALUE, "offer", 60), "place")


def test_an_expired_one_is_refused() -> None:
    blob = Seal([KEY]).seal(VALUE, "offer", 60)
    later = Seal([KEY], clock=lambda: time.time() + 60)

    with pytest.raises(Conflict, match="the offer is expired"):
        later.open(blob, "offer")


def test_the_refusal_does_not_tell_what_was_sealed() -> None:
    blob = Seal([KEY]).seal(VALUE, "offer", -1)

    with pytest.raises(Conflict) as refused:
        Seal([KEY]).open(blob, "offer")

    assert "host-7" not in repr(refused.value.__dict__)


def test_a_blob_in_a_blob_is_hardly_longer() -> None:
    seal = Seal([KEY])
    inner = seal.seal(["x" * 16, *map(str, range(200))], "offer", 60)

    assert len(seal.seal(["child", "kind", inner], "offer", 60)) < len(inner) + 250


class TestTheKey:
    def test_is_made_once_for_its_owner_alone(self, tmp_path: Path) -> None:
        blob = seal_of(tmp_path).seal(VALUE, "offer", 60)
        path = tmp_path / "zone" / "key"

        assert seal_of(tmp_path).open(blob, "offer") == VALUE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [p.name for p in path.parent.iterdir()] == ["key"]

    def test_is_the_same_for_all_that_make_it_at_once(self, tmp_path: Path) -> None:
        meeting = Barrier(8)

        def make(_: int) -> Seal:
            meeting.wait()
            return seal_of(tmp_path)

        with ThreadPoolExecutor(8) as pool:
            seals = list(pool.map(make, range(8)))

        assert all(s.open(seals[0].seal(1, "offer", 60), "offer") == 1 for s in seals)

    def test_is_changed_by_putting_a_new_one_first(self, tmp_path: Path) -> None:
        old = seal_of(tmp_path).seal(VALUE, "offer", 60)
        path = tmp_path / "zone" / "key"
        path.write_bytes(OTHER + b"\n" + path.read_bytes())
        new = seal_of(tmp_path).seal(VALUE, "offer", 60)

        assert seal_of(tmp_path).open(old, "offer") == VALUE
        assert Seal([OTHER]).open(new, "offer") == VALUE

    @pytest.mark.parametrize("content", [b"", b"no key\n", KEY + b"\nno key\n"])
    def test_that_is_none_is_refused_and_not_told(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "zone").mkdir()
        (tmp_path / "zone" / "key").write_bytes(content)

        with pytest.raises(InvalidSite, match="cannot read the zone's key") as refused:
            seal_of(tmp_path)

        assert KEY.decode() not in str(refused.value)

    def test_that_cannot_be_read_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "zone" / "key").mkdir(parents=True)

        with pytest.raises(InvalidSite, match="cannot read the zone's key"):
            seal_of(tmp_path)


def test_a_key_that_another_user_planted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_of(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    if os.getuid() == 0:
        os.chown(tmp_path / "zone" / "key", 4712, -1)

    with pytest.raises(InvalidSite, match="another user's"):
        seal_of(tmp_path)


def test_a_link_to_nowhere_in_the_keys_place_is_refused_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "zone").mkdir()
    (tmp_path / "zone" / "key").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(InvalidSite):
        seal_of(tmp_path)

    assert not (tmp_path / "elsewhere").exists()
