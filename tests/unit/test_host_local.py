"""This machine as a worker, and what holds for all that is sent to workers."""

import ast
import errno
import os
import sys
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.contract import CommandResult
from fabric_direct.drivers.hosts import agent
from fabric_direct.drivers.hosts.agent import files, frames, serve
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.hosts.functions import HostFunctions
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.errors import Denied, DriverError, NotFound, TimedOut, Unsupported
from fabric_direct.site.config import Host, Site

LIMIT = 60.0
PACKAGE = Path(agent.__file__).parent
MODULES = sorted(PACKAGE.glob("*.py"))


@pytest.fixture
def host() -> LocalHost:
    return LocalHost("here")


class TestCalls:
    def test_a_command_gets_its_arguments_and_input_as_they_are(self, host: LocalHost) -> None:
        found = host.run(("printf", "%s|", "two words", "$HOME"), timeout=LIMIT)
        assert found == CommandResult(0, b"two words|$HOME|")
        assert host.run(("cat",), b"\0\xff", timeout=LIMIT).stdout == b"\0\xff"

    def test_a_command_is_ended_after_its_time(self, host: LocalHost) -> None:
        with pytest.raises(TimedOut, match=r"sleep did not end in 0\.2 s"):
            host.run(("sleep", "60"), timeout=0.2)

    def test_a_file_is_replaced_and_read(self, host: LocalHost, tmp_path: Path) -> None:
        path = tmp_path / "new" / "file"
        for content in (b"one", b"\0\xff"):
            files.replace(str(path), content, 0o640)
            assert host.read_file(str(path), timeout=LIMIT) == content
        assert path.stat().st_mode & 0o777 == 0o640

    def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left(self, tmp_path: Path) -> None:
        (tmp_path / "file").mkdir()
        with pytest.raises(IsADirectoryError):
            files.replace(str(tmp_path / "file"), b"new", 0o600)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_files_that_are_there_are_told(self, host: LocalHost, tmp_path: Path) -> None:
        there, linked, gone = (str(tmp_path / name) for name in ("there", "linked", "gone"))
        Path(there).touch()
        Path(linked).symlink_to(there)
        (tmp_path / "dangling").symlink_to(gone)
        paths = [there, linked, gone, str(tmp_path / "dangling"), f"{there}/below"]

        assert host.call("files.there", timeout=LIMIT, paths=paths) == [there, linked]

    def test_a_call_that_gets_no_answer_ends(self, host: LocalHost, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(TimedOut, match=r"files\.read"):
            host.read_file(str(tmp_path / "fifo"), timeout=0.1)
        (tmp_path / "fifo").write_bytes(b"")

    def test_the_kernel_is_this_machines(self, host: LocalHost) -> None:
        with host.netlink() as ip:
            assert ip.link_lookup(ifname="lo") == [1]

    def test_a_namespace_that_is_missing_is_named(self, host: LocalHost) -> None:
        with pytest.raises(NotFound, match="fdtest-nowhere"), host.netlink("fdtest-nowhere"):
            pass


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            (errno.EPERM, Denied),
            (errno.EACCES, Denied),
            (errno.ENOENT, NotFound),
            (errno.ENODEV, NotFound),
            (errno.EOPNOTSUPP, Unsupported),
            (errno.ENOTTY, Unsupported),
            (errno.ETIMEDOUT, TimedOut),
            (errno.EIO, DriverError),
        ],
        ids=errno.errorcode.get,
    )
    def test_an_errno_becomes_a_kind_and_is_named(
        self, host: LocalHost, mocker, code: int, kind: type[Exception]
    ) -> None:
        mocker.patch.object(serve, "_find", side_effect=OSError(code, os.strerror(code), "/dev/x"))
        with pytest.raises(kind, match=f"{os.strerror(code)}: /dev/x") as failed:
            host.call("pci.reset", timeout=LIMIT)
        assert type(failed.value) is kind
        assert isinstance(failed.value.__cause__, OSError)
        assert failed.value.__cause__.errno == code
        assert failed.value.where == "here"

    @pytest.mark.parametrize(
        ("error", "kind", "words"),
        [
            (RuntimeError("the drive says no"), DriverError, "the drive says no"),
            (TimeoutError("it went on"), TimedOut, "it went on"),
            (KeyError("nsid"), DriverError, "KeyError: 'nsid'"),
        ],
        ids=["on purpose", "too long", "by mistake"],
    )
    def test_an_error_without_errno_is_told_in_its_words(
        self, host: LocalHost, mocker, error: Exception, kind: type[Exception], words: str
    ) -> None:
        mocker.patch.object(serve, "_find", side_effect=error)
        with pytest.raises(kind) as failed:
            host.call("pci.reset", timeout=LIMIT)
        assert type(failed.value) is kind
        assert failed.value.why == words  # type: ignore[attr-defined]

    def test_an_answer_that_is_no_json_fails_here_as_it_would_there(
        self, host: LocalHost, mocker
    ) -> None:
        mocker.patch.object(serve, "_find", return_value=lambda: b"bytes")
        with pytest.raises(DriverError, match=r"cannot be sent.*bytes"):
            host.call("files.read", timeout=LIMIT)


