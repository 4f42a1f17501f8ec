"""The store that a site names."""

from fabric_direct.site.config import Site
from fabric_direct.site.extras import require
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.store import StateStore


def store_of(site: Site) -> StateStore:
    """Return the store of a site.

    :raises Refused: if libraries are missing that it needs.
    """
    if site.state_database is None:
        return FileStore(site.state_dir)
    require("database")
    from fabric_direct.state.postgresql.store import PostgresStore  # noqa: PLC0415 - an extra

    return PostgresStore(site.site, site.state_database)
