"""``--metrics``: where a command offers metrics, what of it a forked child has, and what is refused."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from fabric_direct.cli import main
from fabric_direct.cli.metrics_endpoint import metrics_option

pytest.importorskip("opentelemetry.exporter.prometheus")
ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]

# It forks while it serves, stops serving, and lets the child try to connect: the port is nobody's then.
SCRIPT = """
import os, socket, sys
from pathlib import Path
from urllib.request import urlopen

from fabric_direct import HandlerProcessor, SliverRef
from fabric_direct.calls import metrics
from fabric_direct.cli.metrics_endpoint import served
from fabric_direct.cli.options import Settings

settings = Settings(site_path=Path(sys.argv[1]))
go, on = os.pipe()
with served(("127.0.0.1", int(sys.argv[2])), settings), HandlerProcessor(settings.site()) as processor:
    processor.delete(SliverRef(id="s1")).result()
    pid = os.fork()
    if not pid:
        os.close(on)
        processor.delete(SliverRef(id="s2")).result()
        os.read(go, 1)
        try:
            socket.create_connection(("127.0.0.1", int(sys.argv[2])))
        except ConnectionRefusedError:
            os._exit(metrics.wanted())
        os._exit(2)
    print(urlopen(f"http://127.0.0.1:{sys.argv[2]}/metrics").read().decode())
os.close(on)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def site_path(tmp_path: Path) -> Path:
    text = (ROOT / "examples/fake-site.yaml").read_text()
    (tmp_path / "site.yaml").write_text(text.replace(".fabric-direct-fake", str(tmp_path)))
    return tmp_path / "site.yaml"


@pytest.fixture
def run(site_path: Path) -> Run:
    def run(*words: str) -> Result:
        return CliRunner().invoke(main, ["--site", str(site_path), *words])

    return run


def test_metrics_are_served_and_a_forked_child_has_no_part_in_it(
    site_path: Path, port: int
) -> None:
    argv = [sys.executable, "-c", SCRIPT, str(site_path), str(port)]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert f"Metrics are at http://127.0.0.1:{port}/metrics." in done.stderr
    labels = ('operation="delete"', 'status="done"', 'type="VM"')
    assert (
        f"fabric_direct_operation_duration_seconds_count{{{','.join(map(ours, labels))}}} 1.0"
        in done.stdout
    )
    assert 'fabric_direct_site="fake"' in done.stdout
    assert "fabric_direct_call_late 0.0" in done.stdout


def ours(label: str) -> str:
    return f"fabric_direct_{label}"


def test_a_port_that_is_taken_is_refused_in_plain_words(run: Run, taken: int) -> None:
    done = run("watch", "--metrics", str(taken))

    assert done.exit_code == 2
    said = f"Error: --metrics: cannot offer metrics at 127.0.0.1:{taken}: Address already in use."
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_that_has_a_provider_is_told_what_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    provider = sdk.MeterProvider(shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", lambda: provider)

    done = run("watch", "--metrics", "127.0.0.1:0")

    assert done.exit_code == 2
    assert "OTEL_METRICS_EXPORTER=prometheus" in done.stderr


@pytest.mark.parametrize("command", [("watch",), ("zone", "serve")])
@pytest.mark.parametrize(
    "value", ["", "nine", "127.0.0.1:", "127.0.0.1:65536", "::1:9464", "a b:1"]
)
def test_what_is_no_address_is_refused(run: Run, command: tuple[str, ...], value: str) -> None:
    done = run(*command, "--metrics", value)

    assert done.exit_code == 2
    assert "is not ADDRESS:PORT" in done.stderr


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),  # noqa: S104 - as somebody may ask for
        ("[::1]:9464", ("::1", 9464)),
        ("host.example:9464", ("host.example", 9464)),
    ],
)
def test_an_address_is_this_machines_own_unless_another_one_is_given(
    value: str, address: tuple[str, int]
) -> None:
    @click.command()
    @metrics_option
    def command(metrics_at: object) -> None:
        assert metrics_at == address

    command(["--metrics", value], standalone_mode=False)
