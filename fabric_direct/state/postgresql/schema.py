"""The tables of a site's schema, made and brought up to date by alembic."""

from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from fabric_direct.errors import InvalidSite
from fabric_direct.site.config import Site, StateDatabase
from fabric_direct.state.postgresql.connections import connections

_ENCODINGS = {"UTF8", "SQL_ASCII"}
"""Those that keep every text; the second one as it is sent."""


def migrate(site: Site) -> tuple[str, str]:
    """Make the tables of a site, or bring them up to date; other sites' are not touched.

    :returns: their version before, which is empty if there were none, and now.
    :raises InvalidSite: if they are of a later version of this library, or the database does not keep
        every text.
    :raises FabricDirectError: if the database does not answer, or refuses it.
    """
    settings = _database(site)
    known = connections(settings.url, site.site, settings.lease)
    with known.begin_any("the tables of the site's state", 2 * settings.lease) as db:
        _refuse_encoding(db, known.where)
        # One at a time; the lock goes with the transaction.
        db.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (site.site,))
        db.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{site.site}"')
        before = known.version(db)
        config = _config(db)
        script = ScriptDirectory.from_config(config)
        if before and before not in {each.revision for each in script.walk_revisions()}:
            raise InvalidSite(
                f"the tables of site {site.site} are of version {before}, which is not known here",
                where=known.where,
                remedy="use the version of fabric-direct that made them, or a later one",
            )
        command.upgrade(config, "head")
        return before, known.version(db)


def version(site: Site) -> str:
    """Return the version of a site's tables; empty if there are none.

    :raises FabricDirectError: if the database does not answer.
    """
    settings = _database(site)
    known = connections(settings.url, site.site, settings.lease)
    with known.begin_any("the tables of the site's state", settings.lease) as db:
        return known.version(db)


def _database(site: Site) -> StateDatabase:
    if site.state_database is None:
        raise InvalidSite(
            "is missing: the site's state is in files", field="state_database", why="no database"
        )
    return site.state_database


def _refuse_encoding(db: Connection, where: str) -> None:
    ((encoding,),) = db.exec_driver_sql("SHOW server_encoding").fetchall()
    if encoding not in _ENCODINGS:
        raise InvalidSite(
            f"has the encoding {encoding}, in which not every text can be kept",
            field="state_database",
            where=where,
            remedy="make another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )


def _config(db: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(files(__package__) / "migrations"))
    config.attributes["connection"] = db
    return config
