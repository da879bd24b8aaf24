"""Every table and view.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Types are written out here rather than taken from `storage`: a migration does not change when the code does.
_moment = sa.DateTime(timezone=True)
_client_id = sa.String(64).with_variant(sa.String(64, collation="C"), "postgresql")
_row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# In the order that they are made in.
_TABLES = (
    "federations", "audit_log", "body_parts", "clients", "ingest_batches", "ingest_workers", "ingestion", "leases",
    "models", "policies", "standbys", "trainings", "unlearning_resets", "defence_records", "events", "orders",
    "rounds", "unlearning_jobs", "erasures", "round_aggregations", "round_evaluations", "round_sums",
    "round_tallies", "stored_rounds", "updates", "helper_answers", "update_bodies", "update_fates",
)
_VIEWS = ("round_history", "client_history", "event_history")

# The one expression the two databases spell differently.
_DURATION_S = {
    "sqlite": "round((julianday(r.closed_at) - julianday(r.opened_at)) * 86400, 3)",
    "postgresql": "round(extract(epoch FROM r.closed_at - r.opened_at), 3)::double precision",
}
_MEAN = """coalesce(s.{0} / s.n_updates, (SELECT avg(u.{0}) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.clicked IS NOT NULL)) AS {0}"""
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
    t.deviation AS tally_deviation,  -- standard deviation of the noise in each, in votes
    -- how well it does, by the clicks of its devices' users: means over updates; of secure sums with the helpers' noise
    coalesce(s.n_updates, (SELECT count(*) FROM updates u
      WHERE u.federation = r.federation AND u.round = r.number AND u.clicked IS NOT NULL)) AS n_evaluations,
    {clicked},
    {reward},
    {base_reward},
    s.deviation / s.n_updates AS evaluation_deviation  -- standard deviation of the noise in each mean; null: none
FROM rounds r
LEFT JOIN round_aggregations a ON a.federation = r.federation AND a.round = r.number
LEFT JOIN round_tallies t ON t.federation = r.federation AND t.round = r.number
LEFT JOIN round_evaluations s ON s.federation = r.federation AND s.round = r.number
"""

# Joined with clients by the federation, too: with it SQLite begins with a client that is asked for, and its index; else
# it would read every update. The body is looked up for each row: of a join PostgreSQL would look into every part for
# each row, and not into the one it is in.
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
    coalesce((
        SELECT CASE b.cipher WHEN '' THEN 'plain' ELSE 'sealed' END FROM update_bodies b
        WHERE b.federation = u.federation AND b.round = u.round AND b.client = u.client AND b.part = r.part
    ), 'deleted') AS body      -- what is stored of it; deleted: its round was thinned
FROM updates u
JOIN clients c ON c.id = u.client AND c.federation = u.federation
JOIN rounds r ON r.federation = u.federation AND r.number = u.round
LEFT JOIN update_fates f ON f.federation = u.federation AND f.round = u.round AND f.client = u.client
"""

_EVENT_HISTORY = """
CREATE VIEW event_history AS
-- One row for each event, with the name of the client that it is about.
SELECT
    e.id,               -- order of recording
    e.federation,
    e.at,               -- UTC
    e.kind,
    e.code,             -- reason code of the receipt
    c.client_id,
    e.round,            -- the round as the message named it
    e.detail,
    e.n                 -- how often, within one batch of messages
