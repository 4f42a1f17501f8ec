"""The server of the page: on which address, for whom, and how it ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from click.testing import CliRunner

from fabric_direct.cli import main
from fabric_direct.errors import InvalidSite
from fabric_direct.page.server import Listening, PageServer
from fabric_direct.page.sessions import token_path
from fabric_direct.site.config import Site
from tests.conftest import FAKE_DRIVERS

SECONDS = 30
HERE = Listening("127.0.0.1:0")


@pytest.fixture
def site_path(tmp_path: Path) -> Path:
    """A site in a file."""
    site = {"site": "SHOWN", "state_dir": str(tmp_path / "state"), "drivers": FAKE_DRIVERS}
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(site | {"guest": "fake"}))
    return path


@contextmanager
def running(server: PageServer) -> Iterator[PageServer]:
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def bearer(site: Site) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_path(site.state_dir).read_text().strip()}"}


class TestListening:
    def test_lets_in_who_reads_the_token_that_it_made(self, site: Site) -> None:
        with running(PageServer(site, HERE)) as server:
            strange = httpx.get(server.url, timeout=SECONDS)
            known = httpx.get(server.url, headers=bearer(site), timeout=SECONDS)

        assert server.url == f"http://127.0.0.1:{server.port}/"
        assert (strange.status_code, known.status_code) == (401, 200)
        assert "server" not in known.headers

    def test_ends_while_a_browser_listens(self, site: Site) -> None:
        server = PageServer(site, HERE)
        with (
            running(server),
            httpx.stream(
                "GET", f"{server.url}events", headers=bearer(site), timeout=SECONDS
            ) as events,
        ):
            lines = events.iter_lines()
            assert next(lines) == "event: operations"
            server.stop()
            assert list(lines)  # to its end

    def test_a_signal_ends_the_command_without_a_word(
        self, site_path: Path, tmp_path: Path
    ) -> None:
        argv = ["--site", str(site_path), "page", "--listen", "127.0.0.1:0"]
        code = "import sys; from fabric_direct.cli import main; main(sys.argv[1:])"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *argv],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout
        said = process.stdout.readline()
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)

        assert said.startswith("The page of SHOWN is at http://127.0.0.1:")
        assert str(tmp_path / "state/page/token") in said
        assert (process.returncode, errors) == (0, "")


class TestWhatIsRefused:
    @pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "page.example:0"])
    def test_is_an_open_address_without_tls(self, site: Site, listen: str) -> None:
        with pytest.raises(InvalidSite, match="not a loopback address") as refused:
            PageServer(site, Listening(listen))

        assert refused.value.field == "--certificate"

    def test_is_a_certificate_without_its_key(self, site: Site, tmp_path: Path) -> None:
        with pytest.raises(InvalidSite) as refused:
            PageServer(site, Listening("127.0.0.1:0", certificate=tmp_path / "cert.pem"))

        assert refused.value.field == "--key"

    def test_is_a_certificate_that_cannot_be_used(self, site: Site, tmp_path: Path) -> None:
        bad = tmp_path / "bad.pem"
        bad.write_text("no certificate")

        with pytest.raises(InvalidSite) as refused:
            PageServer(site, Listening("127.0.0.1:0", certificate=bad, key=bad))

        assert refused.value.field == "--certificate"

    def test_is_an_address_that_is_taken(self, site: Site, site_path: Path) -> None:
        with running(PageServer(site, HERE)) as server:
            argv = ["--site", str(site_path), "page", "--listen", f"127.0.0.1:{server.port}"]
            done = CliRunner().invoke(main, argv)

        assert done.exit_code == 2
        assert (
            f"--listen: cannot listen on 127.0.0.1:{server.port}: Address already in" in done.stderr
        )
        assert "Traceback" not in done.output

    @pytest.mark.parametrize("listen", ["8760", "localhost", "a b:1", "127.0.0.1:99999"])
    def test_is_what_is_no_address(self, site_path: Path, listen: str) -> None:
        done = CliRunner().invoke(main, ["--site", str(site_path), "page", "--listen", listen])

        assert done.exit_code == 2
        assert "--listen" in done.stderr
