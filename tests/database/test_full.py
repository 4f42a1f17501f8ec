"""A database whose disk is full, until there is space again."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal

from fabric_direct.calls.deadline import wait_until
from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.postgresql.queue import queue_of
from tests.database.conftest import MakeSite
from tests.database.slivers import vm
from tests.database.test_conductors import PATIENCE, Conduct, conduct, make_conducted, servers

__all__ = ["conduct", "make_conducted"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a file system is mounted by root")


@pytest.fixture
def full(server: str, make_conducted: MakeSite) -> Iterator[tuple[Site, Path]]:
    """A site, and the file system of its queue, which has 1 MiB."""
    administrator = server.replace("//fabric@", "//postgres@")
    site = make_conducted()
    with psycopg.connect(administrator, autocommit=True) as connection:
        ((data,),) = connection.execute("SHOW data_directory").fetchall()
        place = Path(data).with_name(f"small-{secrets.token_hex(4)}")
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", place], check=True)
        subprocess.run(["chown", f"--reference={data}", place], check=True)
        space, table = Identifier(place.name), Identifier(site.site, "operation")
        connection.execute(
            SQL("CREATE TABLESPACE {} LOCATION {}").format(space, Literal(str(place)))
        )
        connection.execute(SQL("ALTER TABLE {} SET TABLESPACE {}").format(table, space))
        yield site, place
        connection.execute(SQL("ALTER TABLE {} SET TABLESPACE pg_default").format(table))
        connection.execute(SQL("DROP TABLESPACE {}").format(space))
        subprocess.run(["umount", place], check=True)
        place.rmdir()


def large(number: int) -> NodeSliver:
    """Return a VM whose request has 40 kB, which no compression makes smaller."""
    more = {"id": f"vm-{number}", "name": f"vm-{number}", "boot_script": secrets.token_hex(20_000)}
    return vm().model_copy(update=more)


def test_refuses_operations_and_loses_none(full: tuple[Site, Path], conduct: Conduct) -> None:
    site, place = full
    assert site.state_database
    queue = queue_of(site.site, site.state_database)
    with HandlerProcessor(site) as processor:
        # Alone: those that are posted together fill the disk together, and what was written stays there.
        asked = [processor.create(large(0))]
        wait_until("the first to be posted", lambda: bool(queue.listed()), timeout=PATIENCE)
        asked += [processor.create(large(number)) for number in range(1, 60)]
        assert not next(as_completed(asked, PATIENCE)).result().ok
        conduct(site)
        subprocess.run(["mount", "-o", "remount,size=64M", place], check=True)
        outcomes = [future.result(PATIENCE) for future in asked]

    refused, made = ([each for each in outcomes if each.ok is ok] for ok in (False, True))
    assert all("No space left" in str(outcome.error) for outcome in refused)
    assert len(servers(site)) == len(made) > 0
