"""What alembic runs: a migration on the connection that it is given."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection)
context.run_migrations()
