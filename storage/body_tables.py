"""The tables of updates' bodies, separate from facts about updates: they are large, and retention deletes them.

On PostgreSQL ``update_bodies`` is partitioned by ``part``, so dropping a table deletes a block of rounds.
"""

from sqlalchemy import (
    DDL,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
    event,
)

from foltr.storage.schema import SHORT_TEXT_MAX, RowId, UtcDateTime, federation_column, metadata

ROW_BY_ROW = 0
"""The part whose bodies are deleted row by row: shared by all federations, and the only one on SQLite."""

update_bodies = Table(
    "update_bodies",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round of its update"),
    Column("client", RowId, nullable=False, comment="The device that sent it"),
    Column(
        "part",
        Integer,
        nullable=False,
        server_default=str(ROW_BY_ROW),
        comment="As its round's: bodies of one part are deleted together, those of part 0 row by row",
    ),
    Column(
        "cipher",
        String(SHORT_TEXT_MAX),
        nullable=False,
        server_default="",
        comment="How body is sealed with its client's data key: aes-256-gcm; empty: it is as sent",
    ),
    Column("key_fingerprint", LargeBinary, comment="Which data key body is sealed with; null: as sent"),
    Column("ticket", LargeBinary, comment="Of a masked update: what helpers are shown; null of any other"),
    # The last column, so that SQLite reads the others without following a long body's overflow pages.
    Column("body", LargeBinary, nullable=False, comment="The update itself, sealed as cipher says"),
    PrimaryKeyConstraint("federation", "round", "client", "part"),
    # On PostgreSQL it would add two thirds to the cost of storing a body, and search each part for each deleted update.
    # There the same statements keep it, and tests count bodies without an update.
    ForeignKeyConstraint(
        ["federation", "round", "client"], ["updates.federation", "updates.round", "updates.client"]
    ).ddl_if(dialect="sqlite"),
    CheckConstraint("part >= 0", name="part"),
    CheckConstraint("cipher IN ('', 'aes-256-gcm')", name="cipher"),
    CheckConstraint("(cipher = '') = (key_fingerprint IS NULL)", name="key_fingerprint_iff_sealed"),
    CheckConstraint("length(key_fingerprint) = 8", name="key_fingerprint_length"),
    # Encryption adds a nonce of 12 bytes and a tag of 16.
    CheckConstraint("cipher = '' OR length(body) >= 28", name="sealed_length"),
    comment="What was sent with each update, until its round is thinned",
    postgresql_partition_by="LIST (part)",
)
_FIRST_PART = DDL(  # type: ignore[no-untyped-call]
    f"CREATE TABLE update_bodies_{ROW_BY_ROW} PARTITION OF update_bodies FOR VALUES IN ({ROW_BY_ROW})"
)
event.listen(
    update_bodies,
    "after_create",
    _FIRST_PART.execute_if(dialect="postgresql"),
)

body_parts = Table(
    "body_parts",
    metadata,
    Column("part", Integer, primary_key=True, autoincrement=True, comment="Its number, from 1; never used again"),
    federation_column(),
    Column("first_round", Integer, nullable=False, comment="The first round whose bodies it is for"),
    Column("last_round", Integer, nullable=False, comment="The last one"),
    Column(
        "interval",
        Integer,
        nullable=False,
        comment="Of these rounds 1, 1 + interval, 1 + 2 interval, ... are not in it: unlearning keeps them",
    ),
    Column("dropped_at", UtcDateTime, comment="When it was dropped with all bodies in it, UTC; null: it is there"),
    UniqueConstraint("federation", "first_round"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint("first_round >= 1 AND last_round >= first_round", name="rounds"),
    CheckConstraint("interval >= 1", name="interval"),
    comment="Blocks of rounds whose bodies go together: table update_bodies_N for part N; none on SQLite",
    sqlite_autoincrement=True,
)
