"""The state of a site in PostgreSQL, which several machines share: see docs/decisions/0075.

::

    store.py         the store: tables, documents, logs and notes
    locks.py         locks that end with their holder's lease
    queue.py         operations that conductors carry out, in order for each sliver
    connections.py   connections of this process, and errors in plain words
    schema.py        the tables, made and brought up to date by alembic
    migrations/      the versions of the tables

SQLAlchemy and psycopg are imported where a site asks for them, and nowhere else.
"""

VERSION = "0002"
"""Of the tables, which this version of the library uses."""
