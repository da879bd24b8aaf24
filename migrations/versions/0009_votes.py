"""Devices vote on the newest model against an older one, the anchor, and a model may be restored from it.

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_ROUND = (
    "The round that made it; null for version 0 and where unlearning did",
    "The round that made it; null of any other origin",
)
_JOB = (
    "The unlearning job that made it; null where a round did",
    "The unlearning job that made it; null of any other origin",
)
_MADE_BY_ONE = "(version = 0 OR unlearning_job IS NOT NULL) = (round IS NULL)"
_ONE_ORIGIN = (
    "CASE WHEN version = 0 THEN 1 ELSE 0 END + CASE WHEN round IS NULL THEN 0 ELSE 1 END"
    " + CASE WHEN unlearning_job IS NULL THEN 0 ELSE 1 END + CASE WHEN restored_version IS NULL THEN 0 ELSE 1 END = 1"
)

# The one expression the two databases spell differently.
_DURATION_S = {
    "sqlite": "round((julianday(r.closed_at) - julianday(r.opened_at)) * 86400, 3)",
    "postgresql": "round(extract(epoch FROM r.closed_at - r.opened_at), 3)::double precision",
}
_VOTES = """,
    r.anchor_version,   -- the model that devices were asked to compare the newest with; null: none
    (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.vote = -1) AS n_worse,  -- who finds it worse
    (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.vote = 0) AS n_none,    -- who cannot tell yet
    (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.vote = 1) AS n_better   -- who finds it better"""
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
    coalesce(a.n_dropped, 0) AS n_dropped  /* updates the rule left out */{votes}
FROM rounds r
LEFT JOIN round_aggregations a ON a.federation = r.federation AND a.round = r.number
"""
_CLIENT_HISTORY = """
CREATE VIEW client_history AS
-- One row for each client and round it contributed to.
SELECT
    u.federation,
    c.client_id,
    u.round,
    u.update_id,
    u.n_interactions,
    u.n_bytes,          -- length of the update as sent
    u.received_at,      -- UTC
    u.base_version,     -- the model the client trained from
    r.state AS round_state,
    r.model_version,    -- the model its update went into; null unless the round completed
    f.fate,             -- what the rule made of it: kept, clipped or dropped; null without a rule
    f.share,            -- how much of the model's step is this update's, 0 to 1
    f.score,            -- what the rule decided by
    f.reason AS fate_reason,
    -- what is stored of it; deleted: its round was thinned. By its length and not by cipher, which SQLite would look
    -- for behind the body
    CASE WHEN u.body IS NULL THEN 'deleted' WHEN length(u.body) = u.n_bytes THEN 'plain' ELSE 'sealed' END AS body
FROM updates u
JOIN clients c ON c.id = u.client
JOIN rounds r ON r.federation = u.federation AND r.number = u.round
LEFT JOIN update_fates f ON f.federation = u.federation AND f.round = u.round AND f.client = u.client
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
    "VIEW client_history": "What every client contributed to every round",
    "COLUMN client_history.n_bytes": "Length of the update as sent",
    "COLUMN client_history.round_state": "State of the round",
    "COLUMN client_history.model_version": "The model the update went into; null unless the round completed",
    "COLUMN client_history.fate": "What the rule made of it: kept, clipped or dropped; null without a rule",
}
_VOTE_COMMENTS = {
    "COLUMN round_history.n_worse": "Its updates that came with the vote worse",
    "COLUMN round_history.n_none": "Its updates that came with the vote none",
    "COLUMN round_history.n_better": "Its updates that came with the vote better",
}


def upgrade() -> None:
    _drop_views()
    # Restored before a downgrade; no job has the number 0.
    n_known = op.get_bind().scalar(sa.text("SELECT count(*) FROM models WHERE unlearning_job = 0"))
    with op.batch_alter_table("models") as models:
        models.add_column(
            sa.Column(
                "restored_version",
                sa.Integer(),
                comment="The anchor whose weights it has: the models since were taken back; null of any other origin",
            )
        )
        models.create_foreign_key(
            op.f("fk_models_models_federation_restored_version"),
            "models",
            ["federation", "restored_version"],
            ["federation", "version"],
        )
        models.drop_constraint(op.f("ck_models_round_iff_made_by_one"), type_="check")
        models.create_check_constraint(
            op.f("ck_models_restored_onto_the_anchor"), "restored_version IS NULL OR restored_version = base_version"
        )
        if not n_known:  # SQLite writes the table anew each time, with all weights
            models.create_check_constraint(op.f("ck_models_one_origin"), _ONE_ORIGIN)
    if n_known:
        op.execute("UPDATE models SET restored_version = base_version, unlearning_job = NULL WHERE unlearning_job = 0")
        with op.batch_alter_table("models") as models:
            models.create_check_constraint(op.f("ck_models_one_origin"), _ONE_ORIGIN)
    op.create_index(
        "ix_models_restored",
        "models",
        ["federation", "restored_version", "version"],
        sqlite_where=sa.text("restored_version IS NOT NULL"),
        postgresql_where=sa.text("restored_version IS NOT NULL"),
    )
    with op.batch_alter_table("rounds") as rounds:
        rounds.add_column(
            sa.Column(
                "anchor_version",
                sa.Integer(),
                comment="The model that devices compare the newest with, and vote on; null: nobody is asked to",
            )
        )
        rounds.create_foreign_key(
            op.f("fk_rounds_models_federation_anchor_version"),
            "models",
            ["federation", "anchor_version"],
            ["federation", "version"],
        )
        rounds.create_check_constraint(op.f("ck_rounds_anchor_version"), "anchor_version <= base_version")
    # As SQL, or SQLite would write the table anew, with all updates there ever were.
    op.execute("ALTER TABLE updates ADD COLUMN vote SMALLINT CONSTRAINT ck_updates_vote CHECK (vote IN (-1, 0, 1))")
    op.create_index(
        "ix_updates_votes",
        "updates",
        ["federation", "round", "client", "vote"],
        sqlite_where=sa.text("vote IS NOT NULL"),
        postgresql_where=sa.text("vote IS NOT NULL"),
    )
    if op.get_context().dialect.name == "postgresql":  # SQLite keeps no comments
        op.execute(
            "COMMENT ON COLUMN updates.vote IS "
            "'Of the newest model against its round''s anchor: -1 worse, 0 none, 1 better; null: no vote'"
        )
    _comment_origins(1)
    _create_views(_VOTES, _COMMENTS | _VOTE_COMMENTS)


def downgrade() -> None:
    _drop_views()
    op.drop_index("ix_updates_votes", "updates")
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE updates DROP COLUMN vote")
    else:
        with op.batch_alter_table("updates") as updates:
            updates.drop_constraint(op.f("ck_updates_vote"), type_="check")
            updates.drop_column("vote")
    with op.batch_alter_table("rounds") as rounds:
        rounds.drop_constraint(op.f("ck_rounds_anchor_version"), type_="check")
        rounds.drop_constraint(op.f("fk_rounds_models_federation_anchor_version"), type_="foreignkey")
        rounds.drop_column("anchor_version")
    op.drop_index("ix_models_restored", "models")
    with op.batch_alter_table("models") as models:
        models.drop_constraint(op.f("ck_models_restored_onto_the_anchor"), type_="check")
        models.drop_constraint(op.f("ck_models_one_origin"), type_="check")
    # To a foltr of before it is like one of unlearning: an older model takes the place of what was newest.
    op.execute("UPDATE models SET unlearning_job = 0 WHERE restored_version IS NOT NULL")
    with op.batch_alter_table("models") as models:
        models.drop_constraint(op.f("fk_models_models_federation_restored_version"), type_="foreignkey")
        models.drop_column("restored_version")
        models.create_check_constraint(op.f("ck_models_round_iff_made_by_one"), _MADE_BY_ONE)
    _comment_origins(0)
    _create_views("", _COMMENTS)


def _comment_origins(version: int) -> None:
    """Say who makes models; SQLite has no comments."""
    if op.get_context().dialect.name != "postgresql":
        return
    op.alter_column("models", "round", existing_type=sa.Integer(), comment=_ROUND[version])
    op.alter_column("models", "unlearning_job", existing_type=sa.Integer(), comment=_JOB[version])


def _drop_views() -> None:
    for view in ("client_history", "round_history"):
        op.execute(f"DROP VIEW {view}")


def _create_views(votes: str, comments: dict[str, str]) -> None:
    dialect = op.get_bind().dialect.name
    op.execute(_ROUND_HISTORY.format(duration_s=_DURATION_S[dialect], votes=votes))
    op.execute(_CLIENT_HISTORY)
    if dialect == "postgresql":
        for what, comment in comments.items():
            op.execute(f"COMMENT ON {what} IS '{comment}'")
