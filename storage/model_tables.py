"""The table of models: every version of the ranker, and where each came from."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    text,
)

from foltr.storage.schema import UtcDateTime, federation_column, metadata

models = Table(
    "models",
    metadata,
    federation_column(),
    Column("version", Integer, nullable=False, comment="0 is the initial model; each completed round adds one"),
    Column("base_version", Integer, comment="The model this one was aggregated onto; null for version 0"),
    Column("round", Integer, comment="The round that made it; null of any other origin"),
    Column(
        "n_values",
        Integer,
        nullable=False,
        comment="Number of values in weights; for a linear ranker the features",
    ),
    Column(
        "weights",
        LargeBinary,
        comment="Little-endian float32: the ranker's, then what only training uses; null once withdrawn",
    ),
    Column(
        "weights_hash",
        LargeBinary,
        nullable=False,
        comment="First 16 bytes of SHA-256 of its weights; stays when they are withdrawn",
    ),
    Column("created_at", UtcDateTime, nullable=False, comment="When it was committed, UTC"),
    Column("published_at", UtcDateTime, comment="When the broker took it, UTC; null: still to publish (outbox)"),
    Column(
        "optimizer_state",
        LargeBinary,
        comment="The federator's optimiser after this model, e.g. Adam's moments; null: none",
    ),
    Column("defence_state", LargeBinary, comment="What the rule of aggregation remembers of all together, or null"),
    Column("tainted_at", UtcDateTime, comment="Since when it is known to hold what an erased client sent, UTC"),
    Column("withdrawn_at", UtcDateTime, comment="When its weights were deleted, UTC; null while they are there"),
    # No foreign key: jobs have one to models, and two tables that refer to each other cannot be created.
    Column("unlearning_job", Integer, comment="The unlearning job that made it; null of any other origin"),
    Column(
        "restored_version",
        Integer,
        comment="The older model whose weights it has: those since were rolled back; null of any other origin",
    ),
    PrimaryKeyConstraint("federation", "version"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    ForeignKeyConstraint(["federation", "base_version"], ["models.federation", "models.version"]),
    ForeignKeyConstraint(["federation", "restored_version"], ["models.federation", "models.version"]),
    CheckConstraint("version >= 0", name="version"),
    CheckConstraint("base_version < version", name="base_version_before_version"),
    CheckConstraint("(version = 0) = (base_version IS NULL)", name="base_version_iff_not_initial"),
    # The first one, or made by a round, by an unlearning job, or by taking models back.
    CheckConstraint(
        "CASE WHEN version = 0 THEN 1 ELSE 0 END + CASE WHEN round IS NULL THEN 0 ELSE 1 END"
        " + CASE WHEN unlearning_job IS NULL THEN 0 ELSE 1 END"
        " + CASE WHEN restored_version IS NULL THEN 0 ELSE 1 END = 1",
        name="one_origin",
    ),
    # So following models to their bases skips those that were taken back.
    CheckConstraint("restored_version IS NULL OR restored_version = base_version", name="restored_onto_the_anchor"),
    CheckConstraint("length(weights) = 4 * n_values", name="weights_length"),
    CheckConstraint("length(weights_hash) = 16", name="weights_hash_length"),
    CheckConstraint("(withdrawn_at IS NULL) = (weights IS NOT NULL)", name="weights_until_withdrawn"),
    CheckConstraint("withdrawn_at IS NULL OR tainted_at IS NOT NULL", name="withdrawn_only_tainted"),
    comment="Every version of the ranker. It is the outbox too: a model is published until it is marked so",
)
_RESTORED = "restored_version IS NOT NULL"
Index(
    "ix_models_restored",
    models.c.federation,
    models.c.restored_version,
    models.c.version,
    sqlite_where=text(_RESTORED),
    postgresql_where=text(_RESTORED),
)
