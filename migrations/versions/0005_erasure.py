"""Erasures, unlearning jobs, the audit log; sealed and thinned updates; tainted and withdrawn models.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_moment = sa.DateTime(timezone=True)
_client_id = sa.String(64).with_variant(sa.String(64, collation="C"), "postgresql")

_PSEUDONYM_KEY = sa.Column(
    "pseudonym_key", sa.LargeBinary(), comment="Key of the pseudonyms of erased clients; secret, never changed"
)
_N_DELETIONS = sa.Column(
    "n_deletions",
    sa.Integer(),
    nullable=False,
    server_default="0",
    comment="Counts transactions that deleted something of a forgotten client",
)
_N_PURGED_COMMENT = "So many of them have left no bytes: the database was purged since"
_NEW_OF_MODELS = (
    sa.Column("tainted_at", _moment, comment="Since when it is known to hold what an erased client sent, UTC"),
    sa.Column("withdrawn_at", _moment, comment="When its weights were deleted, UTC; null while they are there"),
    sa.Column("unlearning_job", sa.Integer(), comment="The unlearning job that made it; null where a round did"),
)
_CIPHER = sa.Column(
    "cipher",
    sa.String(64),
    nullable=False,
    server_default="",
    comment="How body is sealed with its client's data key: aes-256-gcm; empty: it is as sent",
)

# Table to its constraints that change: name to condition, before and after.
_CHECKS_BEFORE = {
    "models": {"ck_models_round_iff_not_initial": "(version = 0) = (round IS NULL)"},
    "updates": {"ck_updates_n_bytes": "n_bytes = length(body)"},
}
_CHECKS_AFTER = {
    "models": {
        "ck_models_round_iff_made_by_one": "(version = 0 OR unlearning_job IS NOT NULL) = (round IS NULL)",
        "ck_models_weights_until_withdrawn": "(withdrawn_at IS NULL) = (weights IS NOT NULL)",
        "ck_models_withdrawn_only_tainted": "withdrawn_at IS NULL OR tainted_at IS NOT NULL",
    },
    "updates": {
        "ck_updates_cipher": "cipher IN ('', 'aes-256-gcm')",
        "ck_updates_n_bytes": "length(body) = n_bytes + CASE cipher WHEN '' THEN 0 ELSE 28 END",
    },
}
# Column to its comment before and after; SQLite keeps none.
_COMMENTS = {
    "models.round": (
        "The round that made it; null for version 0",
        "The round that made it; null for version 0 and where unlearning did",
    ),
    "models.weights": (
        "Little-endian float32: the ranker's, then what only training uses",
        "Little-endian float32: the ranker's, then what only training uses; null once withdrawn",
    ),
    "updates.n_bytes": ("Length of body", "Length of the update as sent"),
    "updates.body": ("The update itself, as sent", "The update itself, sealed as cipher says; null once thinned"),
}

_CLIENT_HISTORY = """
CREATE VIEW client_history AS
-- One row for each client and round it contributed to.
SELECT
    u.federation,
    u.client_id,
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
    f.reason AS fate_reason{more}
