"""Votes in secure sums are tallied by round, with noise in them.

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# The one expression the two databases spell differently.
_DURATION_S = {
    "sqlite": "round((julianday(r.closed_at) - julianday(r.opened_at)) * 86400, 3)",
    "postgresql": "round(extract(epoch FROM r.closed_at - r.opened_at), 3)::double precision",
}
_TALLIES = """,
    t.n_updates AS tally_n_updates,  -- updates in its secure sums, where these have votes; null: none
    t.worse AS tally_worse,          -- votes worse among them, with the helpers' noise
    t.better AS tally_better,        -- votes better among them, likewise
    t.deviation AS tally_deviation   -- standard deviation of the noise in each, in votes"""
_JOINED = "\nLEFT JOIN round_tallies t ON t.federation = r.federation AND t.round = r.number"
_ROUND_HISTORY = """
CREATE VIEW round_history AS
-- One row for each round.
SELECT
    r.federation,
    r.number AS round,
    r.state,            -- collecting, checking, opening, aggregating, completed or abandoned
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
    (SELECT coalesce(sum(e.n), 0) FROM events e
      WHERE e.federation = r.federation AND e.round = r.number
        AND e.kind = 'update_rejected' AND e.code <> 'duplicate') AS n_rejected,  -- updates refused that named this round
    r.min_clients,
    r.max_clients,
    r.min_time_s,
    r.max_time_s,
    r.pacing,           -- deadline or buffered
    r.n_selected,       -- clients asked; null: all
    r.n_eligible,       -- clients online when it opened; null unless some were selected
    r.aggregation,      -- rule it was opened with
    r.byzantine,        -- hostile clients that was to withstand: a count, or a share below 0.5
    r.aggregation_parameters,  -- its parameters, JSON
    r.aggregation_fallback,    -- rule where too few arrive for it, or abandon
    CASE WHEN r.state = 'completed' THEN coalesce(a.rule, 'mean') END AS rule,  -- rule that made its model
    a.fallback_reason,  -- why that is not the rule it was opened with
    coalesce(a.n_clipped, 0) AS n_clipped,  -- updates the rule shortened
    coalesce(a.n_dropped, 0) AS n_dropped,  -- updates the rule left out
    r.anchor_version,   -- the model that devices were asked to compare the newest with; null: none
    (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.vote = -1) AS n_worse,  -- who finds it worse
    (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.vote = 0) AS n_none,    -- who cannot tell yet
    (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.vote = 1) AS n_better  /* who finds it better */{columns}
FROM rounds r
LEFT JOIN round_aggregations a ON a.federation = r.federation AND a.round = r.number{joined}
"""
_COMMENTS = {
    "VIEW round_history": "Every round with what it collected, what it refused and how it ended",
    "COLUMN round_history.duration_s": "Seconds from opening to closing; null while open",
    "COLUMN round_history.model_version": "The model it made; null unless completed",
    "COLUMN round_history.n_updates": "Updates of the round that are stored now",
    "COLUMN round_history.n_interactions": "Interactions behind those updates",
    "COLUMN round_history.n_rejected": "Updates refused that named this round",
    "COLUMN round_history.rule": "Rule that made its model; null unless completed",
    "COLUMN round_history.fallback_reason": "Why that is not the rule it was opened with; null if it is",
    "COLUMN round_history.n_worse": "Its updates that came with the vote worse",
    "COLUMN round_history.n_none": "Its updates that came with the vote none",
    "COLUMN round_history.n_better": "Its updates that came with the vote better",
}
_TALLY_COMMENTS = {
    "COLUMN round_history.tally_n_updates": "Updates in its secure sums, where these have votes; null: none",
    "COLUMN round_history.tally_worse": "Votes worse among them, with the noise of helpers",
    "COLUMN round_history.tally_better": "Votes better among them, likewise",
    "COLUMN round_history.tally_deviation": "Standard deviation of the noise in each, in votes",
}


def upgrade() -> None:
    op.create_table(
        "round_tallies",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "round",
            sa.Integer(),
            nullable=False,
            comment="The round: completed, with an anchor, under a policy with votes",
        ),
        sa.Column("n_updates", sa.Integer(), nullable=False, comment="Updates in its sums"),
        sa.Column("worse", sa.Float(), nullable=False, comment="Votes worse among them, with the helpers' noise"),
        sa.Column("better", sa.Float(), nullable=False, comment="Votes better among them, likewise"),
        sa.Column(
            "deviation", sa.Float(), nullable=False, comment="Standard deviation of the noise in each, in votes"
        ),
        sa.PrimaryKeyConstraint("federation", "round", name=op.f("pk_round_tallies")),
        sa.ForeignKeyConstraint(
            ["federation", "round"],
            ["rounds.federation", "rounds.number"],
            name=op.f("fk_round_tallies_rounds_federation_round"),
        ),
        sa.CheckConstraint("n_updates >= 1", name=op.f("ck_round_tallies_n_updates")),
        sa.CheckConstraint("deviation > 0", name=op.f("ck_round_tallies_deviation")),
        comment="What the votes in a round's secure sums come to; without those that an erased client was in",
    )
    _make_view(_TALLIES, _JOINED, _COMMENTS | _TALLY_COMMENTS)


def downgrade() -> None:
    _make_view("", "", _COMMENTS)
    op.drop_table("round_tallies")


def _make_view(columns: str, joined: str, comments: dict[str, str]) -> None:
    """Make the view anew; SQLite has no comments."""
    dialect = op.get_bind().dialect.name
    op.execute("DROP VIEW round_history")
    op.execute(_ROUND_HISTORY.format(duration_s=_DURATION_S[dialect], columns=columns, joined=joined))
    if dialect == "postgresql":
        for what, comment in comments.items():
            op.execute(f"COMMENT ON {what} IS '{comment}'")