FROM events e
LEFT JOIN clients c ON c.id = e.client
"""

_VIEW_COMMENTS = {
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
    "COLUMN round_history.n_evaluations": "Its updates that say how it does; of secure sums all updates in them",
    "COLUMN round_history.clicked": "Mean share of their lists with a click; null: nobody was asked",
    "COLUMN round_history.reward": "Mean reciprocal rank of the first click, in lists as shown; null likewise",
    "COLUMN round_history.base_reward": "Mean reciprocal rank of these clicks in the base order; null likewise",
    "COLUMN round_history.evaluation_deviation": "Standard deviation of the noise in each mean; null: none is added",
    "VIEW client_history": "What every client contributed to every round",
    "COLUMN client_history.n_bytes": "Length of the update as sent",
    "COLUMN client_history.round_state": "State of the round",
    "COLUMN client_history.model_version": "The model the update went into; null unless the round completed",
    "COLUMN client_history.fate": "What the rule made of it: kept, clipped or dropped; null without a rule",
    "VIEW event_history": "What was refused, who came and who left, by name",
}


def upgrade() -> None:
    _create_tables()
    if _is_postgresql():
        # ANALYZE would write names down in its statistics, of the most common ones and of bounds between others.
        op.execute("ALTER TABLE clients ALTER COLUMN client_id SET STATISTICS 0")
        # The part whose bodies are deleted row by row; the others are made as rounds need them.
        op.execute("CREATE TABLE update_bodies_0 PARTITION OF update_bodies FOR VALUES IN (0)")
    _create_views()


def downgrade() -> None:
    for view in reversed(_VIEWS):
        op.execute(f"DROP VIEW {view}")
    for table in reversed(_TABLES):
        op.drop_table(table)


def _is_postgresql() -> bool:
    return op.get_context().dialect.name == "postgresql"


def _column(name: str, kind: object, comment: str, **options: object) -> "sa.Column":
    return sa.Column(name, kind, nullable=False, comment=comment, **options)


def _nullable(name: str, kind: object, comment: str) -> "sa.Column":
    return sa.Column(name, kind, comment=comment)


def _federation() -> "sa.Column":
    return _column("federation", sa.String(64), "Federation")


def _index(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    """Create a partial index."""
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _only_on_sqlite(constraint: sa.Constraint) -> "list[sa.Constraint]":
    """On PostgreSQL the same statements do it (`foltr.storage.body_tables`)."""
    return [] if _is_postgresql() else [constraint]


# Names of constraints follow the convention of the metadata (`foltr.storage.schema`).
def _create_tables() -> None:
    op.create_table(
        "federations",
        _column("name", sa.String(64), "Name, as in the MQTT topics"),
        _column(
            "writer_epoch",
            sa.BigInteger(),
            "Epoch of the last claim, at least its unix seconds; only that federator may write",
        ),
        _nullable("last_batch_id", sa.String(36), "The last committed batch: offered again, it is not applied again"),
        _column("ranker", sa.String(64), "Kind of ranker: linear or neural"),
        _column("n_features", sa.Integer(), "Features of one document"),
        _column("created_at", _moment, "When the federation was created, UTC"),
        _nullable("selection_seed", sa.LargeBinary(), "First seed of random selections; never changed"),
        _column(
            "roster_version",
            sa.Integer(),
            "Version of the operator's roster; a lower one is refused",
            server_default="0",
        ),
        _nullable("roster", sa.LargeBinary(), "The operator's roster, as signed"),
        _column(
            "last_order",
            sa.Integer(),
            "Number of the operator's newest order that has an outcome; the next one is to follow it",
            server_default="0",
        ),
        _column(
            "method", sa.String(64), "How it learns, e.g. fpdgd; fixed as long as it exists", server_default="fpdgd"
        ),
        _nullable("hidden", sa.Integer(), "Hidden units of a neural ranker; null for a linear one"),
        _nullable("aggregation_seed", sa.LargeBinary(), "Seed of what an aggregation draws; secret, never changed"),
        _nullable("pseudonym_key", sa.LargeBinary(), "Key of the pseudonyms of erased clients; secret, never changed"),
        _column(
            "n_deletions",
            sa.Integer(),
            "Counts transactions that deleted something of a forgotten client",
            server_default="0",
        ),
        _column(
            "n_purged",
            sa.Integer(),
            "So many of them have left no byte of a name: the database was purged since",
            server_default="0",
        ),
        _column("privacy", sa.String(16), "trusted or secure; fixed as long as it exists", server_default="trusted"),
        _nullable("schema_hash", sa.LargeBinary(), "SHA-256 of the feature schema; null without one. Fixed likewise"),
        _nullable(
            "activation", sa.String(64), "Activation of the hidden units: sigmoid or relu; null for a linear one"
        ),
        sa.PrimaryKeyConstraint("name"),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 64", name="name_length"),
        sa.CheckConstraint("privacy IN ('trusted', 'secure')", name="privacy"),
        sa.CheckConstraint("writer_epoch >= 0", name="writer_epoch"),
        sa.CheckConstraint("n_features > 0", name="n_features"),
        sa.CheckConstraint("length(ranker) > 0", name="ranker_length"),
        sa.CheckConstraint("(ranker = 'neural') = (hidden IS NOT NULL)", name="hidden_iff_neural"),
        sa.CheckConstraint("(ranker = 'neural') = (activation IS NOT NULL)", name="activation_iff_neural"),
        sa.CheckConstraint("activation IN ('sigmoid', 'relu')", name="activation"),
        sa.CheckConstraint("n_purged BETWEEN 0 AND n_deletions", name="n_purged"),
        sa.CheckConstraint("last_order >= 0", name="last_order"),
        sa.CheckConstraint("length(schema_hash) = 32", name="schema_hash_length"),
        comment="One federation: a ranker learned together. The row is also the lock of its single writer",
    )
    op.create_table(
        "audit_log",
        _federation(),
        _column("seq", sa.Integer(), "1, 2, 3, ..."),
        _column("at", _moment, "When it happened, UTC"),
        _column("kind", sa.String(64), "What happened, e.g. client_erased"),
        _column("body", sa.Text(), "Details, JSON; nothing personal"),
        _column("previous_hash", sa.String(64), "Hash of the entry before"),
        _column("hash", sa.String(64), "SHA-256 over this entry and the hash before it, in hex"),
        sa.PrimaryKeyConstraint("federation", "seq"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("seq >= 1", name="seq"),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name="kind_length"),
        sa.CheckConstraint("length(previous_hash) = 64 AND length(hash) = 64", name="hash_length"),
        comment="What was erased and unlearned, in a chain of hashes: no entry can be changed unnoticed",
    )
    op.create_table(
        "body_parts",
        _column("part", sa.Integer(), "Its number, from 1; never used again", autoincrement=True),
        _federation(),
        _column("first_round", sa.Integer(), "The first round whose bodies it is for"),
        _column("last_round", sa.Integer(), "The last one"),
        _column(
            "interval",
            sa.Integer(),
            "Of these rounds 1, 1 + interval, 1 + 2 interval, ... are not in it: unlearning keeps them",
        ),
        _nullable("dropped_at", _moment, "When it was dropped with all bodies in it, UTC; null: it is there"),
        sa.PrimaryKeyConstraint("part"),
        sa.UniqueConstraint("federation", "first_round"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("first_round >= 1 AND last_round >= first_round", name="rounds"),
        sa.CheckConstraint("interval >= 1", name="interval"),
        comment="Blocks of rounds whose bodies go together: table update_bodies_N for part N; none on SQLite",
        sqlite_autoincrement=True,
    )
    op.create_table(
        "clients",
        _column("id", _row_id, "Key that other tables have; never used again", autoincrement=True),
        _federation(),
        _column("client_id", _client_id, "Identity of the device within the federation: its name"),
        _column("membership", sa.String(16), "joined, left, stranger or forgotten"),
        _column("online", sa.Boolean(), "Connected, as far as its status messages tell"),
        _nullable("joined_at", _moment, "Start of the latest membership, UTC; null for who is, or was, no member"),
        _nullable("left_at", _moment, "When it left, UTC; set exactly while membership is left"),
        _column("last_seen_at", _moment, "Latest join, leave or status, UTC"),
        _nullable("sdk_version", sa.String(64), "Version of foltr the device said it runs"),
        _nullable("public_key", sa.LargeBinary(), "Ed25519 key its messages are verified with"),
        _nullable("enrolment_serial", sa.Integer(), "Serial of the enrolment it joined with"),
        _nullable("revoked_at", _moment, "When its enrolment was revoked, UTC; null unless it is"),
        _column(
            "membership_sequence",
            sa.BigInteger(),
            "Sequence number of its newest join or leave; an older one is a replay",
            server_default="0",
        ),
        _column(
            "status_sequence",
            sa.BigInteger(),
            "Sequence number of its newest status; an older one is out of date",
            server_default="0",
        ),
        _nullable("quarantined_at", _moment, "When the operator quarantined it, UTC; null unless it is"),
        _nullable("quarantine_reason", sa.Text(), "Why, in the operator's words; null unless it is quarantined"),
        _column(
            "counted_through",
            sa.BigInteger(),
            "The watermark: its interactions up to this number are in stored updates, or will never be",
            server_default="0",
        ),
        _nullable("enrolment", sa.LargeBinary(), "That enrolment as the operator signed it: helpers are shown it"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("federation", "client_id"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("length(client_id) BETWEEN 1 AND 64", name="client_id_length"),
        sa.CheckConstraint("membership IN ('joined', 'left', 'stranger', 'forgotten')", name="membership"),
        sa.CheckConstraint("(membership = 'left') = (left_at IS NOT NULL)", name="left_at_iff_left"),
        sa.CheckConstraint("(membership IN ('joined', 'left')) = (joined_at IS NOT NULL)", name="joined_at_iff_client"),
        sa.CheckConstraint("length(sdk_version) <= 64", name="sdk_version_length"),
        sa.CheckConstraint(
            "(quarantined_at IS NULL) = (quarantine_reason IS NULL)", name="quarantine_reason_iff_quarantined"
        ),
        sa.CheckConstraint("length(quarantine_reason) <= 500", name="quarantine_reason_length"),
        sa.CheckConstraint("counted_through >= 0", name="counted_through"),
        comment="Every device that has joined, with its membership; and strangers. No other table has names",
        sqlite_autoincrement=True,
    )
    op.create_table(
        "ingest_batches",
        _federation(),
        _column("first_answer", sa.BigInteger(), "The number of its first answer"),
        _column("clients", sa.Text(), "Whose updates are in it: their keys in clients, as a list in JSON"),
        sa.PrimaryKeyConstraint("federation", "first_answer"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        comment="Batches that workers have stored since their leader let them take updates, until it does so again",
    )
    op.create_table(
        "ingest_workers",
        _federation(),
        _column("worker_id", sa.String(64), "One process, as long as it lives"),
        _column("seen_at", _moment, "When it wrote last; the database's clock, UTC"),
        _column(
            "arrived_before", _moment, "Every update that reached it before this moment is stored or answered, UTC"
        ),
        sa.PrimaryKeyConstraint("federation", "worker_id"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("length(worker_id) BETWEEN 1 AND 64", name="worker_id_length"),
        comment="Ingest workers; one that was not seen for a while is gone",
    )
    op.create_table(
        "ingestion",
        _federation(),
        _column("takes_updates", sa.String(16), "writer, leader or workers: nobody else stores an update"),
        _column(
            "n_answers",
            sa.BigInteger(),
            "Answers to devices that were numbered under the newest claim; each next one has a higher number",
        ),
        _column("n_collected", sa.Integer(), "Updates that the open round has; right while workers take them"),
        _column("evaluation", sa.Boolean(), "Whether devices are asked what their users' lists earned"),
        sa.PrimaryKeyConstraint("federation"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("takes_updates IN ('writer', 'leader', 'workers')", name="takes_updates"),
        sa.CheckConstraint("n_answers >= 0", name="n_answers"),
        sa.CheckConstraint("n_collected >= 0", name="n_collected"),
        comment="Who takes a federation's updates; no row: its writer. Changed only by who holds the "
        "federation's row",
    )
    op.create_table(
        "leases",
        _federation(),
        _nullable("holder", sa.String(128), "The process that leads: host, number, chance; null: given up"),
        _column("taken_at", _moment, "Since when; the database's clock, UTC"),
        _nullable("expires_at", _moment, "Until when, unless it is renewed; the same clock. Null: given up"),
        sa.PrimaryKeyConstraint("federation"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("length(holder) BETWEEN 1 AND 128", name="holder_length"),
        sa.CheckConstraint("(holder IS NULL) = (expires_at IS NULL)", name="given_up"),
        comment="The right to lead a federation, for a few seconds at a time; what fences a writer is its epoch",
    )
    op.create_table(
        "models",
        _federation(),
        _column("version", sa.Integer(), "0 is the initial model; each completed round adds one"),
        _nullable("base_version", sa.Integer(), "The model this one was aggregated onto; null for version 0"),
        _nullable("round", sa.Integer(), "The round that made it; null of any other origin"),
        _column("n_values", sa.Integer(), "Number of values in weights; for a linear ranker the features"),
        _nullable(
            "weights",
            sa.LargeBinary(),
            "Little-endian float32: the ranker's, then what only training uses; null once withdrawn",
        ),
        _column(
            "weights_hash", sa.LargeBinary(), "First 16 bytes of SHA-256 of its weights; stays when they are withdrawn"
        ),
        _column("created_at", _moment, "When it was committed, UTC"),
        _nullable("published_at", _moment, "When the broker took it, UTC; null: still to publish (outbox)"),
        _nullable(
            "optimizer_state",
            sa.LargeBinary(),
            "The federator's optimiser after this model, e.g. Adam's moments; null: none",
        ),
        _nullable("defence_state", sa.LargeBinary(), "What the rule of aggregation remembers of all together, or null"),
        _nullable("tainted_at", _moment, "Since when it is known to hold what an erased client sent, UTC"),
        _nullable("withdrawn_at", _moment, "When its weights were deleted, UTC; null while they are there"),
        _nullable("unlearning_job", sa.Integer(), "The unlearning job that made it; null of any other origin"),
        _nullable(
            "restored_version",
            sa.Integer(),
            "The older model whose weights it has: those since were rolled back; null of any other origin",
        ),
        sa.PrimaryKeyConstraint("federation", "version"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.ForeignKeyConstraint(["federation", "base_version"], ["models.federation", "models.version"]),
        sa.ForeignKeyConstraint(["federation", "restored_version"], ["models.federation", "models.version"]),
        sa.CheckConstraint("version >= 0", name="version"),
        sa.CheckConstraint("base_version < version", name="base_version_before_version"),
        sa.CheckConstraint("(version = 0) = (base_version IS NULL)", name="base_version_iff_not_initial"),
        sa.CheckConstraint(
            "CASE WHEN version = 0 THEN 1 ELSE 0 END + CASE WHEN round IS NULL THEN 0 ELSE 1 END + CASE WHEN "
            "unlearning_job IS NULL THEN 0 ELSE 1 END + CASE WHEN restored_version IS NULL THEN 0 ELSE 1 END = 1",
            name="one_origin",
        ),
        sa.CheckConstraint(
            "restored_version IS NULL OR restored_version = base_version", name="restored_onto_the_anchor"
        ),
        sa.CheckConstraint("length(weights) = 4 * n_values", name="weights_length"),
        sa.CheckConstraint("length(weights_hash) = 16", name="weights_hash_length"),
        sa.CheckConstraint("(withdrawn_at IS NULL) = (weights IS NOT NULL)", name="weights_until_withdrawn"),
        sa.CheckConstraint("withdrawn_at IS NULL OR tainted_at IS NOT NULL", name="withdrawn_only_tainted"),
        comment="Every version of the ranker. It is the outbox too: a model is published until it is marked so",
    )
    _index(
        "ix_models_restored",
        "models",
        ["federation", "restored_version", "version"],
        where="restored_version IS NOT NULL",
    )
    op.create_table(
        "policies",
        _federation(),
        _column("hash", sa.LargeBinary(), "SHA-256 of the signed bytes, by which rounds name it"),
        _column("version", sa.Integer(), "A higher one replaces a lower"),
        _column("signed", sa.LargeBinary(), "The policy as the operator signed it"),
        _column("adopted_at", _moment, "When the federator took it up, UTC"),
        sa.PrimaryKeyConstraint("federation", "hash"),
        sa.UniqueConstraint("federation", "version"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("length(hash) = 32", name="hash_length"),
        sa.CheckConstraint("version >= 1", name="version"),
        comment="The operator's policies that rounds were, or are to be, under",
    )
    op.create_table(
        "standbys",
        _federation(),
        _column("holder", sa.String(128), "The process that waits for the lease"),
        _column("seen_at", _moment, "When it looked last; the database's clock, UTC"),
        sa.PrimaryKeyConstraint("federation", "holder"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("length(holder) BETWEEN 1 AND 128", name="holder_length"),
        comment="Federators that wait to lead; one that was not seen for a while is gone",
    )
    op.create_table(
        "trainings",
        _federation(),
        _column("from_round", sa.Integer(), "The first round that was computed with it"),
        _column("training", sa.Text(), "Settings of the method as announced to devices, JSON"),
        sa.PrimaryKeyConstraint("federation", "from_round"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("from_round >= 1", name="from_round"),
        comment="What rounds were computed with, up to the next row's: it may change when the federator starts "
        "again",
    )
    op.create_table(
        "unlearning_resets",
        _federation(),
        _column("job", sa.Integer(), "The number of the job that would do it"),
        _column("held_at", _moment, "Since when it waits for the operator's order, UTC"),
        _column("first_round", sa.Integer(), "The first of the rounds whose teaching is lost by it"),
        _column("last_round", sa.Integer(), "The last of them that was completed by then"),
        _column("n_updates", sa.Integer(), "Updates of them that are stored: of clients that stay"),
        _column("n_clients", sa.Integer(), "Clients that these are of"),
        _nullable("ordered_at", _moment, "When the operator ordered it, UTC; null: not yet"),
        sa.PrimaryKeyConstraint("federation", "job"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("job >= 1", name="job"),
        sa.CheckConstraint("first_round >= 1 AND last_round >= first_round", name="rounds"),
        sa.CheckConstraint("n_clients >= 1 AND n_updates >= n_clients", name="counts"),
        comment="Unlearning jobs that would put the first model in service: none does without the operator's order",
    )
    op.create_table(
        "defence_records",
        _federation(),
        _column("job", sa.Integer(), "Number of an unlearning job; 0: it is of the newest model"),
        _column("client", _row_id, "Whose record it is"),
        _column("record", sa.LargeBinary(), "What the rule of aggregation remembers of the client"),
        sa.PrimaryKeyConstraint("federation", "job", "client"),
        sa.ForeignKeyConstraint(["client"], ["clients.id"]),
        sa.CheckConstraint("job >= 0", name="job"),
        comment="What the rule remembers of each client: after the newest model, a job's newest step, or as its "
        "model came",
    )
    op.create_index("ix_defence_records_client", "defence_records", ["client"])
    op.create_table(
        "events",
        _column("id", _row_id, "Order of recording", autoincrement=True),
        _federation(),
        _column("at", _moment, "When it happened, UTC"),
        _column("kind", sa.String(64), "What happened, e.g. update_rejected"),
        _nullable("code", sa.String(64), "Reason code of the receipt, e.g. late"),
        _nullable(
            "client", _row_id, "The client as the message named it; null: none, or one of too many"
        ),
        _nullable("round", sa.Integer(), "The round as the message named it"),
        _column("detail", sa.Text(), "What a person needs to know"),
        _column("n", sa.Integer(), "How often; of refusals, within the minute", server_default="1"),
        _nullable("minute", sa.BigInteger(), "Of a refusal: the minute, since 1970, of which equal ones are this row"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("federation", "client", "kind", "code", "round", "minute"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.ForeignKeyConstraint(["client"], ["clients.id"]),
        sa.CheckConstraint("minute IS NULL OR code IS NOT NULL", name="minute_of_a_refusal"),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name="kind_length"),
        sa.CheckConstraint("length(code) BETWEEN 1 AND 64", name="code_length"),
        sa.CheckConstraint("length(detail) <= 500", name="detail_length"),
        comment="What was refused, who came and who left",
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_client", "events", ["client"])
    op.create_index("ix_events_federation_round", "events", ["federation", "round"])
    op.create_table(
        "orders",
        _federation(),
        _column("number", sa.Integer(), "1, 2, 3, ... as the operator numbered them"),
        _column("kind", sa.String(64), "What was ordered, e.g. quarantine"),
        _nullable("payload", sa.LargeBinary(), "The order as signed; null once a client that it names was forgotten"),
        _column("digest", sa.LargeBinary(), "SHA-256 of the order as signed"),
        _column("outcome", sa.String(16), "obeyed or refused"),
        _nullable("code", sa.String(64), "Reason code of the refusal; null: it was obeyed"),
        _column("detail", sa.Text(), "What a person needs to know"),
        _nullable(
            "client", _row_id, "The client that it is about; null: none, or a forgotten one"
        ),
        _column("at", _moment, "When it was obeyed or refused, UTC"),
        sa.PrimaryKeyConstraint("federation", "number"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.ForeignKeyConstraint(["client"], ["clients.id"]),
        sa.CheckConstraint("number >= 1", name="number"),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name="kind_length"),
        sa.CheckConstraint("length(digest) = 32", name="digest_length"),
        sa.CheckConstraint("outcome IN ('obeyed', 'refused')", name="outcome"),
        sa.CheckConstraint("(outcome = 'obeyed') = (code IS NULL)", name="code_iff_refused"),
        sa.CheckConstraint("length(code) BETWEEN 1 AND 64", name="code_length"),
        sa.CheckConstraint("length(detail) <= 500", name="detail_length"),
        comment="The operator's orders with what became of each: obeyed in their order, each exactly once",
    )
    op.create_index("ix_orders_client", "orders", ["client"])
    op.create_table(
        "rounds",
        _federation(),
        _column("number", sa.Integer(), "1, 2, 3, ..."),
        _column("state", sa.String(16), "collecting, checking, opening, aggregating, completed or abandoned"),
        _column("base_version", sa.Integer(), "The model the round trains from"),
        _column("min_clients", sa.Integer(), "Fewer updates than this abandon the round"),
        _column("max_clients", sa.Integer(), "The round takes at most so many updates"),
        _column("min_time_s", sa.Float(), "The round stays open at least this long, seconds"),
        _column("max_time_s", sa.Float(), "The round stays open at most this long, seconds"),
        _column("opened_at", _moment, "When it opened, UTC"),
        _column("closes_at", _moment, "The deadline, UTC"),
        _nullable("closed_at", _moment, "When it was completed or abandoned, UTC; null while open"),
        _nullable("reason", sa.Text(), "Why it was abandoned; null otherwise"),
        _nullable("n_updates", sa.Integer(), "Updates it had when it closed; null while open"),
        _nullable("n_interactions", sa.BigInteger(), "Interactions behind those updates; null while open"),
        _nullable("model_version", sa.Integer(), "The model it made; null unless completed"),
        _column("pacing", sa.String(16), "deadline or buffered", server_default="deadline"),
        _column(
            "staleness_limit",
            sa.Integer(),
            "Buffered: how many model versions old an update's base may be",
            server_default="0",
        ),
        _column(
            "staleness_exponent",
            sa.Float(),
            "Buffered: an update of staleness s weighs (1 + s) ** -exponent",
            server_default="0.5",
        ),
        _nullable("selection_seed", sa.LargeBinary(), "Seed of its random selection; null: all were asked"),
        _nullable("selection_cutoff", sa.LargeBinary(), "Whose ticket is at most this was asked; nobody has it"),
        _nullable("n_selected", sa.Integer(), "How many clients were to be asked"),
        _nullable("n_eligible", sa.Integer(), "Clients online when it opened"),
        _column("aggregation", sa.String(64), "Rule it is aggregated by, e.g. nnm+krum", server_default="mean"),
        _column(
            "byzantine",
            sa.Float(),
            "Hostile clients the rule is to withstand: a count, or a share below 0.5",
            server_default="0.2",
        ),
        _column(
            "aggregation_parameters",
            sa.Text(),
            "Parameters of the rule, JSON; those not named have their defaults",
            server_default="{}",
        ),
        _column(
            "aggregation_fallback",
            sa.String(64),
            "Rule where too few arrive for the first one, or abandon",
            server_default="median",
        ),
        _nullable(
            "policy_hash", sa.LargeBinary(), "The policy that it is under; null: the federator sees every update"
        ),
        _nullable("clip_norm", sa.Float(), "C, to which devices shorten what they send; null without a policy"),
        _nullable(
            "anchor_version",
            sa.Integer(),
            "The model that devices compare the newest with, and vote on; null: nobody is asked to",
        ),
        _nullable(
            "period_s",
            sa.Float(),
            "Time between visits, as announced when it opened, seconds; null: devices stay connected",
        ),
        _column(
            "part",
            sa.Integer(),
            "The part of update_bodies that its updates' bodies are in, or were; 0: they are deleted row by row",
            server_default="0",
        ),
        sa.PrimaryKeyConstraint("federation", "number"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.ForeignKeyConstraint(["federation", "base_version"], ["models.federation", "models.version"]),
        sa.ForeignKeyConstraint(["federation", "model_version"], ["models.federation", "models.version"]),
        sa.ForeignKeyConstraint(["federation", "anchor_version"], ["models.federation", "models.version"]),
        sa.ForeignKeyConstraint(["federation", "policy_hash"], ["policies.federation", "policies.hash"]),
        sa.CheckConstraint("number >= 1", name="number"),
        sa.CheckConstraint("anchor_version <= base_version", name="anchor_version"),
        sa.CheckConstraint("period_s > 0", name="period"),
        sa.CheckConstraint("part >= 0", name="part"),
        sa.CheckConstraint(
            "state IN ('collecting', 'checking', 'opening', 'aggregating', 'completed', 'abandoned')", name="state"
        ),
        sa.CheckConstraint("(policy_hash IS NULL) = (clip_norm IS NULL)", name="clip_norm_iff_policy"),
        sa.CheckConstraint(
            "policy_hash IS NOT NULL OR NOT (state IN ('checking', 'opening'))", name="asks_under_a_policy"
        ),
        sa.CheckConstraint("min_clients >= 1 AND max_clients >= min_clients", name="clients_range"),
        sa.CheckConstraint("min_time_s >= 0 AND max_time_s >= min_time_s", name="time_range"),
        sa.CheckConstraint("closes_at >= opened_at", name="closes_after_opened"),
        sa.CheckConstraint(
            "(state IN ('collecting', 'checking', 'opening', 'aggregating')) = (closed_at IS NULL)",
            name="closed_at_iff_closed",
        ),
        sa.CheckConstraint(
            "(state IN ('collecting', 'checking', 'opening', 'aggregating')) = (n_updates IS NULL)",
            name="n_updates_iff_closed",
        ),
        sa.CheckConstraint(
            "(state IN ('collecting', 'checking', 'opening', 'aggregating')) = (n_interactions IS NULL)",
            name="n_interactions_iff_closed",
        ),
        sa.CheckConstraint("(state = 'abandoned') = (reason IS NOT NULL)", name="reason_iff_abandoned"),
        sa.CheckConstraint("(state = 'completed') = (model_version IS NOT NULL)", name="model_version_iff_completed"),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 500", name="reason_length"),
        comment="Every round, open or closed",
    )
    _index(
        "uq_rounds_one_open",
        "rounds",
        ["federation"],
        unique=True,
        where="state IN ('collecting', 'checking', 'opening', 'aggregating')",
    )
    op.create_table(
        "unlearning_jobs",
        _federation(),
        _column("number", sa.Integer(), "1, 2, 3, ..."),
        _column("state", sa.String(16), "running, paused, done or failed"),
        _column("strategy", sa.String(16), "fed_eraser, rollback or relearn"),
        _column("interval", sa.Integer(), "Every so many rounds one is replayed; delta t of the thesis"),
        _column("local_interactions", sa.Integer(), "Interactions a client learns from in a step; n' of the thesis"),
        _column("created_at", _moment, "When it was created, UTC"),
        _column("start_version", sa.Integer(), "The model it started from"),
        _column("start_round", sa.Integer(), "The first round it replays"),
        _column("step", sa.Integer(), "Calibration rounds that are done"),
        _column("n_steps", sa.Integer(), "Calibration rounds there are to do, as known now"),
        _nullable("last_round", sa.Integer(), "The stored round that its last step stood for; null before the first"),
        _nullable("weights", sa.LargeBinary(), "The model so far, little-endian float32; null once the job is closed"),
        _column("coverage_sum", sa.Float(), "Sum of the coverages, 0 to 1, of the steps that are done"),
        _nullable("optimizer_state", sa.LargeBinary(), "The federator's optimiser after the step, or null"),
        _nullable("defence_state", sa.LargeBinary(), "What the rule of aggregation remembers of all together, or null"),
        _nullable("reason", sa.Text(), "Why it is paused or failed; null otherwise"),
        _nullable("closed_at", _moment, "When it was done or failed, UTC; null while open"),
        _nullable("model_version", sa.Integer(), "The model it made; null unless done"),
        _column("figures", sa.Text(), "What was measured of its model, JSON"),
        sa.PrimaryKeyConstraint("federation", "number"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.ForeignKeyConstraint(["federation", "start_version"], ["models.federation", "models.version"]),
        sa.ForeignKeyConstraint(["federation", "model_version"], ["models.federation", "models.version"]),
        sa.CheckConstraint("number >= 1", name="number"),
        sa.CheckConstraint("state IN ('running', 'paused', 'done', 'failed')", name="state"),
        sa.CheckConstraint(
            "strategy IN ('fed_eraser', 'rollback', 'relearn')", name="strategy"
        ),
        sa.CheckConstraint("interval >= 1 AND local_interactions >= 1 AND start_round >= 1", name="plan"),
        sa.CheckConstraint("step >= 0 AND n_steps >= step", name="steps"),
        sa.CheckConstraint("coverage_sum >= 0 AND coverage_sum <= step", name="coverage_sum"),
        sa.CheckConstraint("(state IN ('running', 'paused')) = (weights IS NOT NULL)", name="weights_iff_open"),
        sa.CheckConstraint("(state IN ('running', 'paused')) = (closed_at IS NULL)", name="closed_at_iff_closed"),
        sa.CheckConstraint("(state IN ('paused', 'failed')) = (reason IS NOT NULL)", name="reason_iff_not_well"),
        sa.CheckConstraint("(state = 'done') = (model_version IS NOT NULL)", name="model_version_iff_done"),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 500", name="reason_length"),
        comment="Every attempt to make a model without the clients that were erased",
    )
    _index(
        "uq_unlearning_jobs_one_open",
        "unlearning_jobs",
        ["federation"],
        unique=True,
        where="state IN ('running', 'paused')",
    )
    op.create_table(
        "erasures",
        _federation(),
        _column("pseudonym", sa.String(32), "What is left of its name: 32 hex digits"),
        _nullable("client", _row_id, "Its row of clients, which has its name until its device has the answer; then null"),
        _column("state", sa.String(16), "erasing, erased, waiting, unlearning or done"),
        _column("requested_at", _moment, "When it was asked for, UTC"),
        _column("requested_by", sa.String(16), "device or operator"),
        _column(
            "erased_at", _moment, "When its last row was deleted, UTC; of one that is being erased: when that began"
        ),
        _nullable("completed_at", _moment, "When no model in service held its updates any more, UTC"),
        _column("n_rounds", sa.Integer(), "Completed rounds that its updates were in"),
        _column("n_updates", sa.Integer(), "Its updates that were deleted"),
        _column("n_events", sa.Integer(), "Its events that were deleted"),
        _column(
            "erased_digest",
            sa.String(64),
            "Chain of SHA-256 over the deleted updates' bytes as stored, the newest first, in hex",
        ),
        _nullable("first_round", sa.Integer(), "The first completed round with an update of it; null: in no model"),
        _nullable("key_fingerprint", sa.LargeBinary(), "Which data key its updates were sealed with; null: with none"),
        _column("key_destroyed", sa.Boolean(), "No data key of it exists any more"),
        _column("told", sa.Boolean(), "Its device knows"),
        _nullable("job", sa.Integer(), "The unlearning job it is or was in"),
        _nullable("receipt", sa.Text(), "The signed receipt; null before it is done, and where nothing is signed"),
        _nullable("audit_seq", sa.Integer(), "The entry of the audit log that completes it; null before"),
        _nullable("overdue_at", _moment, "When its missed deadline was reported, UTC; null: never"),
        sa.PrimaryKeyConstraint("federation", "pseudonym"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.ForeignKeyConstraint(["federation", "job"], ["unlearning_jobs.federation", "unlearning_jobs.number"]),
        sa.ForeignKeyConstraint(["client"], ["clients.id"]),
        sa.CheckConstraint("length(pseudonym) = 32", name="pseudonym_length"),
        sa.CheckConstraint("state IN ('erasing', 'erased', 'waiting', 'unlearning', 'done')", name="state"),
        sa.CheckConstraint("requested_by IN ('device', 'operator')", name="requested_by"),
        sa.CheckConstraint("n_rounds >= 0 AND n_updates >= n_rounds AND n_events >= 0", name="counts"),
        sa.CheckConstraint("(n_rounds = 0) = (first_round IS NULL)", name="first_round_iff_in_models"),
        sa.CheckConstraint("length(erased_digest) = 64", name="erased_digest_length"),
        sa.CheckConstraint("length(key_fingerprint) = 8", name="key_fingerprint_length"),
        sa.CheckConstraint("(state = 'done') = (completed_at IS NOT NULL)", name="completed_at_iff_done"),
        sa.CheckConstraint("(state = 'done') = (audit_seq IS NOT NULL)", name="audit_seq_iff_done"),
        sa.CheckConstraint("state = 'done' OR receipt IS NULL", name="receipt_only_done"),
        sa.CheckConstraint("state <> 'unlearning' OR job IS NOT NULL", name="unlearning_in_a_job"),
        comment="Every client that was forgotten: what proves it, and that its name is not used again",
    )
    op.create_index("ix_erasures_client", "erasures", ["client"])
    op.create_index("ix_erasures_federation_state", "erasures", ["federation", "state"])
    op.create_table(
        "round_aggregations",
        _federation(),
        _column("round", sa.Integer(), "The round"),
        _column("rule", sa.String(64), "Rule that made its model"),
        _column("parameters", sa.Text(), "Parameters as used, JSON: n updates, m hostile ones, ..."),
        _nullable("fallback_reason", sa.Text(), "Why it is not the configured rule; null if it is"),
        _column("n_kept", sa.Integer(), "Updates in the model as they were sent"),
        _column("n_clipped", sa.Integer(), "Updates in the model after they were shortened"),
        _column("n_dropped", sa.Integer(), "Updates that are not in the model"),
        sa.PrimaryKeyConstraint("federation", "round"),
        sa.ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
        sa.CheckConstraint("length(rule) > 0", name="rule_length"),
        sa.CheckConstraint("length(fallback_reason) BETWEEN 1 AND 500", name="fallback_reason_length"),
        sa.CheckConstraint("n_kept >= 0 AND n_clipped >= 0 AND n_dropped >= 0", name="counts"),
        comment="How a round was aggregated by a rule; none for the plain mean",
    )
    op.create_table(
        "round_evaluations",
        _federation(),
        _column("round", sa.Integer(), "The round: completed, under a policy with evaluation"),
        _column("n_updates", sa.Integer(), "Updates in its sums"),
        _column("clicked", sa.Float(), "Sum of their shares of lists with a click, with noise"),
        _column("reward", sa.Float(), "Sum of their mean rewards of lists as shown, likewise"),
        _column("base_reward", sa.Float(), "Sum of their mean rewards in the base order, likewise"),
        _column("deviation", sa.Float(), "Standard deviation of the helpers' noise in each, in updates"),
        sa.PrimaryKeyConstraint("federation", "round"),
        sa.ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
        sa.CheckConstraint("n_updates >= 1", name="n_updates"),
        sa.CheckConstraint("deviation >= 0", name="deviation"),
        comment="What the evaluations in a round's secure sums come to; without those that an erased client was in",
    )
    op.create_table(
        "round_sums",
        _federation(),
        _column("round", sa.Integer(), "The round"),
        _column("cohort", sa.Integer(), "Which of its cohorts, from 0"),
        _column("n_tickets", sa.Integer(), "Positions of tickets that helpers were shown"),
        _column("n_clients", sa.Integer(), "Those in the sum: whom nobody took out"),
        _column("kept", sa.LargeBinary(), "Those as bits by position, the first the highest"),
        _column("set_digest", sa.LargeBinary(), "SHA-256 over the SHA-256 of each of their tickets"),
        _nullable("masked_sum", sa.LargeBinary(), "Sum of their masked vectors; null until all helpers have answered"),
        _nullable("fate", sa.String(16), "By the rule: kept, clipped or dropped; null of the plain mean"),
        _nullable("share", sa.Float(), "How much of the model's step is this sum's, 0 to 1; null: unknown"),
        _nullable(
            "n_norm_proofs_failed", sa.Integer(), "Those excluded because their norm proofs fail; null: no proofs"
        ),
        sa.PrimaryKeyConstraint("federation", "round", "cohort"),
        sa.UniqueConstraint("federation", "round", "cohort", "set_digest"),
        sa.ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
        sa.CheckConstraint("cohort >= 0", name="cohort"),
        sa.CheckConstraint("n_clients BETWEEN 1 AND n_tickets", name="n_clients"),
        sa.CheckConstraint("n_norm_proofs_failed BETWEEN 0 AND n_tickets - n_clients", name="n_norm_proofs_failed"),
        sa.CheckConstraint("length(kept) = (n_tickets + 7) / 8", name="kept_length"),
        sa.CheckConstraint("length(set_digest) = 32", name="set_digest_length"),
        sa.CheckConstraint("length(masked_sum) = 8 * (length(masked_sum) / 8)", name="masked_sum_length"),
        sa.CheckConstraint("fate IN ('kept', 'clipped', 'dropped')", name="fate"),
        sa.CheckConstraint("share >= 0 AND share <= 1", name="share"),
        comment="The set of clients of each cohort that a sum was asked of, fixed before anybody was asked, and "
        "their sum",
    )
    op.create_table(
        "round_tallies",
        _federation(),
        _column("round", sa.Integer(), "The round: completed, with an anchor, under a policy with votes"),
        _column("n_updates", sa.Integer(), "Updates in its sums"),
        _column("worse", sa.Float(), "Votes worse among them, with the helpers' noise"),
        _column("better", sa.Float(), "Votes better among them, likewise"),
        _column("deviation", sa.Float(), "Standard deviation of the noise in each, in votes"),
        sa.PrimaryKeyConstraint("federation", "round"),
        sa.ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
        sa.CheckConstraint("n_updates >= 1", name="n_updates"),
        sa.CheckConstraint("deviation > 0", name="deviation"),
        comment="What the votes in a round's secure sums come to; without those that an erased client was in",
    )
    op.create_table(
        "stored_rounds",
        _federation(),
        _column("round", sa.Integer(), "The round: completed, and no update of it was thinned"),
        sa.PrimaryKeyConstraint("federation", "round"),
        sa.ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
        comment="The rounds that unlearning can go through: what is left of their updates is stored, and there "
        "is some",
    )
    op.create_table(
        "updates",
        _federation(),
        _column("round", sa.Integer(), "The round it counts in"),
        _column("client", _row_id, "The device that sent it"),
        _column("update_id", sa.String(36), "Chosen by the device, kept on resending"),
        _column("base_version", sa.Integer(), "The model the device trained from"),
        _column("n_interactions", sa.Integer(), "Interactions behind it"),
        _column("encoding", sa.String(64), "How its body is encoded: dense_f32, part_f32, evolution or masked_u64"),
        _column("n_bytes", sa.Integer(), "Length of the update as sent"),
        _column("received_at", _moment, "When the federator received it, UTC"),
        _nullable(
            "covers_after",
            sa.BigInteger(),
            "It covers its client's interactions above this number; null once taken back with its round",
        ),
        _nullable("covers_through", sa.BigInteger(), "... and up to this one"),
        _nullable("cohort", sa.Integer(), "Of a masked update: which of its round's sums it is for; null of any other"),
        _nullable("position", sa.Integer(), "Of a masked update: its ticket's among those of its cohort, from 0"),
        _nullable("fault", sa.String(32), "Why it was taken out of its sum; null unless it was"),
        _nullable(
            "vote",
            sa.SmallInteger(),
            "Of the newest model against its round's anchor: -1 worse, 0 none, 1 better; null: no vote",
        ),
        _nullable(
            "clicked", sa.Float(), "Share of its lists with a click, 0 to 1; null: it came without an evaluation"
        ),
        _nullable(
            "reward", sa.Float(), "Mean reciprocal rank of the first click, in its lists as shown; null likewise"
        ),
        _nullable("base_reward", sa.Float(), "Mean reciprocal rank of these clicks in the base order; null likewise"),
        sa.PrimaryKeyConstraint("federation", "round", "client"),
        sa.UniqueConstraint("client", "update_id"),
        sa.UniqueConstraint("client", "covers_after"),
        sa.ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
        sa.ForeignKeyConstraint(["client"], ["clients.id"]),
        sa.CheckConstraint("length(update_id) BETWEEN 1 AND 36", name="update_id_length"),
        sa.CheckConstraint("base_version >= 0", name="base_version"),
        sa.CheckConstraint("n_interactions > 0", name="n_interactions"),
        sa.CheckConstraint("(covers_after IS NULL) = (covers_through IS NULL)", name="covers_both"),
        sa.CheckConstraint("covers_after >= 0 AND covers_after < covers_through", name="covers_range"),
        sa.CheckConstraint("n_interactions <= covers_through - covers_after", name="covers_interactions"),
        sa.CheckConstraint("n_bytes >= 0", name="n_bytes"),
        sa.CheckConstraint("(cohort IS NOT NULL) = (encoding = 'masked_u64')", name="cohort_iff_masked"),
        sa.CheckConstraint("(cohort IS NULL) = (position IS NULL)", name="position_in_a_cohort"),
        sa.CheckConstraint("fault IS NULL OR cohort IS NOT NULL", name="fault_of_a_masked_one"),
        sa.CheckConstraint("vote IN (-1, 0, 1)", name="vote"),
        sa.CheckConstraint("clicked BETWEEN 0 AND 1", name="clicked"),
        sa.CheckConstraint("(reward IS NULL) = (clicked IS NULL) AND reward BETWEEN 0 AND clicked", name="reward"),
        sa.CheckConstraint(
            "(base_reward IS NULL) = (clicked IS NULL) AND base_reward BETWEEN 0 AND clicked", name="base_reward"
        ),
        comment="Every accepted update: the contribution of one client to one round; kept for ever",
    )
    _index(
        "ix_updates_evaluations",
        "updates",
        ["federation", "round", "clicked", "reward", "base_reward"],
        where="clicked IS NOT NULL",
    )
    _index("ix_updates_votes", "updates", ["federation", "round", "client", "vote"], where="vote IS NOT NULL")
    _index(
        "uq_updates_position",
        "updates",
        ["federation", "round", "cohort", "position"],
        unique=True,
        where="cohort IS NOT NULL",
    )
    op.create_table(
        "helper_answers",
        _federation(),
        _column("round", sa.Integer(), "The round"),
        _column("cohort", sa.Integer(), "The cohort"),
        _column("helper", sa.String(64), "Who answered"),
        _column("start", sa.Integer(), "The number of the sum that this part of the answer begins with"),
        _column("set_digest", sa.LargeBinary(), "The set that it answers for: the one that was asked"),
        _column("answer", sa.LargeBinary(), "The answer as the helper signed it"),
        sa.PrimaryKeyConstraint("federation", "round", "cohort", "helper", "start"),
        sa.ForeignKeyConstraint(
            ["federation", "round", "cohort", "set_digest"],
            ["round_sums.federation", "round_sums.round", "round_sums.cohort", "round_sums.set_digest"],
            name="fk_helper_answers_round_sums",
        ),
        sa.CheckConstraint("start >= 0", name="start"),
        comment="What each helper answered for a set: the sum of its masks less the helper's noise, in parts",
    )
    op.create_table(
        "update_bodies",
        _federation(),
        _column("round", sa.Integer(), "The round of its update"),
        _column("client", _row_id, "The device that sent it"),
        _column(
            "part",
            sa.Integer(),
            "As its round's: bodies of one part are deleted together, those of part 0 row by row",
            server_default="0",
        ),
        _column(
            "cipher",
            sa.String(64),
            "How body is sealed with its client's data key: aes-256-gcm; empty: it is as sent",
            server_default="",
        ),
        _nullable("key_fingerprint", sa.LargeBinary(), "Which data key body is sealed with; null: as sent"),
        _nullable("ticket", sa.LargeBinary(), "Of a masked update: what helpers are shown; null of any other"),
        _column("body", sa.LargeBinary(), "The update itself, sealed as cipher says"),
        sa.PrimaryKeyConstraint("federation", "round", "client", "part"),
        sa.CheckConstraint("part >= 0", name="part"),
        sa.CheckConstraint("cipher IN ('', 'aes-256-gcm')", name="cipher"),
        sa.CheckConstraint("(cipher = '') = (key_fingerprint IS NULL)", name="key_fingerprint_iff_sealed"),
        sa.CheckConstraint("length(key_fingerprint) = 8", name="key_fingerprint_length"),
        sa.CheckConstraint("cipher = '' OR length(body) >= 28", name="sealed_length"),
        *_only_on_sqlite(
            sa.ForeignKeyConstraint(
                ["federation", "round", "client"], ["updates.federation", "updates.round", "updates.client"]
            )
        ),
        comment="What was sent with each update, until its round is thinned",
        postgresql_partition_by="LIST (part)",
    )
    op.create_table(
        "update_fates",
        _federation(),
        _column("round", sa.Integer(), "The round"),
        _column("client", _row_id, "The device whose update it is"),
        _column("fate", sa.String(16), "kept, clipped or dropped"),
        _nullable("share", sa.Float(), "How much of the model's step is this update's, 0 to 1; null: unknown"),
        _nullable("score", sa.Float(), "What the rule decided by; its meaning is the rule's"),
        _column("reason", sa.Text(), "Why it was clipped or dropped; empty if it was kept"),
        sa.PrimaryKeyConstraint("federation", "round", "client"),
        sa.ForeignKeyConstraint(["federation", "round"], ["round_aggregations.federation", "round_aggregations.round"]),
        sa.ForeignKeyConstraint(["client"], ["clients.id"]),
        sa.CheckConstraint("fate IN ('kept', 'clipped', 'dropped')", name="fate"),
        sa.CheckConstraint("share >= 0 AND share <= 1", name="share"),
        sa.CheckConstraint("length(reason) <= 500", name="reason_length"),
        comment="What a rule made of each update of a round; none for the plain mean",
    )
    op.create_index("ix_update_fates_client", "update_fates", ["client"])


def _create_views() -> None:
    means = {column: _MEAN.format(column) for column in ("clicked", "reward", "base_reward")}
    op.execute(_ROUND_HISTORY.format(duration_s=_DURATION_S[op.get_context().dialect.name], **means))
    op.execute(_CLIENT_HISTORY)
    op.execute(_EVENT_HISTORY)
    if _is_postgresql():  # SQLite keeps no comments
        for what, comment in _VIEW_COMMENTS.items():
            op.execute(f"COMMENT ON {what} IS '{comment}'")
