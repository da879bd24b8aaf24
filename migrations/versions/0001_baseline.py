"""Every table and view, as the first release has them.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Types are written out here rather than taken from storage.tables: a migration does not change when the code does.
_moment = sa.DateTime(timezone=True)
_client_id = sa.String(64).with_variant(sa.String(64, collation="C"), "postgresql")
_row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# In the order that they are made in.
_TABLES = (
    "federations",
    "audit_log",
    "clients",
    "models",
    "events",
    "orders",
    "policies",
    "rounds",
    "unlearning_jobs",
    "erasures",
    "round_aggregations",
    "updates",
    "update_fates",
    "defence_records",
    "round_sums",
    "helper_answers",
)
_VIEWS = ("round_history", "client_history", "event_history")

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
    coalesce(a.n_dropped, 0) AS n_dropped   -- updates the rule left out
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
    "round_history": "Every round with what it collected, what it refused and how it ended",
    "client_history": "What every client contributed to every round",
    "event_history": "What was refused, who came and who left, by name",
}
_COLUMN_COMMENTS = {
    "round_history.duration_s": "Seconds from opening to closing; null while open",
    "round_history.model_version": "The model it made; null unless completed",
    "round_history.n_updates": "Updates of the round that are stored now",
    "round_history.n_interactions": "Interactions behind those updates",
    "round_history.n_rejected": "Updates refused that named this round",
    "round_history.rule": "Rule that made its model; null unless completed",
    "round_history.fallback_reason": "Why that is not the rule it was opened with; null if it is",
    "client_history.n_bytes": "Length of the update as sent",
    "client_history.round_state": "State of the round",
    "client_history.model_version": "The model the update went into; null unless the round completed",
    "client_history.fate": "What the rule made of it: kept, clipped or dropped; null without a rule",
}


def upgrade() -> None:
    op.create_table(
        "federations",
        sa.Column("name", sa.String(64), nullable=False, comment="Name, as in the MQTT topics"),
        sa.Column(
            "writer_epoch",
            sa.BigInteger(),
            nullable=False,
            comment="Epoch of the last claim, at least its unix seconds; only that federator may write",
        ),
        sa.Column(
            "last_batch_id", sa.String(36), comment="The last committed batch: offered again, it is not applied again"
        ),
        sa.Column("ranker", sa.String(64), nullable=False, comment="Kind of ranker: linear or neural"),
        sa.Column("n_features", sa.Integer(), nullable=False, comment="Features of one document"),
        sa.Column("created_at", _moment, nullable=False, comment="When the federation was created, UTC"),
        sa.Column("selection_seed", sa.LargeBinary(), comment="First seed of random selections; never changed"),
        sa.Column(
            "roster_version",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="Version of the operator's roster; a lower one is refused",
        ),
        sa.Column("roster", sa.LargeBinary(), comment="The operator's roster, as signed"),
        sa.Column(
            "last_order",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="Number of the operator's newest order that has an outcome; the next one is to follow it",
        ),
        sa.Column(
            "method",
            sa.String(64),
            server_default="fpdgd",
            nullable=False,
            comment="How it learns, e.g. fpdgd; fixed as long as it exists",
        ),
        sa.Column("hidden", sa.Integer(), comment="Hidden units of a neural ranker; null for a linear one"),
        sa.Column(
            "aggregation_seed", sa.LargeBinary(), comment="Seed of what an aggregation draws; secret, never changed"
        ),
        sa.Column(
            "pseudonym_key", sa.LargeBinary(), comment="Key of the pseudonyms of erased clients; secret, never changed"
        ),
        sa.Column(
            "n_deletions",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="Counts transactions that deleted something of a forgotten client",
        ),
        sa.Column(
            "n_purged",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="So many of them have left no byte of a name: the database was purged since",
        ),
        sa.Column(
            "privacy",
            sa.String(16),
            server_default="trusted",
            nullable=False,
            comment="trusted or secure; fixed as long as it exists",
        ),
        sa.Column(
            "schema_hash",
            sa.LargeBinary(),
            comment="SHA-256 of the feature schema; null without one. Fixed likewise",
        ),
        sa.CheckConstraint("(ranker = 'neural') = (hidden IS NOT NULL)", name=op.f("ck_federations_hidden_iff_neural")),
        sa.CheckConstraint("last_order >= 0", name=op.f("ck_federations_last_order")),
        sa.CheckConstraint("length(schema_hash) = 32", name=op.f("ck_federations_schema_hash_length")),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 64", name=op.f("ck_federations_name_length")),
        sa.CheckConstraint("length(ranker) > 0", name=op.f("ck_federations_ranker_length")),
        sa.CheckConstraint("n_features > 0", name=op.f("ck_federations_n_features")),
        sa.CheckConstraint("n_purged BETWEEN 0 AND n_deletions", name=op.f("ck_federations_n_purged")),
        sa.CheckConstraint("privacy IN ('trusted', 'secure')", name=op.f("ck_federations_privacy")),
        sa.CheckConstraint("writer_epoch >= 0", name=op.f("ck_federations_writer_epoch")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_federations")),
        comment="One federation: a ranker learned together. The row is also the lock of its single writer",
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
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_audit_log_kind_length")),
        sa.CheckConstraint("length(previous_hash) = 64 AND length(hash) = 64", name=op.f("ck_audit_log_hash_length")),
        sa.CheckConstraint("seq >= 1", name=op.f("ck_audit_log_seq")),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_audit_log_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "seq", name=op.f("pk_audit_log")),
        comment="What was erased and unlearned, as a chain of hashes: no entry can be changed unnoticed",
    )
    op.create_table(
        "clients",
        sa.Column(
            "id", _row_id, autoincrement=True, nullable=False, comment="Key that other tables have; never used again"
        ),
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "client_id", _client_id, nullable=False, comment="Identity of the device within the federation: its name"
        ),
        sa.Column("membership", sa.String(16), nullable=False, comment="joined, left, stranger or forgotten"),
        sa.Column("online", sa.Boolean(), nullable=False, comment="Connected, as far as its status messages tell"),
        sa.Column(
            "joined_at", _moment, comment="Start of the latest membership, UTC; null for who is, or was, no member"
        ),
        sa.Column("left_at", _moment, comment="When it left, UTC; set exactly while membership is left"),
        sa.Column("last_seen_at", _moment, nullable=False, comment="Latest join, leave, status or refusal, UTC"),
        sa.Column("n_features", sa.Integer(), comment="Features the device said it has"),
        sa.Column("sdk_version", sa.String(64), comment="Version of foltr the device said it runs"),
        sa.Column("public_key", sa.LargeBinary(), comment="Ed25519 key its messages are verified with"),
        sa.Column("enrolment_serial", sa.Integer(), comment="Serial of the enrolment it joined with"),
        sa.Column("revoked_at", _moment, comment="When its enrolment was revoked, UTC; null unless it is"),
        sa.Column(
            "membership_sequence",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Sequence number of its newest join or leave; an older one is a replay",
        ),
        sa.Column(
            "status_sequence",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Sequence number of its newest status; an older one is out of date",
        ),
        sa.Column("quarantined_at", _moment, comment="When the operator quarantined it, UTC; null unless it is"),
        sa.Column(
            "quarantine_reason", sa.Text(), comment="Why, in the operator's words; null unless it is quarantined"
        ),
        sa.Column(
            "counted_through",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="The mark: its interactions up to this number are in stored updates, or will never be",
        ),
        sa.Column(
            "enrolment",
            sa.LargeBinary(),
            comment="That enrolment as the operator signed it: helpers are shown it",
        ),
        sa.CheckConstraint("(membership = 'left') = (left_at IS NOT NULL)", name=op.f("ck_clients_left_at_iff_left")),
        sa.CheckConstraint(
            "(membership IN ('joined', 'left')) = (joined_at IS NOT NULL)", name=op.f("ck_clients_joined_at_iff_client")
        ),
        sa.CheckConstraint(
            "membership IN ('joined', 'left', 'stranger', 'forgotten')", name=op.f("ck_clients_membership")
        ),
        sa.CheckConstraint(
            "(quarantined_at IS NULL) = (quarantine_reason IS NULL)",
            name=op.f("ck_clients_quarantine_reason_iff_quarantined"),
        ),
        sa.CheckConstraint("counted_through >= 0", name=op.f("ck_clients_counted_through")),
        sa.CheckConstraint("length(client_id) BETWEEN 1 AND 64", name=op.f("ck_clients_client_id_length")),
        sa.CheckConstraint("length(quarantine_reason) <= 500", name=op.f("ck_clients_quarantine_reason_length")),
        sa.CheckConstraint("length(sdk_version) <= 64", name=op.f("ck_clients_sdk_version_length")),
        sa.CheckConstraint("n_features > 0", name=op.f("ck_clients_n_features")),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_clients_federations_federation")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clients")),
        sa.UniqueConstraint("federation", "client_id", name=op.f("uq_clients_federation_client_id")),
        comment="Every device that ever joined, and where it stands now; and strangers. No other table has names",
        sqlite_autoincrement=True,
    )
    op.create_table(
        "models",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "version", sa.Integer(), nullable=False, comment="0 is the initial model; each completed round adds one"
        ),
        sa.Column("base_version", sa.Integer(), comment="The model this one was aggregated onto; null for version 0"),
        sa.Column("round", sa.Integer(), comment="The round that made it; null for version 0 and where unlearning did"),
        sa.Column(
            "n_values",
            sa.Integer(),
            nullable=False,
            comment="Number of values in weights; for a linear ranker the features",
        ),
        sa.Column(
            "weights",
            sa.LargeBinary(),
            comment="Little-endian float32: the ranker's, then what only training uses; null once withdrawn",
        ),
        sa.Column(
            "weights_hash",
            sa.LargeBinary(),
            nullable=False,
            comment="First 16 bytes of SHA-256 of its weights; stays when they are withdrawn",
        ),
        sa.Column("created_at", _moment, nullable=False, comment="When it was committed, UTC"),
        sa.Column("published_at", _moment, comment="When the broker took it, UTC; null: still to publish (outbox)"),
        sa.Column(
            "optimizer_state",
            sa.LargeBinary(),
            comment="The federator's optimiser after this model, e.g. Adam's moments; null where there is none",
        ),
        sa.Column(
            "defence_state",
            sa.LargeBinary(),
            comment="What the rule of aggregation remembers of all together, or null",
        ),
        sa.Column("tainted_at", _moment, comment="Since when it is known to hold what an erased client sent, UTC"),
        sa.Column("withdrawn_at", _moment, comment="When its weights were deleted, UTC; null while they are there"),
        sa.Column("unlearning_job", sa.Integer(), comment="The unlearning job that made it; null where a round did"),
        sa.CheckConstraint(
            "(version = 0 OR unlearning_job IS NOT NULL) = (round IS NULL)",
            name=op.f("ck_models_round_iff_made_by_one"),
        ),
        sa.CheckConstraint(
            "(version = 0) = (base_version IS NULL)", name=op.f("ck_models_base_version_iff_not_initial")
        ),
        sa.CheckConstraint(
            "(withdrawn_at IS NULL) = (weights IS NOT NULL)", name=op.f("ck_models_weights_until_withdrawn")
        ),
        sa.CheckConstraint("base_version < version", name=op.f("ck_models_base_version_before_version")),
        sa.CheckConstraint("length(weights) = 4 * n_values", name=op.f("ck_models_weights_length")),
        sa.CheckConstraint("length(weights_hash) = 16", name=op.f("ck_models_weights_hash_length")),
        sa.CheckConstraint("version >= 0", name=op.f("ck_models_version")),
        sa.CheckConstraint(
            "withdrawn_at IS NULL OR tainted_at IS NOT NULL", name=op.f("ck_models_withdrawn_only_tainted")
        ),
        sa.ForeignKeyConstraint(
            ["federation", "base_version"],
            ["models.federation", "models.version"],
            name=op.f("fk_models_models_federation_base_version"),
        ),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_models_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "version", name=op.f("pk_models")),
        comment="Every version of the ranker. It is the outbox too: a model is published until it is marked so",
    )
    op.create_table(
        "events",
        sa.Column("id", _row_id, autoincrement=True, nullable=False, comment="Order of recording"),
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("at", _moment, nullable=False, comment="When it happened, UTC"),
        sa.Column("kind", sa.String(64), nullable=False, comment="What happened, e.g. update_rejected"),
        sa.Column("code", sa.String(64), comment="Reason code of the receipt, e.g. late"),
        sa.Column(
            "client",
            _row_id,
            comment="The client as the message named it; null where it named none, or one of too many",
        ),
        sa.Column("round", sa.Integer(), comment="The round as the message named it"),
        sa.Column("detail", sa.Text(), nullable=False, comment="What a person needs to know"),
        sa.Column(
            "n", sa.Integer(), server_default="1", nullable=False, comment="How often; of refusals, within the minute"
        ),
        sa.Column(
            "minute", sa.BigInteger(), comment="Of a refusal: the minute, since 1970, of which equal ones are this row"
        ),
        sa.CheckConstraint("length(code) BETWEEN 1 AND 64", name=op.f("ck_events_code_length")),
        sa.CheckConstraint("length(detail) <= 500", name=op.f("ck_events_detail_length")),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_events_kind_length")),
        sa.CheckConstraint("minute IS NULL OR code IS NOT NULL", name=op.f("ck_events_minute_of_a_refusal")),
        sa.ForeignKeyConstraint(["client"], ["clients.id"], name=op.f("fk_events_clients_client")),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_events_federations_federation")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.UniqueConstraint(
            "federation",
            "client",
            "kind",
            "code",
            "round",
            "minute",
            name=op.f("uq_events_federation_client_kind_code_round_minute"),
        ),
        comment="What was refused, who came and who left",
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_client"), "events", ["client"], unique=False)
    op.create_index(op.f("ix_events_federation_round"), "events", ["federation", "round"], unique=False)
    op.create_table(
        "orders",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("number", sa.Integer(), nullable=False, comment="1, 2, 3, ... as the operator numbered them"),
        sa.Column("kind", sa.String(64), nullable=False, comment="What was ordered, e.g. quarantine"),
        sa.Column(
            "payload", sa.LargeBinary(), comment="The order as signed; null once a client that it names was forgotten"
        ),
        sa.Column("digest", sa.LargeBinary(), nullable=False, comment="SHA-256 of the order as signed"),
        sa.Column("outcome", sa.String(16), nullable=False, comment="obeyed or refused"),
        sa.Column("code", sa.String(64), comment="Reason code of the refusal; null exactly where it was obeyed"),
        sa.Column("detail", sa.Text(), nullable=False, comment="What a person needs to know"),
        sa.Column(
            "client",
            _row_id,
            comment="The client that it is about; null where it is about none, or one that was forgotten",
        ),
        sa.Column("at", _moment, nullable=False, comment="When it was obeyed or refused, UTC"),
        sa.CheckConstraint("(outcome = 'obeyed') = (code IS NULL)", name=op.f("ck_orders_code_iff_refused")),
        sa.CheckConstraint("outcome IN ('obeyed', 'refused')", name=op.f("ck_orders_outcome")),
        sa.CheckConstraint("length(code) BETWEEN 1 AND 64", name=op.f("ck_orders_code_length")),
        sa.CheckConstraint("length(detail) <= 500", name=op.f("ck_orders_detail_length")),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_orders_digest_length")),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_orders_kind_length")),
        sa.CheckConstraint("number >= 1", name=op.f("ck_orders_number")),
        sa.ForeignKeyConstraint(["client"], ["clients.id"], name=op.f("fk_orders_clients_client")),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_orders_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "number", name=op.f("pk_orders")),
        comment="The operator's orders with what became of each: obeyed in their order, each exactly once",
    )
    op.create_index(op.f("ix_orders_client"), "orders", ["client"], unique=False)
    op.create_table(
        "policies",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "hash",
            sa.LargeBinary(),
            nullable=False,
            comment="SHA-256 of the signed bytes, by which rounds name it",
        ),
        sa.Column("version", sa.Integer(), nullable=False, comment="A higher one replaces a lower"),
        sa.Column("signed", sa.LargeBinary(), nullable=False, comment="The policy as the operator signed it"),
        sa.Column("adopted_at", _moment, nullable=False, comment="When the federator took it up, UTC"),
        sa.CheckConstraint("length(hash) = 32", name=op.f("ck_policies_hash_length")),
        sa.CheckConstraint("version >= 1", name=op.f("ck_policies_version")),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_policies_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "hash", name=op.f("pk_policies")),
        sa.UniqueConstraint("federation", "version", name=op.f("uq_policies_federation_version")),
        comment="The operator's policies that rounds were, or are to be, under",
    )
    op.create_table(
        "rounds",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("number", sa.Integer(), nullable=False, comment="1, 2, 3, ..."),
        sa.Column(
            "state",
            sa.String(16),
            nullable=False,
            comment="collecting, checking, opening, aggregating, completed or abandoned",
        ),
        sa.Column("base_version", sa.Integer(), nullable=False, comment="The model the round trains from"),
        sa.Column("min_clients", sa.Integer(), nullable=False, comment="Fewer updates than this abandon the round"),
        sa.Column("max_clients", sa.Integer(), nullable=False, comment="This many updates close the round at once"),
        sa.Column("min_time_s", sa.Float(), nullable=False, comment="The round stays open at least this long, seconds"),
        sa.Column("max_time_s", sa.Float(), nullable=False, comment="The round stays open at most this long, seconds"),
        sa.Column("opened_at", _moment, nullable=False, comment="When it opened, UTC"),
        sa.Column("closes_at", _moment, nullable=False, comment="The deadline, UTC"),
        sa.Column("closed_at", _moment, comment="When it was completed or abandoned, UTC; null while open"),
        sa.Column("reason", sa.Text(), comment="Why it was abandoned; null otherwise"),
        sa.Column("n_updates", sa.Integer(), comment="Updates it had when it closed; null while open"),
        sa.Column("n_interactions", sa.BigInteger(), comment="Interactions behind those updates; null while open"),
        sa.Column("model_version", sa.Integer(), comment="The model it made; null unless completed"),
        sa.Column("pacing", sa.String(16), server_default="deadline", nullable=False, comment="deadline or buffered"),
        sa.Column(
            "staleness_limit",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="Buffered: how many model versions old an update's base may be",
        ),
        sa.Column(
            "staleness_exponent",
            sa.Float(),
            server_default="0.5",
            nullable=False,
            comment="Buffered: an update of staleness s weighs (1 + s) ** -exponent",
        ),
        sa.Column("selection_seed", sa.LargeBinary(), comment="Seed of its random selection; null: all were asked"),
        sa.Column(
            "selection_cutoff", sa.LargeBinary(), comment="Whose ticket is at most this was asked; nobody has it"
        ),
        sa.Column("n_selected", sa.Integer(), comment="How many clients were to be asked"),
        sa.Column("n_eligible", sa.Integer(), comment="Clients online when it opened"),
        sa.Column(
            "aggregation",
            sa.String(64),
            server_default="mean",
            nullable=False,
            comment="Rule it is aggregated by, e.g. nnm+krum",
        ),
        sa.Column(
            "byzantine",
            sa.Float(),
            server_default="0.2",
            nullable=False,
            comment="Hostile clients the rule is to withstand: a count, or a share below 0.5",
        ),
        sa.Column(
            "aggregation_parameters",
            sa.Text(),
            server_default="{}",
            nullable=False,
            comment="Parameters of the rule, JSON; those not named have their defaults",
        ),
        sa.Column(
            "aggregation_fallback",
            sa.String(64),
            server_default="median",
            nullable=False,
            comment="Rule where too few arrive for the first one, or abandon",
        ),
        sa.Column(
            "policy_hash",
            sa.LargeBinary(),
            comment="The policy that it is under; null: the federator sees every update",
        ),
        sa.Column(
            "clip_norm", sa.Float(), comment="C, to which devices shorten what they send; null without a policy"
        ),
        sa.CheckConstraint(
            "(policy_hash IS NULL) = (clip_norm IS NULL)", name=op.f("ck_rounds_clip_norm_iff_policy")
        ),
        sa.CheckConstraint(
            "policy_hash IS NOT NULL OR NOT (state IN ('checking', 'opening'))",
            name=op.f("ck_rounds_asks_under_a_policy"),
        ),
        sa.ForeignKeyConstraint(
            ["federation", "policy_hash"],
            ["policies.federation", "policies.hash"],
            name=op.f("fk_rounds_policies_federation_policy_hash"),
        ),
        sa.CheckConstraint("(state = 'abandoned') = (reason IS NOT NULL)", name=op.f("ck_rounds_reason_iff_abandoned")),
        sa.CheckConstraint(
            "(state = 'completed') = (model_version IS NOT NULL)", name=op.f("ck_rounds_model_version_iff_completed")
        ),
        sa.CheckConstraint(
            "(state IN ('collecting', 'checking', 'opening', 'aggregating')) = (closed_at IS NULL)",
            name=op.f("ck_rounds_closed_at_iff_closed"),
        ),
        sa.CheckConstraint(
            "(state IN ('collecting', 'checking', 'opening', 'aggregating')) = (n_interactions IS NULL)",
            name=op.f("ck_rounds_n_interactions_iff_closed"),
        ),
        sa.CheckConstraint(
            "(state IN ('collecting', 'checking', 'opening', 'aggregating')) = (n_updates IS NULL)",
            name=op.f("ck_rounds_n_updates_iff_closed"),
        ),
        sa.CheckConstraint(
            "state IN ('collecting', 'checking', 'opening', 'aggregating', 'completed', 'abandoned')", name=op.f("ck_rounds_state")
        ),
        sa.CheckConstraint("closes_at >= opened_at", name=op.f("ck_rounds_closes_after_opened")),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 500", name=op.f("ck_rounds_reason_length")),
        sa.CheckConstraint("min_clients >= 1 AND max_clients >= min_clients", name=op.f("ck_rounds_clients_range")),
        sa.CheckConstraint("min_time_s >= 0 AND max_time_s >= min_time_s", name=op.f("ck_rounds_time_range")),
        sa.CheckConstraint("number >= 1", name=op.f("ck_rounds_number")),
        sa.ForeignKeyConstraint(
            ["federation", "base_version"],
            ["models.federation", "models.version"],
            name=op.f("fk_rounds_models_federation_base_version"),
        ),
        sa.ForeignKeyConstraint(
            ["federation", "model_version"],
            ["models.federation", "models.version"],
            name=op.f("fk_rounds_models_federation_model_version"),
        ),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_rounds_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "number", name=op.f("pk_rounds")),
        comment="Every round, open or closed",
    )
    op.create_index(
        "uq_rounds_one_open",
        "rounds",
        ["federation"],
        unique=True,
        sqlite_where=sa.text("state IN ('collecting', 'checking', 'opening', 'aggregating')"),
        postgresql_where=sa.text("state IN ('collecting', 'checking', 'opening', 'aggregating')"),
    )
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
            "local_interactions",
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
            "defence_state", sa.LargeBinary(), comment="What the rule of aggregation remembers of all together, or null"
        ),
        sa.Column("reason", sa.Text(), comment="Why it is paused or failed; null otherwise"),
        sa.Column("closed_at", _moment, comment="When it was done or failed, UTC; null while open"),
        sa.Column("model_version", sa.Integer(), comment="The model it made; null unless done"),
        sa.Column("figures", sa.Text(), nullable=False, comment="What was measured of its model, JSON"),
        sa.CheckConstraint(
            "(state = 'done') = (model_version IS NOT NULL)", name=op.f("ck_unlearning_jobs_model_version_iff_done")
        ),
        sa.CheckConstraint(
            "(state IN ('paused', 'failed')) = (reason IS NOT NULL)",
            name=op.f("ck_unlearning_jobs_reason_iff_not_well"),
        ),
        sa.CheckConstraint(
            "(state IN ('running', 'paused')) = (closed_at IS NULL)",
            name=op.f("ck_unlearning_jobs_closed_at_iff_closed"),
        ),
        sa.CheckConstraint(
            "(state IN ('running', 'paused')) = (weights IS NOT NULL)", name=op.f("ck_unlearning_jobs_weights_iff_open")
        ),
        sa.CheckConstraint("state IN ('running', 'paused', 'done', 'failed')", name=op.f("ck_unlearning_jobs_state")),
        sa.CheckConstraint(
            "strategy IN ('fed_eraser', 'rollback', 'retrain')", name=op.f("ck_unlearning_jobs_strategy")
        ),
        sa.CheckConstraint("coverage_sum >= 0 AND coverage_sum <= step", name=op.f("ck_unlearning_jobs_coverage_sum")),
        sa.CheckConstraint("interval >= 1 AND local_interactions >= 1 AND start_round >= 1", name=op.f("ck_unlearning_jobs_plan")),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 500", name=op.f("ck_unlearning_jobs_reason_length")),
        sa.CheckConstraint("number >= 1", name=op.f("ck_unlearning_jobs_number")),
        sa.CheckConstraint("step >= 0 AND n_steps >= step", name=op.f("ck_unlearning_jobs_steps")),
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
    op.create_index(
        "uq_unlearning_jobs_one_open",
        "unlearning_jobs",
        ["federation"],
        unique=True,
        sqlite_where=sa.text("state IN ('running', 'paused')"),
        postgresql_where=sa.text("state IN ('running', 'paused')"),
    )
    op.create_table(
        "erasures",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("pseudonym", sa.String(32), nullable=False, comment="What is left of its name: 32 hex digits"),
        sa.Column(
            "client", _row_id, comment="Its row of clients, which has its name until its device was told; then null"
        ),
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
        sa.Column(
            "key_fingerprint", sa.LargeBinary(), comment="Which data key its updates were sealed with; null: with none"
        ),
        sa.Column("key_destroyed", sa.Boolean(), nullable=False, comment="No data key of it exists any more"),
        sa.Column("told", sa.Boolean(), nullable=False, comment="Its device knows"),
        sa.Column("job", sa.Integer(), comment="The unlearning job it is or was in"),
        sa.Column(
            "receipt", sa.Text(), comment="The signed receipt; null before it is done, and where nothing is signed"
        ),
        sa.Column("audit_seq", sa.Integer(), comment="The entry of the audit log that completes it; null before"),
        sa.CheckConstraint("(state = 'done') = (audit_seq IS NOT NULL)", name=op.f("ck_erasures_audit_seq_iff_done")),
        sa.CheckConstraint(
            "(state = 'done') = (completed_at IS NOT NULL)", name=op.f("ck_erasures_completed_at_iff_done")
        ),
        sa.CheckConstraint("requested_by IN ('device', 'operator')", name=op.f("ck_erasures_requested_by")),
        sa.CheckConstraint("state <> 'unlearning' OR job IS NOT NULL", name=op.f("ck_erasures_unlearning_in_a_job")),
        sa.CheckConstraint("state = 'done' OR receipt IS NULL", name=op.f("ck_erasures_receipt_only_done")),
        sa.CheckConstraint("state IN ('erased', 'waiting', 'unlearning', 'done')", name=op.f("ck_erasures_state")),
        sa.CheckConstraint(
            "(n_rounds = 0) = (first_round IS NULL)", name=op.f("ck_erasures_first_round_iff_in_models")
        ),
        sa.CheckConstraint("length(erased_digest) = 64", name=op.f("ck_erasures_erased_digest_length")),
        sa.CheckConstraint("length(key_fingerprint) = 8", name=op.f("ck_erasures_key_fingerprint_length")),
        sa.CheckConstraint("length(pseudonym) = 32", name=op.f("ck_erasures_pseudonym_length")),
        sa.CheckConstraint(
            "n_rounds >= 0 AND n_updates >= n_rounds AND n_events >= 0", name=op.f("ck_erasures_counts")
        ),
        sa.ForeignKeyConstraint(["client"], ["clients.id"], name=op.f("fk_erasures_clients_client")),
        sa.ForeignKeyConstraint(
            ["federation", "job"],
            ["unlearning_jobs.federation", "unlearning_jobs.number"],
            name=op.f("fk_erasures_unlearning_jobs_federation_job"),
        ),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"], name=op.f("fk_erasures_federations_federation")),
        sa.PrimaryKeyConstraint("federation", "pseudonym", name=op.f("pk_erasures")),
        comment="Every client that was forgotten: what proves it, and that its name is not used again",
    )
    op.create_index(op.f("ix_erasures_client"), "erasures", ["client"], unique=False)
    op.create_index(op.f("ix_erasures_federation_state"), "erasures", ["federation", "state"], unique=False)
    op.create_table(
        "round_aggregations",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("round", sa.Integer(), nullable=False, comment="The round"),
        sa.Column("rule", sa.String(64), nullable=False, comment="Rule that made its model"),
        sa.Column(
            "parameters", sa.Text(), nullable=False, comment="Parameters as used, JSON: n updates, m hostile ones, ..."
        ),
        sa.Column("fallback_reason", sa.Text(), comment="Why it is not the configured rule; null if it is"),
        sa.Column("n_kept", sa.Integer(), nullable=False, comment="Updates in the model as they were sent"),
        sa.Column("n_clipped", sa.Integer(), nullable=False, comment="Updates in the model after they were shortened"),
        sa.Column("n_dropped", sa.Integer(), nullable=False, comment="Updates that are not in the model"),
        sa.CheckConstraint(
            "length(fallback_reason) BETWEEN 1 AND 500", name=op.f("ck_round_aggregations_fallback_reason_length")
        ),
        sa.CheckConstraint("length(rule) > 0", name=op.f("ck_round_aggregations_rule_length")),
        sa.CheckConstraint(
            "n_kept >= 0 AND n_clipped >= 0 AND n_dropped >= 0", name=op.f("ck_round_aggregations_counts")
        ),
        sa.ForeignKeyConstraint(
            ["federation", "round"],
            ["rounds.federation", "rounds.number"],
            name=op.f("fk_round_aggregations_rounds_federation_round"),
        ),
        sa.PrimaryKeyConstraint("federation", "round", name=op.f("pk_round_aggregations")),
        comment="How a round was aggregated by a rule; none for the plain mean",
    )
    op.create_table(
        "updates",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("round", sa.Integer(), nullable=False, comment="The round it counts in"),
        sa.Column("client", _row_id, nullable=False, comment="The device that sent it"),
        sa.Column("update_id", sa.String(36), nullable=False, comment="Chosen by the device, kept on resending"),
        sa.Column("base_version", sa.Integer(), nullable=False, comment="The model the device trained from"),
        sa.Column("n_interactions", sa.Integer(), nullable=False, comment="Interactions behind it"),
        sa.Column(
            "encoding", sa.String(64), nullable=False, comment="How body is encoded: dense_f32, part_f32, evolution or masked_u64"
        ),
        sa.Column("n_bytes", sa.Integer(), nullable=False, comment="Length of the update as sent"),
        sa.Column("received_at", _moment, nullable=False, comment="When the federator received it, UTC"),
        sa.Column(
            "covers_after",
            sa.BigInteger(),
            comment="It covers its client's interactions above this number; null once taken back with its round",
        ),
        sa.Column("covers_through", sa.BigInteger(), comment="... and up to this one"),
        sa.Column(
            "key_fingerprint", sa.LargeBinary(), comment="Which data key body is sealed with; null where it is as sent"
        ),
        sa.Column(
            "cohort",
            sa.Integer(),
            comment="Of a masked update: which of its round's sums it is for; null of any other",
        ),
        sa.Column(
            "position", sa.Integer(), comment="Of a masked update: its ticket's among those of its cohort, from 0"
        ),
        sa.Column(
            "ticket", sa.LargeBinary(), comment="Of a masked update: what helpers are shown; goes with the body"
        ),
        sa.Column(
            "fault", sa.String(32), comment="Why a helper took it out of its sum; null unless one did"
        ),
        sa.Column("body", sa.LargeBinary(), comment="The update itself, sealed as cipher says; null once thinned"),
        sa.Column(
            "cipher",
            sa.String(64),
            server_default="",
            nullable=False,
            comment="How body is sealed with its client's data key: aes-256-gcm; empty: it is as sent",
        ),
        sa.CheckConstraint(
            "(cohort IS NOT NULL) = (encoding = 'masked_u64')", name=op.f("ck_updates_cohort_iff_masked")
        ),
        sa.CheckConstraint(
            "(ticket IS NOT NULL) = (cohort IS NOT NULL AND body IS NOT NULL)",
            name=op.f("ck_updates_ticket_goes_with_body"),
        ),
        sa.CheckConstraint("(cohort IS NULL) = (position IS NULL)", name=op.f("ck_updates_position_in_a_cohort")),
        sa.CheckConstraint("fault IS NULL OR cohort IS NOT NULL", name=op.f("ck_updates_fault_of_a_masked_one")),
        sa.CheckConstraint(
            "(cipher = '') = (key_fingerprint IS NULL)", name=op.f("ck_updates_key_fingerprint_iff_sealed")
        ),
        sa.CheckConstraint("cipher IN ('', 'aes-256-gcm')", name=op.f("ck_updates_cipher")),
        sa.CheckConstraint(
            "length(body) = n_bytes + CASE cipher WHEN '' THEN 0 ELSE 28 END", name=op.f("ck_updates_n_bytes")
        ),
        sa.CheckConstraint("(covers_after IS NULL) = (covers_through IS NULL)", name=op.f("ck_updates_covers_both")),
        sa.CheckConstraint("base_version >= 0", name=op.f("ck_updates_base_version")),
        sa.CheckConstraint("covers_after >= 0 AND covers_after < covers_through", name=op.f("ck_updates_covers_range")),
        sa.CheckConstraint("length(key_fingerprint) = 8", name=op.f("ck_updates_key_fingerprint_length")),
        sa.CheckConstraint("length(update_id) BETWEEN 1 AND 36", name=op.f("ck_updates_update_id_length")),
        sa.CheckConstraint(
            "n_interactions <= covers_through - covers_after", name=op.f("ck_updates_covers_interactions")
        ),
        sa.CheckConstraint("n_interactions > 0", name=op.f("ck_updates_n_interactions")),
        sa.ForeignKeyConstraint(["client"], ["clients.id"], name=op.f("fk_updates_clients_client")),
        sa.ForeignKeyConstraint(
            ["federation", "round"],
            ["rounds.federation", "rounds.number"],
            name=op.f("fk_updates_rounds_federation_round"),
        ),
        sa.PrimaryKeyConstraint("federation", "round", "client", name=op.f("pk_updates")),
        sa.UniqueConstraint("client", "covers_after", name=op.f("uq_updates_client_covers_after")),
        sa.UniqueConstraint("client", "update_id", name=op.f("uq_updates_client_update_id")),
        comment="Every accepted update: the contribution of one client to one round",
    )
    op.create_index(
        "uq_updates_position",
        "updates",
        ["federation", "round", "cohort", "position"],
        unique=True,
        sqlite_where=sa.text("cohort IS NOT NULL"),
        postgresql_where=sa.text("cohort IS NOT NULL"),
    )
    op.create_table(
        "update_fates",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("round", sa.Integer(), nullable=False, comment="The round"),
        sa.Column("client", _row_id, nullable=False, comment="The device whose update it is"),
        sa.Column("fate", sa.String(16), nullable=False, comment="kept, clipped or dropped"),
        sa.Column(
            "share", sa.Float(), comment="How much of the model's step is this update's, 0 to 1; null: cannot be said"
        ),
        sa.Column("score", sa.Float(), comment="What the rule decided by; its meaning is the rule's"),
        sa.Column("reason", sa.Text(), nullable=False, comment="Why it was clipped or dropped; empty if it was kept"),
        sa.CheckConstraint("fate IN ('kept', 'clipped', 'dropped')", name=op.f("ck_update_fates_fate")),
        sa.CheckConstraint("length(reason) <= 500", name=op.f("ck_update_fates_reason_length")),
        sa.CheckConstraint("share >= 0 AND share <= 1", name=op.f("ck_update_fates_share")),
        sa.ForeignKeyConstraint(["client"], ["clients.id"], name=op.f("fk_update_fates_clients_client")),
        sa.ForeignKeyConstraint(
            ["federation", "round"],
            ["round_aggregations.federation", "round_aggregations.round"],
            name=op.f("fk_update_fates_round_aggregations_federation_round"),
        ),
        sa.PrimaryKeyConstraint("federation", "round", "client", name=op.f("pk_update_fates")),
        comment="What a rule made of each update of a round; none for the plain mean",
    )
    op.create_index(op.f("ix_update_fates_client"), "update_fates", ["client"], unique=False)
    op.create_table(
        "defence_records",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "job",
            sa.Integer(),
            nullable=False,
            comment="The unlearning job whose steps it is of; 0: it is of the rounds",
        ),
        sa.Column("client", _row_id, nullable=False, comment="Whose record it is"),
        sa.Column(
            "record", sa.LargeBinary(), nullable=False, comment="What the rule of aggregation remembers of the client"
        ),
        sa.CheckConstraint("job >= 0", name=op.f("ck_defence_records_job")),
        sa.ForeignKeyConstraint(["client"], ["clients.id"], name=op.f("fk_defence_records_clients_client")),
        sa.PrimaryKeyConstraint("federation", "job", "client", name=op.f("pk_defence_records")),
        comment="What the rule of aggregation remembers of each client after the newest model, or a job's newest step",
    )
    op.create_index(op.f("ix_defence_records_client"), "defence_records", ["client"], unique=False)
    op.create_table(
        "round_sums",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("round", sa.Integer(), nullable=False, comment="The round"),
        sa.Column("cohort", sa.Integer(), nullable=False, comment="Which of its cohorts, from 0"),
        sa.Column("n_tickets", sa.Integer(), nullable=False, comment="Positions of tickets that helpers were shown"),
        sa.Column(
            "n_clients", sa.Integer(), nullable=False, comment="Those in the sum: whom no helper took out"
        ),
        sa.Column(
            "kept",
            sa.LargeBinary(),
            nullable=False,
            comment="Those as bits by position, the first the highest",
        ),
        sa.Column(
            "set_digest",
            sa.LargeBinary(),
            nullable=False,
            comment="SHA-256 over the SHA-256 of each of their tickets",
        ),
        sa.Column(
            "masked_sum",
            sa.LargeBinary(),
            comment="Sum of their masked vectors; null until all helpers have answered",
        ),
        sa.Column("fate", sa.String(16), comment="By the rule: kept, clipped or dropped; null of the plain mean"),
        sa.Column(
            "share", sa.Float(), comment="How much of the model's step is this sum's, 0 to 1; null: cannot be said"
        ),
        sa.CheckConstraint("fate IN ('kept', 'clipped', 'dropped')", name=op.f("ck_round_sums_fate")),
        sa.CheckConstraint("cohort >= 0", name=op.f("ck_round_sums_cohort")),
        sa.CheckConstraint("length(kept) = (n_tickets + 7) / 8", name=op.f("ck_round_sums_kept_length")),
        sa.CheckConstraint(
            "length(masked_sum) = 8 * (length(masked_sum) / 8)", name=op.f("ck_round_sums_masked_sum_length")
        ),
        sa.CheckConstraint("length(set_digest) = 32", name=op.f("ck_round_sums_set_digest_length")),
        sa.CheckConstraint("n_clients BETWEEN 1 AND n_tickets", name=op.f("ck_round_sums_n_clients")),
        sa.CheckConstraint("share >= 0 AND share <= 1", name=op.f("ck_round_sums_share")),
        sa.ForeignKeyConstraint(
            ["federation", "round"],
            ["rounds.federation", "rounds.number"],
            name=op.f("fk_round_sums_rounds_federation_round"),
        ),
        sa.PrimaryKeyConstraint("federation", "round", "cohort", name=op.f("pk_round_sums")),
        sa.UniqueConstraint(
            "federation",
            "round",
            "cohort",
            "set_digest",
            name=op.f("uq_round_sums_federation_round_cohort_set_digest"),
        ),
        comment="The set of clients of each cohort that a sum was asked of, fixed before anybody was asked, "
        "and their sum",
    )
    op.create_table(
        "helper_answers",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("round", sa.Integer(), nullable=False, comment="The round"),
        sa.Column("cohort", sa.Integer(), nullable=False, comment="The cohort"),
        sa.Column("helper", sa.String(64), nullable=False, comment="Who answered"),
        sa.Column(
            "start",
            sa.Integer(),
            nullable=False,
            comment="The number of the sum that this part of the answer begins with",
        ),
        sa.Column(
            "set_digest",
            sa.LargeBinary(),
            nullable=False,
            comment="The set that it answers for: the one that was asked",
        ),
        sa.Column("answer", sa.LargeBinary(), nullable=False, comment="The answer as the helper signed it"),
        sa.CheckConstraint("start >= 0", name=op.f("ck_helper_answers_start")),
        sa.ForeignKeyConstraint(
            ["federation", "round", "cohort", "set_digest"],
            ["round_sums.federation", "round_sums.round", "round_sums.cohort", "round_sums.set_digest"],
            name="fk_helper_answers_round_sums",
        ),
        sa.PrimaryKeyConstraint(
            "federation", "round", "cohort", "helper", "start", name=op.f("pk_helper_answers")
        ),
        comment="What each helper answered for a set: the sum of its masks less the helper's noise, in parts",
    )
    _create_views()


def downgrade() -> None:
    for view in reversed(_VIEWS):
        op.execute(f"DROP VIEW {view}")
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_views() -> None:
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":
        # ANALYZE would write names down in its statistics, of the most common ones and of bounds between others.
        op.execute("ALTER TABLE clients ALTER COLUMN client_id SET STATISTICS 0")
    op.execute(_ROUND_HISTORY.format(duration_s=_DURATION_S[dialect]))
    op.execute(_CLIENT_HISTORY)
    op.execute(_EVENT_HISTORY)
    if dialect == "postgresql":  # SQLite keeps no comments
        for view, comment in _VIEW_COMMENTS.items():
            op.execute(f"COMMENT ON VIEW {view} IS '{comment}'")
        for column, comment in _COLUMN_COMMENTS.items():
            op.execute(f"COMMENT ON COLUMN {column} IS '{comment}'")
