"""The operations that conductors carry out."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0002"
down_revision = "0001"


def _text(name: str, *, key: bool = False, null: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.Text(collation="C"), primary_key=key, nullable=null)


def _flag(name: str) -> "sa.Column[bool]":
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())


def _number(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer(), nullable=False, server_default="0")


def _time(name: str, *, now: bool = False) -> "sa.Column[datetime]":
    default = sa.func.clock_timestamp() if now else None
    return sa.Column(name, sa.DateTime(timezone=True), nullable=not now, server_default=default)


def _of(
    name: str, table: str, *, key: bool = False, null: bool = False, ondelete: str = "CASCADE"
) -> "sa.Column[str]":
    """Return a column that has the id of a row of another table."""
    other = sa.ForeignKey(f"{table}.id", ondelete=ondelete)
    return sa.Column(name, sa.Text(collation="C"), other, primary_key=key, nullable=null)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "operation",
        _text("id", key=True),
        sa.Column("number", sa.BigInteger(), sa.Identity(), unique=True),
        *(_text("sliver"), _text("type"), _text("operation"), _text("action")),
        *(_text("request"), _text("asker"), _text("signature"), _text("host")),
        *(_number("needs"), _flag("ready"), _flag("told")),
        _of("holder", "holder", null=True, ondelete="SET NULL"),
        *(_number("tries"), _flag("interrupted"), _flag("done")),
        *(_time("posted", now=True), _time("begun"), _time("ended")),
        _text("outcome", null=True),
    )
    going = sa.text("ended IS NULL")
    op.create_index(
        "operation_of_sliver", "operation", ["sliver", "number"], postgresql_where=going
    )
    op.create_index(
        "operation_ready",
        "operation",
        ["number"],
        postgresql_where=sa.text("ready AND holder IS NULL AND ended IS NULL"),
    )
    op.create_index(
        "operation_held",
        "operation",
        ["holder"],
        postgresql_where=sa.text("holder IS NOT NULL AND ended IS NULL"),
    )
    op.create_index("operation_ended", "operation", ["ended"])
    op.create_table(
        "operation_before",
        _of("operation", "operation", key=True),
        _of("other", "operation", key=True),
    )
    op.create_index("operation_before_other", "operation_before", ["other"])
    op.create_table(
        "operation_progress",
        sa.Column("number", sa.BigInteger(), sa.Identity(), primary_key=True),
        _of("operation", "operation"),
        _text("progress"),
    )
    op.create_index("operation_progress_of", "operation_progress", ["operation", "number"])
    op.create_table(
        "conductor",
        _of("holder", "holder", key=True),
        *(_text("machine"), _number("pid"), _number("slots")),
        sa.Column("hosts", ARRAY(sa.Text(collation="C")), nullable=False),
        _time("since", now=True),
    )


def downgrade() -> None:
    """Refuse: what is written would be lost."""
    raise NotImplementedError