class TestPackage:
    @pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
    def test_a_module_is_understood_by_python_3_6(self, path: Path) -> None:
        # vermin (`make lint`) has what a parser does not see, the names of the standard library.
        ast.parse(path.read_text(), feature_version=(3, 6))

    @pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
    def test_a_module_needs_nothing_but_the_standard_library_and_its_siblings(
        self, path: Path
    ) -> None:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [
                alias.name for alias in getattr(node, "names", []) if isinstance(node, ast.Import)
            ]
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                ours = name.startswith(agent.__name__)
                assert ours or name.split(".")[0] in sys.stdlib_module_names, name

    @pytest.mark.parametrize("name", [p.stem for p in MODULES if "boot" not in p.stem])
    def test_what_a_module_offers_is_there(self, name: str) -> None:
        module = import_module(f"{agent.__name__}.{name}".removesuffix(".__init__"))
        assert all(callable(getattr(module, each)) for each in getattr(module, "__all__", ()))


class TestFrames:
    @pytest.mark.parametrize("piece", [1, 3, 1000])
    def test_documents_are_put_together_from_what_comes(self, piece: int) -> None:
        stream = frames.pack({"id": 1}) + frames.pack(["two", "ü"])

        def read(length: int) -> bytes:
            nonlocal stream
            given, stream = stream[: min(length, piece)], stream[min(length, piece) :]
            return given

        assert frames.receive(read) == {"id": 1}
        assert frames.receive(read) == ["two", "ü"]
        assert frames.receive(read) is None

    @pytest.mark.parametrize("there", [0, 3, 4, 7])
    def test_half_a_document_is_none(self, there: int) -> None:
        assert frames.receive(BytesIO(frames.pack({"id": 1})[:there]).read) is None

    def test_what_is_no_document_is_refused(self) -> None:
        with pytest.raises(ValueError, match="more than"):
            frames.receive(BytesIO(b"Welcome!").read)


class TestHostDriver:
    def test_a_host_without_ssh_is_this_machine(self, tmp_path: Path) -> None:
        site = Site(site="TEST", state_dir=tmp_path)
        assert isinstance(host_driver(site, "localhost"), LocalHost)

    def test_a_host_that_the_site_does_not_have_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="elsewhere"):
            host_driver(Site(site="TEST", state_dir=tmp_path), "elsewhere")

    def test_other_settings_have_another_driver(self, tmp_path: Path) -> None:
        def driver(**settings: object) -> object:
            hosts = {"w1": Host(ssh="ssh://root@127.0.0.1:9", **settings)}
            return host_driver(Site(site="TEST", state_dir=tmp_path, hosts=hosts), "w1")

        assert driver() is driver()
        assert driver() is not driver(ssh_key=tmp_path / "key")
        assert driver() is not driver(python="python3.9")

    @pytest.mark.parametrize("pinned", [True, False])
    def test_sites_share_the_driver_of_a_host_whose_key_they_pin(
        self, tmp_path: Path, pinned: bool
    ) -> None:
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN"
        hosts = {"w1": Host(ssh="ssh://root@127.0.0.1:9", host_key=key if pinned else None)}
        one, other = (
            host_driver(Site(site="TEST", state_dir=tmp_path / name, hosts=hosts), "w1")
            for name in ("one", "other")
        )
        assert (one is other) is pinned


class Strange(HostFunctions):
    """A worker that answers in another form."""

    def __init__(self, answer: object) -> None:
        super().__init__("w1")
        self._answer = answer

    def _ask(self, function: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        return {"answer": self._answer}


@pytest.mark.parametrize("answer", [None, 1, [], {}, "ä", {"code": 0, "stdout": "x", "stderr": 1}])
def test_an_answer_of_another_form_is_an_error_of_ours(answer: object) -> None:
    with pytest.raises(DriverError, match=r"commands\.run gave an invalid answer"):
        Strange(answer).run(("true",), timeout=1)
    with pytest.raises(DriverError, match=r"files\.read gave an invalid answer"):
        Strange(answer).read_file("/x", timeout=1)


def test_a_frame_that_is_nested_too_deeply_is_no_frame() -> None:
    document = b"[" * 100_000
    frame = BytesIO(len(document).to_bytes(4, "big") + document)

    with pytest.raises(ValueError, match="nested too deeply"):
        frames.receive(frame.read)
