"""Signatures of requests: of these texts alone, by a key of the file."""

from pathlib import Path

import pytest

from fabric_direct.errors import InvalidSite
from fabric_direct.operations.signatures import RequestKeys

OLD, NEW = "1" * 32, "2" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "conductors.key"
    path.write_text(f"{OLD}\n{NEW}\n")
    path.chmod(0o640)
    return path


def test_each_key_of_the_file_is_accepted(path: Path) -> None:
    before = RequestKeys(path).sign("id", "request")
    path.write_text(f"{NEW}\n{OLD}\n")
    after = RequestKeys(path).sign("id", "request")

    assert before != after
    assert RequestKeys(path).accept(before, "id", "request")
    assert RequestKeys(path).accept(after, "id", "request")


def test_a_key_that_was_removed_is_not(path: Path) -> None:
    signature = RequestKeys(path).sign("id", "request")
    path.write_text(NEW)

    assert not RequestKeys(path).accept(signature, "id", "request")


@pytest.mark.parametrize("texts", [("other", "request"), ("idr", "equest"), ("request", "id")])
def test_other_texts_are_not(path: Path, texts: tuple[str, ...]) -> None:
    assert not RequestKeys(path).accept(RequestKeys(path).sign("id", "request"), *texts)


@pytest.mark.parametrize("signature", ["", "é", "\udcff", "0" * 64])
def test_what_is_no_signature_is_not(path: Path, signature: str) -> None:
    assert not RequestKeys(path).accept(signature, "id", "request")


def test_everything_is_accepted_without_a_file() -> None:
    assert RequestKeys(None).sign("id") == ""
    assert RequestKeys(None).accept("", "id")


@pytest.mark.parametrize("text", ["", "\n", "short", f"{OLD}\nshort"])
def test_a_file_without_keys_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(InvalidSite, match="must have a key of at least 32 characters"):
        RequestKeys(path)


def test_a_file_that_others_may_read_is_refused(path: Path) -> None:
    path.chmod(0o644)
    with pytest.raises(InvalidSite, match="others may read"):
        RequestKeys(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSite, match="cannot read"):
        RequestKeys(tmp_path)
