"""Updates may say how the ranker does by their users' clicks, and so may secure sums, with noise.

Revision ID: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_CONDITIONS = {
    "clicked": "clicked BETWEEN 0 AND 1",
    "reward": "(reward IS NULL) = (clicked IS NULL) AND reward BETWEEN 0 AND clicked",
    "base_reward": "(base_reward IS NULL) = (clicked IS NULL) AND base_reward BETWEEN 0 AND clicked",
}
_COLUMN_COMMENTS = {
    "clicked": "Share of its lists with a click, 0 to 1; null: it came without an evaluation",
    "reward": "Mean reciprocal rank of the first click, in its lists as shown; null likewise",
    "base_reward": "Mean reciprocal rank of these clicks in the base order; null likewise",
}
# The one expression the two databases spell differently.
_DURATION_S = {
    "sqlite": "round((julianday(r.closed_at) - julianday(r.opened_at)) * 86400, 3)",
    "postgresql": "round(extract(epoch FROM r.closed_at - r.opened_at), 3)::double precision",
}
_MEAN = """
    coalesce(s.{column} / s.n_updates, (SELECT avg(u.{column}) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.clicked IS NOT NULL)) AS {column},"""
_EVALUATIONS = f""",
    -- how well it does, by the clicks of its devices' users: means over updates; of secure sums with the helpers' noise
    coalesce(s.n_updates, (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.clicked IS NOT NULL)) AS n_evaluations,\
{"".join(_MEAN.format(column=column) for column in _CONDITIONS)}
    s.deviation / s.n_updates AS evaluation_deviation  -- standard deviation of the noise in each mean; null: none"""
_JOINED = "\nLEFT JOIN round_evaluations s ON s.federation = r.federation AND s.round = r.number"
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
      WHERE u.federation = r.federation AND u.round = r.number AND u.vote = 1) AS n_better,  -- who finds it better
    t.n_updates AS tally_n_updates,  -- updates in its secure sums, where these have votes; null: none
    t.worse AS tally_worse,          -- votes worse among them, with the helpers' noise
    t.better AS tally_better,        -- votes better among them, likewise
    t.deviation AS tally_deviation   /* standard deviation of the noise in each, in votes */{columns}
FROM rounds r
LEFT JOIN round_aggregations a ON a.federation = r.federation AND a.round = r.number
LEFT JOIN round_tallies t ON t.federation = r.federation AND t.round = r.number{joined}
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
    "COLUMN round_history.tally_n_updates": "Updates in its secure sums, where these have votes; null: none",
    "COLUMN round_history.tally_worse": "Votes worse among them, with the noise of helpers",
    "COLUMN round_history.tally_better": "Votes better among them, likewise",
    "COLUMN round_history.tally_deviation": "Standard deviation of the noise in each, in votes",
}
_EVALUATION_COMMENTS = {
    "COLUMN round_history.n_evaluations": "Its updates that say how it does; of secure sums all updates in them",
    "COLUMN round_history.clicked": "Mean share of their lists with a click; null: nobody was asked",
    "COLUMN round_history.reward": "Mean reciprocal rank of the first click, in lists as shown; null likewise",
    "COLUMN round_history.base_reward": "Mean reciprocal rank of these clicks in the base order; null likewise",
    "COLUMN round_history.evaluation_deviation": "Standard deviation of the noise in each mean; null: none is added",
}


def upgrade() -> None:
    # As SQL, or SQLite would write the table anew, with all updates there ever were.
    for column, condition in _CONDITIONS.items():
        named = f"CONSTRAINT ck_updates_{column} CHECK ({condition})"
        op.execute(f"ALTER TABLE updates ADD COLUMN {column} FLOAT {named}")
        if op.get_context().dialect.name == "postgresql":  # SQLite keeps no comments
            op.execute(f"COMMENT ON COLUMN updates.{column} IS '{_COLUMN_COMMENTS[column]}'")
    op.create_index(
        "ix_updates_evaluations",
        "updates",
        ["federation", "round", *_CONDITIONS],
        sqlite_where=sa.text("clicked IS NOT NULL"),
        postgresql_where=sa.text("clicked IS NOT NULL"),
    )
    op.create_table(
        "round_evaluations",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "round", sa.Integer(), nullable=False, comment="The round: completed, under a policy with evaluation"
        ),
        sa.Column("n_updates", sa.Integer(), nullable=False, comment="Updates in its sums"),
        sa.Column(
            "clicked", sa.Float(), nullable=False, comment="Sum of their shares of lists with a click, with noise"
        ),
        sa.Column(
            "reward", sa.Float(), nullable=False, comment="Sum of their mean rewards of lists as shown, likewise"
        ),
        sa.Column(
            "base_reward", sa.Float(), nullable=False, comment="Sum of their mean rewards in the base order, likewise"
        ),
        sa.Column(
            "deviation",
            sa.Float(),
            nullable=False,
            comment="Standard deviation of the helpers' noise in each, in updates",
        ),
        sa.PrimaryKeyConstraint("federation", "round", name=op.f("pk_round_evaluations")),
        sa.ForeignKeyConstraint(
            ["federation", "round"],
            ["rounds.federation", "rounds.number"],
            name=op.f("fk_round_evaluations_rounds_federation_round"),
        ),
        sa.CheckConstraint("n_updates >= 1", name=op.f("ck_round_evaluations_n_updates")),
        sa.CheckConstraint("deviation >= 0", name=op.f("ck_round_evaluations_deviation")),
        comment="What the evaluations in a round's secure sums come to; without those that an erased client was in",
    )
    op.execute("DROP VIEW round_history")
    _create_view(_EVALUATIONS, _JOINED, _COMMENTS | _EVALUATION_COMMENTS)
    _comment_restored("The older model whose weights it has: those since")


def downgrade() -> None:
    op.execute("DROP VIEW round_history")
    op.drop_table("round_evaluations")
    op.drop_index("ix_updates_evaluations", "updates")
    # The last first: its condition names the first, and goes with it.
    for column in reversed(_CONDITIONS):
        op.execute(f"ALTER TABLE updates DROP COLUMN {column}")
    _create_view("", "", _COMMENTS)
    _comment_restored("The anchor whose weights it has: the models since")


def _comment_restored(whose: str) -> None:
    """Say which model's weights a restored one has: by evaluations it is none that devices compared with."""
    if op.get_context().dialect.name == "postgresql":
        comment = f"{whose} were taken back; null of any other origin"
        op.alter_column("models", "restored_version", existing_type=sa.Integer(), comment=comment)


def _create_view(columns: str, joined: str, comments: dict[str, str]) -> None:
    """Create the view; SQLite has no comments."""
    dialect = op.get_bind().dialect.name
    op.execute(_ROUND_HISTORY.format(duration_s=_DURATION_S[dialect], columns=columns, joined=joined))
    if dialect == "postgresql":
        for what, comment in comments.items():
            op.execute(f"COMMENT ON {what} IS '{comment}'")