FROM updates u
JOIN rounds r ON r.federation = u.federation AND r.number = u.round
LEFT JOIN update_fates f ON f.federation = u.federation AND f.round = u.round AND f.client_id = u.client_id
"""
# By its length and not by cipher, which SQLite would look for behind the body.
_BODY = """,
    -- what is stored of it; deleted: its round was thinned
    CASE WHEN u.body IS NULL THEN 'deleted' WHEN length(u.body) = u.n_bytes THEN 'plain' ELSE 'sealed' END AS body"""
_VIEW_COMMENT = "What every client contributed to every round"
_VIEW_COLUMN_COMMENTS = {
    "n_bytes": "Length of the update as sent",
    "round_state": "State of the round",
    "model_version": "The model the update went into; null unless the round completed",
    "fate": "What the rule made of it: kept, clipped or dropped; null without a rule",
}


def upgrade() -> None:
    op.add_column("federations", _PSEUDONYM_KEY._copy())
    op.add_column("federations", _N_DELETIONS._copy())
    # As a part of the column, because SQLite adds no constraint to a table that is there.
    op.execute(
        "ALTER TABLE federations ADD COLUMN n_purged INTEGER DEFAULT '0' NOT NULL CONSTRAINT ck_federations_n_purged "
        "CHECK (n_purged BETWEEN 0 AND n_deletions)"
    )
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_on_sqlite(after=True)
    else:
        op.execute("DROP VIEW client_history")
        for column in _NEW_OF_MODELS:
            op.add_column("models", column._copy())
        op.add_column("updates", _CIPHER._copy())
        for table, column in (("models", "weights"), ("updates", "body")):
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL")
        op.execute(f"COMMENT ON COLUMN federations.n_purged IS '{_N_PURGED_COMMENT}'")
        _change_checks(_CHECKS_BEFORE, _CHECKS_AFTER)
        _comment(1)
        _create_client_history(_BODY)
    _create_tables()


def downgrade() -> None:
    connection = op.get_bind()
    for what, rows in (
        ("erasures", "erasures"),
        ("unlearning jobs", "unlearning_jobs"),
        ("sealed or thinned updates", "updates WHERE cipher <> '' OR body IS NULL"),
    ):
        if connection.execute(sa.text(f"SELECT 1 FROM {rows} LIMIT 1")).first() is not None:
            raise RuntimeError(
                f"there are {what}, which revision 0004 cannot hold: restore the backup made before 0005"
            )
    for table in ("audit_log", "erasures", "unlearning_jobs"):
        op.drop_table(table)
    if connection.dialect.name == "sqlite":
        _rebuild_on_sqlite(after=False)
    else:
        op.execute("DROP VIEW client_history")
        _change_checks(_CHECKS_AFTER, _CHECKS_BEFORE)
        for column in _NEW_OF_MODELS:
            op.drop_column("models", column.name)
        op.drop_column("updates", "cipher")
        for table, column in (("models", "weights"), ("updates", "body")):
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL")
        _comment(0)
        _create_client_history("")
    for column in ("n_purged", "n_deletions", "pseudonym_key"):
        op.drop_column("federations", column)


def _change_checks(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> None:
    for table, checks in before.items():
        for name in checks:
            op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    for table, checks in after.items():
        for name, condition in checks.items():
            op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({condition})")


def _comment(which: int) -> None:
    for column, comments in _COMMENTS.items():
        quoted = comments[which].replace("'", "''")
        op.execute(f"COMMENT ON COLUMN {column} IS '{quoted}'")


def _create_client_history(more: str) -> None:
    op.execute(_CLIENT_HISTORY.format(more=more))
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"COMMENT ON VIEW client_history IS '{_VIEW_COMMENT}'")
        for column, comment in _VIEW_COLUMN_COMMENTS.items():
            op.execute(f"COMMENT ON COLUMN client_history.{column} IS '{comment}'")


def _rebuild_on_sqlite(*, after: bool) -> None:
    """SQLite changes no constraint of a table that is there: a new one is made, filled, and takes its name.

    `storage.database.Database.rebuilding` lets it be dropped although others refer to it.
    """
    connection = op.get_bind()
    round_history = connection.execute(
        sa.text("SELECT sql FROM sqlite_master WHERE name = 'round_history'")
    ).scalar_one()
    for view in ("client_history", "round_history"):
        op.execute(f"DROP VIEW {view}")
    for table, make in (("models", _new_models), ("updates", _new_updates)):
        checks = [
            sa.CheckConstraint(condition, name=op.f(name))
            for name, condition in (_CHECKS_AFTER if after else _CHECKS_BEFORE)[table].items()
        ]
        columns = ", ".join(make(f"new_{table}", checks, after))
        op.execute(f"INSERT INTO new_{table} ({columns}) SELECT {columns} FROM {table}")
        op.execute(f"DROP TABLE {table}")
        op.execute(f"ALTER TABLE new_{table} RENAME TO {table}")
    op.execute(round_history)
    _create_client_history(_BODY if after else "")


def _new_models(name: str, checks: list[sa.CheckConstraint], after: bool) -> list[str]:
    """Make it; the columns that are filled from the old one."""
    kept = (
        sa.Column("federation", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("base_version", sa.Integer()),
        sa.Column("round", sa.Integer()),
        sa.Column("n_features", sa.Integer(), nullable=False),
        sa.Column("weights", sa.LargeBinary(), nullable=after),
        sa.Column("created_at", _moment, nullable=False),
        sa.Column("published_at", _moment),
        sa.Column("optimizer_state", sa.LargeBinary()),
        sa.Column("defence_state", sa.LargeBinary()),
    )
    op.create_table(
        name,
        *kept,
        *([column._copy() for column in _NEW_OF_MODELS] if after else []),
        *checks,
        sa.CheckConstraint(
            "(version = 0) = (base_version IS NULL)", name=op.f("ck_models_base_version_iff_not_initial")
        ),
        sa.CheckConstraint("base_version < version", name=op.f("ck_models_base_version_before_version")),
        sa.CheckConstraint("length(weights) = 4 * n_features", name=op.f("ck_models_weights_length")),
        sa.CheckConstraint("version >= 0", name=op.f("ck_models_version")),
        sa.ForeignKeyConstraint(
            ["federation", "base_version"],
            ["models.federation", "models.version"],
            name=op.f("fk_models_models_federation_base_version"),
        ),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_models_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "version", name=op.f("pk_models")),
    )
    return [column.name for column in kept]


def _new_updates(name: str, checks: list[sa.CheckConstraint], after: bool) -> list[str]:
    """Make it; the columns that are filled from the old one."""
    kept = (
        sa.Column("federation", sa.String(64), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("client_id", _client_id, nullable=False),
        sa.Column("update_id", sa.String(36), nullable=False),
        sa.Column("base_version", sa.Integer(), nullable=False),
        sa.Column("n_interactions", sa.Integer(), nullable=False),
        sa.Column("encoding", sa.String(64), nullable=False),
        sa.Column("n_bytes", sa.Integer(), nullable=False),
        sa.Column("received_at", _moment, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=after),
    )
    op.create_table(
        name,
        *kept,
        *([_CIPHER._copy()] if after else []),
        *checks,
        sa.CheckConstraint("base_version >= 0", name=op.f("ck_updates_base_version")),
        sa.CheckConstraint("length(update_id) BETWEEN 1 AND 36", name=op.f("ck_updates_update_id_length")),
        sa.CheckConstraint("n_interactions > 0", name=op.f("ck_updates_n_interactions")),
        sa.ForeignKeyConstraint(
            ["federation", "client_id"],
            ["clients.federation", "clients.client_id"],
            name=op.f("fk_updates_clients_federation_client_id"),
        ),
        sa.ForeignKeyConstraint(
            ["federation", "round"],
            ["rounds.federation", "rounds.number"],
            name=op.f("fk_updates_rounds_federation_round"),
        ),
        sa.PrimaryKeyConstraint("federation", "round", "client_id", name=op.f("pk_updates")),
        sa.UniqueConstraint(
            "federation", "client_id", "update_id", name=op.f("uq_updates_federation_client_id_update_id")
        ),
    )
    return [column.name for column in kept]


def _create_tables() -> None:
    op.create_table(
        "unlearning_jobs",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("number", sa.Integer(), nullable=False, comment="1, 2, 3, ..."),
        sa.Column("state", sa.String(16), nullable=False, comment="running, paused, done or failed"),
        sa.Column("strategy", sa.String(16), nullable=False, comment="fed_eraser, rollback or retrain"),
        sa.Column(
            "interval",
            sa.Integer(),
            nullable=False,
            comment="Every so many rounds one is replayed; delta t of the thesis",
        ),
        sa.Column(
            "n_local",
            sa.Integer(),
            nullable=False,
            comment="Interactions a client learns from in a step; n' of the thesis",
        ),
        sa.Column("created_at", _moment, nullable=False, comment="When it was created, UTC"),
        sa.Column("start_version", sa.Integer(), nullable=False, comment="The model it started from"),
        sa.Column("start_round", sa.Integer(), nullable=False, comment="The first round it replays"),
        sa.Column("step", sa.Integer(), nullable=False, comment="Calibration rounds that are done"),
        sa.Column("n_steps", sa.Integer(), nullable=False, comment="Calibration rounds there are to do, as known now"),
        sa.Column(
            "last_round", sa.Integer(), comment="The stored round that its last step stood for; null before the first"
        ),
        sa.Column(
            "weights", sa.LargeBinary(), comment="The model so far, little-endian float32; null once the job is closed"
        ),
        sa.Column(
            "coverage_sum",
            sa.Float(),
            nullable=False,
            comment="Sum of the coverages, 0 to 1, of the steps that are done",
        ),
        sa.Column("optimizer_state", sa.LargeBinary(), comment="The federator's optimiser after the step, or null"),
        sa.Column(
            "defence_state", sa.LargeBinary(), comment="What the rule of aggregation remembers after the step, or null"
        ),
        sa.Column("reason", sa.Text(), comment="Why it is paused or failed; null otherwise"),
        sa.Column("closed_at", _moment, comment="When it was done or failed, UTC; null while open"),
        sa.Column("model_version", sa.Integer(), comment="The model it made; null unless done"),
        sa.Column("figures", sa.Text(), nullable=False, comment="What was measured of its model, JSON"),
        sa.CheckConstraint(
            "(state IN ('running', 'paused')) = (closed_at IS NULL)",
            name=op.f("ck_unlearning_jobs_closed_at_iff_closed"),
        ),
        sa.CheckConstraint("coverage_sum >= 0 AND coverage_sum <= step", name=op.f("ck_unlearning_jobs_coverage_sum")),
        sa.CheckConstraint(
            "(state = 'done') = (model_version IS NOT NULL)", name=op.f("ck_unlearning_jobs_model_version_iff_done")
        ),
        sa.CheckConstraint("number >= 1", name=op.f("ck_unlearning_jobs_number")),
        sa.CheckConstraint("interval >= 1 AND n_local >= 1 AND start_round >= 1", name=op.f("ck_unlearning_jobs_plan")),
        sa.CheckConstraint(
            "(state IN ('paused', 'failed')) = (reason IS NOT NULL)",
            name=op.f("ck_unlearning_jobs_reason_iff_not_well"),
        ),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 500", name=op.f("ck_unlearning_jobs_reason_length")),
        sa.CheckConstraint("state IN ('running', 'paused', 'done', 'failed')", name=op.f("ck_unlearning_jobs_state")),
        sa.CheckConstraint("step >= 0 AND n_steps >= step", name=op.f("ck_unlearning_jobs_steps")),
        sa.CheckConstraint(
            "strategy IN ('fed_eraser', 'rollback', 'retrain')", name=op.f("ck_unlearning_jobs_strategy")
        ),
        sa.CheckConstraint(
            "(state IN ('running', 'paused')) = (weights IS NOT NULL)", name=op.f("ck_unlearning_jobs_weights_iff_open")
        ),
        sa.ForeignKeyConstraint(
            ["federation", "model_version"],
            ["models.federation", "models.version"],
            name=op.f("fk_unlearning_jobs_models_federation_model_version"),
        ),
        sa.ForeignKeyConstraint(
            ["federation", "start_version"],
            ["models.federation", "models.version"],
            name=op.f("fk_unlearning_jobs_models_federation_start_version"),
        ),
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_unlearning_jobs_federations_federation")
        ),
        sa.PrimaryKeyConstraint("federation", "number", name=op.f("pk_unlearning_jobs")),
        comment="Every attempt to make a model without the clients that were erased",
    )
    op.create_table(
        "erasures",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("pseudonym", sa.String(32), nullable=False, comment="What is left of its name: 32 hex digits"),
        sa.Column("client_id", _client_id, comment="Its name, until its device was told; then null"),
        sa.Column("state", sa.String(16), nullable=False, comment="erased, waiting, unlearning or done"),
        sa.Column("requested_at", _moment, nullable=False, comment="When it was asked for, UTC"),
        sa.Column("requested_by", sa.String(16), nullable=False, comment="device or operator"),
        sa.Column("erased_at", _moment, nullable=False, comment="When its rows were deleted, UTC"),
        sa.Column("completed_at", _moment, comment="When no model in service held its updates any more, UTC"),
        sa.Column("n_rounds", sa.Integer(), nullable=False, comment="Completed rounds that its updates were in"),
        sa.Column("n_updates", sa.Integer(), nullable=False, comment="Its updates that were deleted"),
        sa.Column("n_events", sa.Integer(), nullable=False, comment="Its events that were deleted"),
        sa.Column(
            "erased_digest",
            sa.String(64),
            nullable=False,
            comment="SHA-256 over the deleted updates' bytes as stored, in order of rounds, in hex",
        ),
        sa.Column(
            "first_round", sa.Integer(), comment="The first completed round with an update of it; null: in no model"
        ),
        sa.Column("key_destroyed", sa.Boolean(), nullable=False, comment="No data key of it exists any more"),
        sa.Column("told", sa.Boolean(), nullable=False, comment="Its device knows"),
        sa.Column("job", sa.Integer(), comment="The unlearning job it is or was in"),
        sa.Column(
            "receipt", sa.Text(), comment="The signed receipt; null before it is done, and where nothing is signed"
        ),
        sa.Column("audit_seq", sa.Integer(), comment="The entry of the audit log that completes it; null before"),
        sa.CheckConstraint("(state = 'done') = (audit_seq IS NOT NULL)", name=op.f("ck_erasures_audit_seq_iff_done")),
        sa.CheckConstraint("length(client_id) BETWEEN 1 AND 64", name=op.f("ck_erasures_client_id_length")),
        sa.CheckConstraint(
            "(state = 'done') = (completed_at IS NOT NULL)", name=op.f("ck_erasures_completed_at_iff_done")
        ),
        sa.CheckConstraint(
            "n_rounds >= 0 AND n_updates >= n_rounds AND n_events >= 0", name=op.f("ck_erasures_counts")
        ),
        sa.CheckConstraint("length(erased_digest) = 64", name=op.f("ck_erasures_erased_digest_length")),
        sa.CheckConstraint(
            "(n_rounds = 0) = (first_round IS NULL)", name=op.f("ck_erasures_first_round_iff_in_models")
        ),
        sa.CheckConstraint("length(pseudonym) = 32", name=op.f("ck_erasures_pseudonym_length")),
        sa.CheckConstraint("state = 'done' OR receipt IS NULL", name=op.f("ck_erasures_receipt_only_done")),
        sa.CheckConstraint("requested_by IN ('device', 'operator')", name=op.f("ck_erasures_requested_by")),
        sa.CheckConstraint("state IN ('erased', 'waiting', 'unlearning', 'done')", name=op.f("ck_erasures_state")),
        sa.CheckConstraint("state <> 'unlearning' OR job IS NOT NULL", name=op.f("ck_erasures_unlearning_in_a_job")),
        sa.ForeignKeyConstraint(
            ["federation", "job"],
            ["unlearning_jobs.federation", "unlearning_jobs.number"],
            name=op.f("fk_erasures_unlearning_jobs_federation_job"),
        ),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_erasures_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "pseudonym", name=op.f("pk_erasures")),
        comment="Every client that was forgotten: what proves it, and that its name is not used again",
    )
    op.create_table(
        "audit_log",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("seq", sa.Integer(), nullable=False, comment="1, 2, 3, ..."),
        sa.Column("at", _moment, nullable=False, comment="When it happened, UTC"),
        sa.Column("kind", sa.String(64), nullable=False, comment="What happened, e.g. client_erased"),
        sa.Column("body", sa.Text(), nullable=False, comment="What is said of it, JSON; nothing personal"),
        sa.Column("previous_hash", sa.String(64), nullable=False, comment="Hash of the entry before"),
        sa.Column(
            "hash", sa.String(64), nullable=False, comment="SHA-256 over this entry and the hash before it, in hex"
        ),
        sa.CheckConstraint("length(previous_hash) = 64 AND length(hash) = 64", name=op.f("ck_audit_log_hash_length")),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_audit_log_kind_length")),
        sa.CheckConstraint("seq >= 1", name=op.f("ck_audit_log_seq")),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_audit_log_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "seq", name=op.f("pk_audit_log")),
        comment="What was erased and unlearned, as a chain of hashes: no entry can be changed unnoticed",
    )
    op.create_index(
        "uq_unlearning_jobs_one_open",
        "unlearning_jobs",
        ["federation"],
        unique=True,
        sqlite_where=sa.text("state IN ('running', 'paused')"),
        postgresql_where=sa.text("state IN ('running', 'paused')"),
    )
    op.create_index(op.f("ix_erasures_federation_state"), "erasures", ["federation", "state"])
