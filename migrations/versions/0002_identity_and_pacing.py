"""Identity of clients, the operator's roster, and what a round's pacing needs.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_moment = sa.DateTime(timezone=True)

_COLUMNS = {
    "federations": (
        sa.Column("selection_seed", sa.LargeBinary(), comment="First seed of random selections; never changed"),
        sa.Column(
            "roster_version",
            sa.Integer(),
            nullable=False,
            server_default="0",
            comment="Version of the operator's roster; a lower one is refused",
        ),
        sa.Column("roster", sa.LargeBinary(), comment="The operator's roster, as signed"),
        sa.Column(
            "operator_nonce",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="Nonce of the operator's newest order; an older order is refused",
        ),
    ),
    "clients": (
        sa.Column("public_key", sa.LargeBinary(), comment="Ed25519 key its messages are verified with"),
        sa.Column("enrolment_serial", sa.Integer(), comment="Serial of the enrolment it joined with"),
        sa.Column("revoked_at", _moment, comment="When its enrolment was revoked, UTC; null unless it is"),
        sa.Column(
            "membership_nonce",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="Nonce of its newest join or leave; an older one is a replay",
        ),
        sa.Column(
            "status_nonce",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="Nonce of its newest status; an older one is out of date",
        ),
    ),
    "events": (
        sa.Column(
            "n", sa.Integer(), nullable=False, server_default="1", comment="How often, within one batch of messages"
        ),
    ),
    "rounds": (
        sa.Column(
            "pacing", sa.String(16), nullable=False, server_default="deadline", comment="deadline or buffered"
        ),
        sa.Column(
            "staleness_limit",
            sa.Integer(),
            nullable=False,
            server_default="0",
            comment="Buffered: how many model versions old an update's base may be",
        ),
        sa.Column(
            "staleness_exponent",
            sa.Float(),
            nullable=False,
            server_default="0.5",
            comment="Buffered: an update of staleness s weighs (1 + s) ** -exponent",
        ),
        sa.Column("selection_seed", sa.LargeBinary(), comment="Seed of its random selection; null: all were asked"),
        sa.Column("selection_cutoff", sa.LargeBinary(), comment="Highest ticket that was asked"),
        sa.Column("n_selected", sa.Integer(), comment="How many clients were to be asked"),
        sa.Column("n_eligible", sa.Integer(), comment="Clients online when it opened"),
    ),
}

# The one expression the two databases spell differently.
_DURATION_S = {
    "sqlite": "round((julianday(r.closed_at) - julianday(r.opened_at)) * 86400, 3)",
    "postgresql": "round(extract(epoch FROM r.closed_at - r.opened_at), 3)::double precision",
}

_ROUND_HISTORY = """
CREATE VIEW round_history AS
-- One row for each round.
SELECT
    r.federation,
    r.number AS round,
    r.state,            -- collecting, aggregating, completed or abandoned
    r.reason,           -- why it was abandoned
    r.opened_at,        -- UTC
    r.closed_at,        -- UTC; null while open
    {duration_s} AS duration_s,  -- seconds from opening to closing; null while open
    r.base_version,     -- the model it trained from
    r.model_version,    -- the model it made
    (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number) AS n_updates,  -- updates stored now
    (SELECT coalesce(sum(u.n_interactions), 0) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number) AS n_interactions,  -- behind those updates
    (SELECT {n_events} FROM events e
      WHERE e.federation = r.federation AND e.round = r.number
        AND e.kind = 'update_rejected'{unless_duplicate}) AS n_rejected,  -- updates refused that named this round
    r.min_clients,
    r.max_clients,
    r.min_time_s,
    r.max_time_s{more}
FROM rounds r
"""
_MORE = """,
    r.pacing,           -- deadline or buffered
    r.n_selected,       -- clients asked; null: all
    r.n_eligible        -- clients online when it opened; null unless some were selected"""
_UNLESS_DUPLICATE = " AND e.code <> 'duplicate'"

_COLUMN_COMMENTS = {
    "round_history.duration_s": "Seconds from opening to closing; null while open",
    "round_history.model_version": "The model it made; null unless completed",
    "round_history.n_updates": "Updates of the round that are stored now",
    "round_history.n_interactions": "Interactions behind those updates",
    "round_history.n_rejected": "Updates refused that named this round",
}


def upgrade() -> None:
    # PostgreSQL will not change a table's columns below a view that counts them.
    op.execute("DROP VIEW round_history")
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.add_column(table, column._copy())
    _create_view("coalesce(sum(e.n), 0)", _UNLESS_DUPLICATE, _MORE)


def downgrade() -> None:
    op.execute("DROP VIEW round_history")
    for table, columns in _COLUMNS.items():
        for column in reversed(columns):
            op.drop_column(table, column.name)
    _create_view("count(*)", "", "")


def _create_view(n_events: str, unless_duplicate: str, more: str) -> None:
    dialect = op.get_bind().dialect.name
    op.execute(
        _ROUND_HISTORY.format(duration_s=_DURATION_S[dialect], n_events=n_events, unless_duplicate=unless_duplicate, more=more)
    )
    if dialect == "postgresql":
        op.execute("COMMENT ON VIEW round_history IS 'Every round with what it collected, what it refused and how it ended'")
        for column, comment in _COLUMN_COMMENTS.items():
            op.execute(f"COMMENT ON COLUMN {column} IS '{comment}'")
