"""The tables of a site: made, brought up to date, and refused where they do not fit."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg.sql import SQL, Identifier, Literal

import fabric_direct
from fabric_direct.errors import Denied, FabricDirectError, InvalidSite
from fabric_direct.site.config import Site, StateDatabase
from fabric_direct.state.journal import Journal
from fabric_direct.state.postgresql import VERSION, connections
from fabric_direct.state.postgresql.schema import migrate, version
from fabric_direct.state.site_store import store_of
from fabric_direct.state.tables import TABLES

PACKAGE = Path(fabric_direct.__file__).parent
MIGRATIONS = PACKAGE / "state/postgresql/migrations"


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connect as a new process does."""
    monkeypatch.setattr(connections, "_all", {})
    yield
    connections.close_all()


def set_version(server: str, site: Site, value: str) -> None:
    with psycopg.connect(server) as connection:
        table = Identifier(site.site, "alembic_version")
        connection.execute(SQL("UPDATE {} SET version_num = %s").format(table), (value,))


def test_are_made_once(site: Site) -> None:
    assert version(site) == VERSION
    assert migrate(site) == (VERSION, VERSION)


def test_are_those_of_the_latest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == VERSION


def test_that_are_not_there_are_told_with_the_command_that_makes_them(server: str) -> None:
    site = Site(site="never-made", state_database=StateDatabase(url=server))
    with pytest.raises(InvalidSite, match=r"no tables yet.*fabric-direct state migrate"):
        Journal(store_of(site)).unfinished()


@pytest.mark.parametrize("found", ["0000", "9999"])
def test_of_another_version_are_refused(site: Site, server: str, found: str) -> None:
    set_version(server, site, found)
    with pytest.raises(InvalidSite, match=f"of version {found}, not {VERSION}"):
        Journal(store_of(site)).unfinished()


def test_of_a_later_version_are_not_migrated(site: Site, server: str) -> None:
    set_version(server, site, "9999")
    with pytest.raises(InvalidSite, match="version 9999, which is not known here"):
        migrate(site)


def test_are_not_made_without_the_right_to(site: Site, server: str) -> None:
    with psycopg.connect(server.replace("fabric@", "postgres@"), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
    database = StateDatabase(url=server.replace("fabric@", "reader@"))
    with pytest.raises(Denied, match="permission denied"):
        migrate(Site(site="of-others", state_database=database))
    with pytest.raises(FabricDirectError, match=r"no tables yet|permission denied"):
        Journal(store_of(site.model_copy(update={"state_database": database}))).unfinished()


@pytest.fixture
def encoded(server: str) -> Iterator[Callable[[str], str]]:
    """Make a database of an encoding, and return its URL."""
    with psycopg.connect(server.replace("fabric@", "postgres@"), autocommit=True) as connection:
        name = Identifier("of-an-encoding")

        def make(encoding: str) -> str:
            settings = "ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            made = SQL("CREATE DATABASE {} OWNER fabric " + settings)
            connection.execute(made.format(name, Literal(encoding)))
            return f"{server.removesuffix('/fabric')}/of-an-encoding"

        yield make
        connections.close_all()
        connection.execute(SQL("DROP DATABASE {}").format(name))


def test_are_not_made_where_not_every_text_can_be_kept(encoded: Callable[[str], str]) -> None:
    site = Site(site="test", state_database=StateDatabase(url=encoded("LATIN1")))
    with pytest.raises(InvalidSite, match=r"LATIN1.*ENCODING 'UTF8'"):
        migrate(site)


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_keep_every_text(encoded: Callable[[str], str], encoding: str) -> None:
    url = f"{encoded(encoding)}?client_encoding=LATIN1"
    site = Site(site="test", state_database=StateDatabase(url=url))
    migrate(site)
    documents = store_of(site).documents("journal", "it")
    documents.write("s-1", "'%?ü€\U0001f600", new=True)
    assert documents.read("s-1") == "'%?ü€\U0001f600"


def test_of_another_site_are_another_sites(make_site: Callable[..., Site]) -> None:
    one, two = make_site(), make_site()
    store_of(one).documents("journal", "it").write("s-1", "{}", new=True)
    assert store_of(two).documents("journal", "it").read("s-1") is None


@pytest.mark.parametrize("name", [name for tables in TABLES.values() for name in tables])
def test_have_the_columns_and_keys_that_files_have(site: Site, server: str, name: str) -> None:
    (statement,) = (tables[name] for tables in TABLES.values() if name in tables)
    with sqlite3.connect(":memory:") as db:
        db.execute(f"CREATE TABLE {name} ({statement})")
        columns = db.execute(f"PRAGMA table_info('{name}')").fetchall()
        unique = {
            tuple(column for _, _, column in db.execute(f"PRAGMA index_info('{index}')"))
            for _, index, *_ in db.execute(f"PRAGMA index_list('{name}')").fetchall()
        }
    wanted = [(each[1], _TYPES[each[2]], bool(each[3] or each[5])) for each in columns]
    keys = {tuple(each[1] for each in columns if each[5]), *unique} - {()}
    with psycopg.connect(server) as connection:
        assert _columns(connection, site.site, name) == wanted
        assert _unique(connection, site.site, name) == {tuple(sorted(each)) for each in keys}


_TYPES = {"TEXT": "text", "INTEGER": "integer", "REAL": "double precision"}


def _columns(
    connection: "psycopg.Connection[tuple[object, ...]]", schema: str, table: str
) -> list[tuple[object, ...]]:
    query = """
        SELECT column_name, data_type, is_nullable = 'NO' FROM information_schema.columns
        WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
    """
    return connection.execute(query, (schema, table)).fetchall()


def _unique(
    connection: "psycopg.Connection[tuple[object, ...]]", schema: str, table: str
) -> set[object]:
    query = """
        SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indisunique AND i.indrelid = to_regclass(%s) GROUP BY i.indexrelid
    """
    rows = connection.execute(query, (f'"{schema}"."{table}"',)).fetchall()
    return {tuple(sorted(names)) for (names,) in rows}  # type: ignore[call-overload]
