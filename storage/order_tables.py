"""The table of the operator's orders."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

from foltr.core.protocol.states import OrderOutcome
from foltr.storage.schema import (
    DETAIL_MAX,
    SHORT_TEXT_MAX,
    Member,
    UtcDateTime,
    client_column,
    federation_column,
    in_words,
    metadata,
    one_of,
)

orders = Table(
    "orders",
    metadata,
    federation_column(),
    Column("number", Integer, nullable=False, comment="1, 2, 3, ... as the operator numbered them"),
    Column("kind", String(SHORT_TEXT_MAX), nullable=False, comment="What was ordered, e.g. quarantine"),
    Column("payload", LargeBinary, comment="The order as signed; null once a client that it names was forgotten"),
    Column("digest", LargeBinary, nullable=False, comment="SHA-256 of the order as signed"),
    Column("outcome", Member(OrderOutcome), nullable=False, comment=in_words(OrderOutcome)),
    Column("code", String(SHORT_TEXT_MAX), comment="Reason code of the refusal; null: it was obeyed"),
    Column("detail", Text, nullable=False, comment="What a person needs to know"),
    client_column("The client that it is about; null: none, or a forgotten one", index=True),
    Column("at", UtcDateTime, nullable=False, comment="When it was obeyed or refused, UTC"),
    PrimaryKeyConstraint("federation", "number"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint(f"length(kind) BETWEEN 1 AND {SHORT_TEXT_MAX}", name="kind_length"),
    CheckConstraint("length(digest) = 32", name="digest_length"),
    CheckConstraint(one_of("outcome", OrderOutcome), name="outcome"),
    CheckConstraint(f"(outcome = '{OrderOutcome.OBEYED}') = (code IS NULL)", name="code_iff_refused"),
    CheckConstraint(f"length(code) BETWEEN 1 AND {SHORT_TEXT_MAX}", name="code_length"),
    CheckConstraint(f"length(detail) <= {DETAIL_MAX}", name="detail_length"),
    comment="The operator's orders with what became of each: obeyed in their order, each exactly once",
)
