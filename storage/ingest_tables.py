"""The tables of ingest workers: who takes a federation's updates at present, and which workers there are."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

from foltr.core.protocol.states import TakesUpdates
from foltr.storage.schema import Member, UtcDateTime, federation_column, in_words, metadata, one_of

WORKER_ID_MAX = 64

ingestion = Table(
    "ingestion",
    metadata,
    federation_column(),
    Column(
        "takes_updates",
        Member(TakesUpdates),
        nullable=False,
        comment=f"{in_words(TakesUpdates)}: nobody else stores an update",
    ),
    Column(
        "n_answers",
        BigInteger,
        nullable=False,
        comment="Answers to devices that were numbered under the newest claim; each next one has a higher number",
    ),
    Column(
        "n_collected",
        Integer,
        nullable=False,
        comment="Updates that the open round has; right while workers take them",
    ),
    Column("evaluation", Boolean, nullable=False, comment="Whether devices are asked what their users' lists earned"),
    PrimaryKeyConstraint("federation"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint(one_of("takes_updates", TakesUpdates), name="takes_updates"),
    CheckConstraint("n_answers >= 0", name="n_answers"),
    CheckConstraint("n_collected >= 0", name="n_collected"),
    comment="Who takes a federation's updates; no row: its writer. Changed only by who holds the federation's row",
)

ingest_workers = Table(
    "ingest_workers",
    metadata,
    federation_column(),
    Column("worker_id", String(WORKER_ID_MAX), nullable=False, comment="One process, as long as it lives"),
    Column("seen_at", UtcDateTime, nullable=False, comment="When it wrote last; the database's clock, UTC"),
    Column(
        "arrived_before",
        UtcDateTime,
        nullable=False,
        comment="Every update that reached it before this moment is stored or answered, UTC",
    ),
    PrimaryKeyConstraint("federation", "worker_id"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint(f"length(worker_id) BETWEEN 1 AND {WORKER_ID_MAX}", name="worker_id_length"),
    comment="Ingest workers; one that was not seen for a while is gone",
)

ingest_batches = Table(
    "ingest_batches",
    metadata,
    federation_column(),
    Column("first_answer", BigInteger, nullable=False, comment="The number of its first answer"),
    Column(
        "clients", Text, nullable=False, comment="Whose updates are in it: their keys in clients, as a list in JSON"
    ),
    PrimaryKeyConstraint("federation", "first_answer"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    comment="Batches that workers have stored since their leader let them take updates, until it does so again",
)
