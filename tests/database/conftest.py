"""A PostgreSQL of labs/postgresql, and sites whose state is there; or why there is none."""

import os
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from fabric_direct.site.config import Site, StateDatabase
from fabric_direct.state.postgresql.connections import close_all
from fabric_direct.state.postgresql.schema import migrate
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import StateStore
from tests.absent import absent
from tests.conftest import FAKE_DRIVERS

LAB = Path(__file__).parents[2] / "labs/postgresql/lab"
if BESIDE_OTHERS := os.environ.get("PYTEST_XDIST_WORKER"):  # each has a server of its own
    os.environ["FABRIC_POSTGRESQL"] = str(1 + int(BESIDE_OTHERS.removeprefix("gw")))
URL = (
    f"postgresql://fabric@127.0.0.1:{25432 + int(os.environ.get('FABRIC_POSTGRESQL', '0'))}/fabric"
)
LEASE = 1.0
"""Seconds: short, for what waits until it is over."""
_numbers = count(1)
MakeSite = Callable[..., Site]


def lab(command: str) -> None:
    """Do something to the server: stop, start, hang, resume."""
    subprocess.run([LAB, command], check=True, capture_output=True)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a database that this user may do everything in."""
    said = ""
    if BESIDE_OTHERS and os.geteuid() == 0:
        said = subprocess.run([LAB, "up"], check=False, capture_output=True, text=True).stderr
    if subprocess.run([LAB, "status"], check=False, capture_output=True).returncode:
        absent(f"no PostgreSQL here: {LAB} up\n{said}".rstrip())
    yield URL
    if BESIDE_OTHERS and os.geteuid() == 0:
        lab("down")


@pytest.fixture
def upset(server: str) -> Iterator[Callable[[str], None]]:
    """Do something to the server; it answers again after the test."""
    yield lab
    lab("resume")
    lab("start")


@pytest.fixture
def make_site(server: str, tmp_path: Path) -> Iterator[MakeSite]:
    """Make a site on the fakes, whose state is in the database."""
    made: list[str] = []

    def make(**settings: Any) -> Site:
        name = f"test-{os.getpid()}.{next(_numbers)}"
        made.append(name)
        site = Site(
            site=name,
            state_dir=tmp_path / "state",
            state_database=StateDatabase(url=server, lease=LEASE),
            **{
                "drivers": FAKE_DRIVERS,
                "guest": "fake",
                "images": {"tiny": {}},
                "networks": {"red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}},
                **settings,
            },
        )
        migrate(site)
        return site

    yield make
    close_all()
    with psycopg.connect(server, autocommit=True) as connection:
        for name in made:
            connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(name)))


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    return make_site()


@pytest.fixture
def store(site: Site) -> StateStore:
    return store_of(site)
