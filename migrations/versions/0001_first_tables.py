"""Federations, clients, models, rounds, updates, events, and the two history views.

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
_open = sa.text("state IN ('collecting', 'aggregating')")

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
    (SELECT count(*) FROM events e
      WHERE e.federation = r.federation AND e.round = r.number
        AND e.kind = 'update_rejected') AS n_rejected,  -- updates refused that named this round
    r.min_clients,
    r.max_clients,
    r.min_time_s,
    r.max_time_s
FROM rounds r
"""

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
    r.model_version     -- the model its update went into; null unless the round completed
FROM updates u
JOIN rounds r ON r.federation = u.federation AND r.number = u.round
"""

_VIEW_COMMENTS = {
    "round_history": "Every round with what it collected, what it refused and how it ended",
    "client_history": "What every client contributed to every round",
}

_COLUMN_COMMENTS = {
    "round_history.duration_s": "Seconds from opening to closing; null while open",
    "round_history.model_version": "The model it made; null unless completed",
    "round_history.n_updates": "Updates of the round that are stored now",
    "round_history.n_interactions": "Interactions behind those updates",
    "round_history.n_rejected": "Updates refused that named this round",
    "client_history.n_bytes": "Length of the update as sent",
    "client_history.round_state": "State of the round",
    "client_history.model_version": "The model the update went into; null unless the round completed",
}


def upgrade() -> None:
    op.create_table(
        "federations",
        sa.Column("name", sa.String(64), nullable=False, comment="Name, as in the MQTT topics"),
        sa.Column(
            "writer_epoch",
            sa.Integer(),
            nullable=False,
            comment="Counts claims; only the federator of the last claim may write",
        ),
        sa.Column(
            "last_batch_id",
            sa.String(36),
            comment="The last committed batch: offered again, it is not applied again",
        ),
        sa.Column("ranker", sa.String(64), nullable=False, comment="Kind of ranker, e.g. linear"),
        sa.Column("n_features", sa.Integer(), nullable=False, comment="Features of one document"),
        sa.Column("created_at", _moment, nullable=False, comment="When the federation was created, UTC"),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 64", name=op.f("ck_federations_name_length")),
        sa.CheckConstraint("length(ranker) > 0", name=op.f("ck_federations_ranker_length")),
        sa.CheckConstraint("n_features > 0", name=op.f("ck_federations_n_features")),
        sa.CheckConstraint("writer_epoch >= 0", name=op.f("ck_federations_writer_epoch")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_federations")),
        comment="One federation: a ranker learned together. The row is also the lock of its single writer",
    )

    op.create_table(
        "clients",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "client_id", _client_id, nullable=False, comment="Identity of the device within the federation"
        ),
        sa.Column("membership", sa.String(16), nullable=False, comment="joined or left"),
        sa.Column(
            "online", sa.Boolean(), nullable=False, comment="Connected, as far as its status messages tell"
        ),
        sa.Column("joined_at", _moment, nullable=False, comment="Start of the latest membership, UTC"),
        sa.Column("left_at", _moment, comment="When it left, UTC; set exactly while membership is left"),
        sa.Column("last_seen_at", _moment, nullable=False, comment="Latest join, leave or status, UTC"),
        sa.Column("n_features", sa.Integer(), comment="Features the device said it has"),
        sa.Column("sdk_version", sa.String(64), comment="Version of foltr the device said it runs"),
        sa.CheckConstraint(
            "(membership = 'left') = (left_at IS NOT NULL)", name=op.f("ck_clients_left_at_iff_left")
        ),
        sa.CheckConstraint("membership IN ('joined', 'left')", name=op.f("ck_clients_membership")),
        sa.CheckConstraint("length(client_id) BETWEEN 1 AND 64", name=op.f("ck_clients_client_id_length")),
        sa.CheckConstraint("length(sdk_version) <= 64", name=op.f("ck_clients_sdk_version_length")),
        sa.CheckConstraint("n_features > 0", name=op.f("ck_clients_n_features")),
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_clients_federations_federation")
        ),
        sa.PrimaryKeyConstraint("federation", "client_id", name=op.f("pk_clients")),
        comment="Every device that ever joined, and where it stands now",
    )

    op.create_table(
        "models",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "version",
            sa.Integer(),
            nullable=False,
            comment="0 is the initial model; each completed round adds one",
        ),
        sa.Column(
            "base_version", sa.Integer(), comment="The model this one was aggregated onto; null for version 0"
        ),
        sa.Column("round", sa.Integer(), comment="The round that made it; null for version 0"),
        sa.Column("n_features", sa.Integer(), nullable=False, comment="Number of weights"),
        sa.Column(
            "weights", sa.LargeBinary(), nullable=False, comment="Little-endian float32, one per feature"
        ),
        sa.Column("created_at", _moment, nullable=False, comment="When it was committed, UTC"),
        sa.Column(
            "published_at", _moment, comment="When the broker took it, UTC; null: still to publish (outbox)"
        ),
        sa.CheckConstraint(
            "(version = 0) = (base_version IS NULL)", name=op.f("ck_models_base_version_iff_not_initial")
        ),
        sa.CheckConstraint("(version = 0) = (round IS NULL)", name=op.f("ck_models_round_iff_not_initial")),
        sa.CheckConstraint("base_version < version", name=op.f("ck_models_base_version_before_version")),
        sa.CheckConstraint("length(weights) = 4 * n_features", name=op.f("ck_models_weights_length")),
        sa.CheckConstraint("version >= 0", name=op.f("ck_models_version")),
        sa.ForeignKeyConstraint(
            ["federation", "base_version"],
            ["models.federation", "models.version"],
            name=op.f("fk_models_models_federation_base_version"),
        ),
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_models_federations_federation")
        ),
        sa.PrimaryKeyConstraint("federation", "version", name=op.f("pk_models")),
        comment="Every version of the ranker. It is the outbox too: a model is published until it is marked so",
    )

    op.create_table(
        "rounds",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("number", sa.Integer(), nullable=False, comment="1, 2, 3, ..."),
        sa.Column(
            "state", sa.String(16), nullable=False, comment="collecting, aggregating, completed or abandoned"
        ),
        sa.Column("base_version", sa.Integer(), nullable=False, comment="The model the round trains from"),
        sa.Column(
            "min_clients", sa.Integer(), nullable=False, comment="Fewer updates than this abandon the round"
        ),
        sa.Column(
            "max_clients", sa.Integer(), nullable=False, comment="This many updates close the round at once"
        ),
        sa.Column(
            "min_time_s",
            sa.Float(),
            nullable=False,
            comment="The round stays open at least this long, seconds",
        ),
        sa.Column(
            "max_time_s",
            sa.Float(),
            nullable=False,
            comment="The round stays open at most this long, seconds",
        ),
        sa.Column("opened_at", _moment, nullable=False, comment="When it opened, UTC"),
        sa.Column("closes_at", _moment, nullable=False, comment="The deadline, UTC"),
        sa.Column("closed_at", _moment, comment="When it was completed or abandoned, UTC; null while open"),
        sa.Column("reason", sa.Text(), comment="Why it was abandoned; null otherwise"),
        sa.Column("n_updates", sa.Integer(), comment="Updates it had when it closed; null while open"),
        sa.Column(
            "n_interactions", sa.BigInteger(), comment="Interactions behind those updates; null while open"
        ),
        sa.Column("model_version", sa.Integer(), comment="The model it made; null unless completed"),
        sa.CheckConstraint(
            "(state = 'abandoned') = (reason IS NOT NULL)", name=op.f("ck_rounds_reason_iff_abandoned")
        ),
        sa.CheckConstraint(
            "(state = 'completed') = (model_version IS NOT NULL)",
            name=op.f("ck_rounds_model_version_iff_completed"),
        ),
        sa.CheckConstraint(
            "(state IN ('collecting', 'aggregating')) = (closed_at IS NULL)",
            name=op.f("ck_rounds_closed_at_iff_closed"),
        ),
        sa.CheckConstraint(
            "(state IN ('collecting', 'aggregating')) = (n_interactions IS NULL)",
            name=op.f("ck_rounds_n_interactions_iff_closed"),
        ),
        sa.CheckConstraint(
            "(state IN ('collecting', 'aggregating')) = (n_updates IS NULL)",
            name=op.f("ck_rounds_n_updates_iff_closed"),
        ),
        sa.CheckConstraint(
            "state IN ('collecting', 'aggregating', 'completed', 'abandoned')", name=op.f("ck_rounds_state")
        ),
        sa.CheckConstraint("closes_at >= opened_at", name=op.f("ck_rounds_closes_after_opened")),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 500", name=op.f("ck_rounds_reason_length")),
        sa.CheckConstraint(
            "min_clients >= 1 AND max_clients >= min_clients", name=op.f("ck_rounds_clients_range")
        ),
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
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_rounds_federations_federation")
        ),
        sa.PrimaryKeyConstraint("federation", "number", name=op.f("pk_rounds")),
        comment="Every round, open or closed",
    )
    op.create_index(
        "uq_rounds_one_open",
        "rounds",
        ["federation"],
        unique=True,
        sqlite_where=_open,
        postgresql_where=_open,
    )

    op.create_table(
        "updates",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("round", sa.Integer(), nullable=False, comment="The round it counts in"),
        sa.Column("client_id", _client_id, nullable=False, comment="The device that sent it"),
        sa.Column(
            "update_id", sa.String(36), nullable=False, comment="Chosen by the device, kept on resending"
        ),
        sa.Column("base_version", sa.Integer(), nullable=False, comment="The model the device trained from"),
        sa.Column("n_interactions", sa.Integer(), nullable=False, comment="Interactions behind it"),
        sa.Column("encoding", sa.String(64), nullable=False, comment="How body is encoded, e.g. dense_f32"),
        sa.Column("n_bytes", sa.Integer(), nullable=False, comment="Length of body"),
        sa.Column("received_at", _moment, nullable=False, comment="When the federator received it, UTC"),
        sa.Column("body", sa.LargeBinary(), nullable=False, comment="The update itself, as sent"),
        sa.CheckConstraint("base_version >= 0", name=op.f("ck_updates_base_version")),
        sa.CheckConstraint("length(update_id) BETWEEN 1 AND 36", name=op.f("ck_updates_update_id_length")),
        sa.CheckConstraint("n_bytes = length(body)", name=op.f("ck_updates_n_bytes")),
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
        comment="Every accepted update: the contribution of one client to one round",
    )

    op.create_table(
        "events",
        sa.Column("id", _row_id, autoincrement=True, nullable=False, comment="Order of recording"),
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("at", _moment, nullable=False, comment="When it happened, UTC"),
        sa.Column("kind", sa.String(64), nullable=False, comment="What happened, e.g. update_rejected"),
        sa.Column("code", sa.String(64), comment="Reason code of the receipt, e.g. late"),
        sa.Column("client_id", _client_id, comment="The client as the message named it"),
        sa.Column("round", sa.Integer(), comment="The round as the message named it"),
        sa.Column("detail", sa.Text(), nullable=False, comment="What a person needs to know"),
        sa.CheckConstraint("length(client_id) <= 64", name=op.f("ck_events_client_id_length")),
        sa.CheckConstraint("length(code) BETWEEN 1 AND 64", name=op.f("ck_events_code_length")),
        sa.CheckConstraint("length(detail) <= 500", name=op.f("ck_events_detail_length")),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_events_kind_length")),
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_events_federations_federation")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        comment="What was refused, who came and who left",
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_federation_client_id"), "events", ["federation", "client_id"])
    op.create_index(op.f("ix_events_federation_round"), "events", ["federation", "round"])

    dialect = op.get_bind().dialect.name
    op.execute(_ROUND_HISTORY.format(duration_s=_DURATION_S[dialect]))
    op.execute(_CLIENT_HISTORY)
    if dialect == "postgresql":
        for view, comment in _VIEW_COMMENTS.items():
            op.execute(f"COMMENT ON VIEW {view} IS '{comment}'")
        for column, comment in _COLUMN_COMMENTS.items():
            op.execute(f"COMMENT ON COLUMN {column} IS '{comment}'")


def downgrade() -> None:
    for view in ("client_history", "round_history"):
        op.execute(f"DROP VIEW {view}")
    for table in ("events", "updates", "rounds", "models", "clients", "federations"):
        op.drop_table(table)
