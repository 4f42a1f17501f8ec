"""The state of a site, as files have it, and the locks of its processes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _text(name: str, *, key: bool = False, null: bool = False) -> "sa.Column[str]":
    """Return a column of a text, which is ordered as SQLite orders it."""
    return sa.Column(name, sa.Text(collation="C"), primary_key=key, nullable=null)


def _real(name: str) -> "sa.Column[float]":
    return sa.Column(name, sa.Double(), nullable=False)


def _integer(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer(), nullable=False)


def upgrade() -> None:
    """Make all tables."""
    _make_stores()
    _make_placement()
    _make_networks()
    _make_locks()


def _make_stores() -> None:
    op.create_table("document", _text("kind", key=True), _text("key", key=True), _text("text"))
    op.execute(sa.schema.CreateSequence(sa.Sequence("aside")))
    for table, *columns in (("log_line", _text("line")), ("note", _text("key"), _text("line"))):
        number = sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True)
        op.create_table(table, number, _text("kind"), *columns)
    op.create_index("log_line_kind", "log_line", ["kind", "id"])
    op.create_index("note_key", "note", ["kind", "key", "id"])
    op.create_table("dry_run", _text("found"))
    op.create_table("untouched", _text("sliver", key=True))
    op.create_table("sliver", _text("id", key=True), _text("type"))
    op.create_table(
        "look",
        *(_text("sliver", key=True), _text("type"), _text("host", key=True)),
        *(_integer("found"), _integer("latest")),
    )


def _make_placement() -> None:
    op.create_table(
        "claim",
        *(_text("sliver", key=True), _text("host"), _text("owner", null=True)),
        *(_integer("cores"), _real("ram"), _real("disk"), _text("devices"), _real("until")),
    )
    op.create_table("node_claim", _text("sliver", key=True), _text("node"), _real("until"))
    op.create_table(
        "server", _text("id", key=True), _text("sliver"), _text("worker"), _text("domain")
    )
    op.create_table(
        "p4_switch", _text("name", key=True), _text("sliver"), _text("phase"), _text("identity")
    )


def _make_networks() -> None:
    op.create_table(
        "port",
        *(_text("sliver", key=True), _text("component", key=True), _text("host"), _text("network")),
        *(_text("mac"), _text("ipv4"), _text("ipv6", null=True)),
        sa.UniqueConstraint("network", "mac"),
        sa.UniqueConstraint("network", "ipv4"),
        sa.UniqueConstraint("network", "ipv6"),
    )
    op.create_table(
        "tap",
        *(_text("sliver", key=True), _text("component", key=True), _text("host"), _text("switch")),
        *(_text("interface"), _text("port"), _text("mac")),
        sa.UniqueConstraint("switch", "port"),
        sa.UniqueConstraint("switch", "mac"),
    )
    op.create_table(
        "service_claim",
        *(_text("kind", key=True), _text("key", key=True), _text("sliver"), _text("part")),
    )
    op.create_table(
        "stitch",
        *(_text("sliver", key=True), _text("part", key=True), _text("other", key=True)),
        *(_text("end", key=True), _text("taken"), _text("address", null=True)),
        sa.UniqueConstraint("other", "end", "address"),
    )


def _make_locks() -> None:
    now = sa.DateTime(timezone=True)
    op.execute(sa.schema.CreateSequence(sa.Sequence("epoch")))
    op.create_table(
        "holder", _text("id", key=True), sa.Column("beat", now, nullable=False), _text("who")
    )
    holder = sa.ForeignKey("holder.id", ondelete="SET NULL")
    op.create_table(
        "lock",
        _text("name", key=True),
        sa.Column("epoch", sa.BigInteger()),
        sa.Column("holder", sa.Text(collation="C"), holder),
        sa.Column("since", now),
    )


def downgrade() -> None:
    """Refuse: what is written would be lost."""
    raise NotImplementedError
