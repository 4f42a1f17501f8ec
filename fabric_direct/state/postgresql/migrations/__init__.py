"""The versions of the tables, by alembic."""
