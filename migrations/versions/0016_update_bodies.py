"""Bodies of updates are in a table of their own, which PostgreSQL divides by blocks of rounds.

Revision ID: 0016
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import context, op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

# Before, to drop a column could damage the file (https://sqlite.org/releaselog/3_35_5.html).
_DROPS_COLUMNS_SINCE = (3, 35, 5)
# Keys are not in the order in which SQLite writes the indexes on clients: with its usual 2 MB it would read each page
# again and again.
_CACHE_KIB = 256 * 1024

_MOVED = "cipher, key_fingerprint, ticket, body"
_KEPT = (
    "federation, round, client, update_id, base_version, n_interactions, encoding, n_bytes, received_at, covers_after, "
    "covers_through, cohort, position, fault, vote, clicked, reward, base_reward"
)
# As both databases spell them.
_FILL = f"""
INSERT INTO update_bodies (federation, round, client, {_MOVED})
SELECT federation, round, client, {_MOVED} FROM updates
WHERE federation = :name AND round BETWEEN :first AND :last AND body IS NOT NULL
"""  # noqa: S608 (our own words)
_FILL_BACK = f"""
UPDATE updates SET ({_MOVED}) = (b.cipher, b.key_fingerprint, b.ticket, b.body) FROM update_bodies b
WHERE updates.federation = :name AND updates.round BETWEEN :first AND :last
  AND b.federation = updates.federation AND b.round = updates.round AND b.client = updates.client
"""  # noqa: S608
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
    {body} AS body      -- what is stored of it; deleted: its round was thinned
FROM updates u
JOIN clients c ON c.id = u.client{of_federation}
JOIN rounds r ON r.federation = u.federation AND r.number = u.round
LEFT JOIN update_fates f ON f.federation = u.federation AND f.round = u.round AND f.client = u.client
"""
_BODY_BEFORE = "CASE WHEN u.body IS NULL THEN 'deleted' WHEN length(u.body) = u.n_bytes THEN 'plain' ELSE 'sealed' END"
# Looked up for each row: of a join PostgreSQL would look into every part for each row, and not into the one it is in.
_BODY = """coalesce((
        SELECT CASE b.cipher WHEN '' THEN 'plain' ELSE 'sealed' END FROM update_bodies b
        WHERE b.federation = u.federation AND b.round = u.round AND b.client = u.client AND b.part = r.part
    ), 'deleted')"""
# With it SQLite begins with a client that is asked for, and its index; else it would read every update.
_OF_FEDERATION = " AND c.federation = u.federation"
_VIEW_COMMENTS = {
    "VIEW client_history": "What every client contributed to every round",
    "COLUMN client_history.n_bytes": "Length of the update as sent",
    "COLUMN client_history.round_state": "State of the round",
    "COLUMN client_history.model_version": "The model the update went into; null unless the round completed",
    "COLUMN client_history.fate": "What the rule made of it: kept, clipped or dropped; null without a rule",
}
_PART = "The part of update_bodies that its updates'' bodies are in, or were; 0: they are deleted row by row"
_ENCODING = "{} body is encoded: dense_f32, part_f32, evolution or masked_u64"
_UPDATES = "Every accepted update: the contribution of one client to one round"

# The table as SQLite is to have it: what it cannot change in place. The last four conditions are of their columns, as
# the revisions that added these have them.
_SQLITE_UPDATES = """
CREATE TABLE updates_anew (
    federation VARCHAR(64) NOT NULL,
    round INTEGER NOT NULL,
    client INTEGER NOT NULL,
    update_id VARCHAR(36) NOT NULL,
    base_version INTEGER NOT NULL,
    n_interactions INTEGER NOT NULL,
    encoding VARCHAR(64) NOT NULL,
    n_bytes INTEGER NOT NULL,
    received_at DATETIME NOT NULL,
    covers_after BIGINT,
    covers_through BIGINT,{key_fingerprint}
    cohort INTEGER,
    position INTEGER,{ticket}
    fault VARCHAR(32),{body}
    vote SMALLINT CONSTRAINT ck_updates_vote CHECK (vote IN (-1, 0, 1)),
    clicked FLOAT CONSTRAINT ck_updates_clicked CHECK (clicked BETWEEN 0 AND 1),
    reward FLOAT CONSTRAINT ck_updates_reward
        CHECK ((reward IS NULL) = (clicked IS NULL) AND reward BETWEEN 0 AND clicked),
    base_reward FLOAT CONSTRAINT ck_updates_base_reward
        CHECK ((base_reward IS NULL) = (clicked IS NULL) AND base_reward BETWEEN 0 AND clicked),
    CONSTRAINT pk_updates PRIMARY KEY (federation, round, client),
    CONSTRAINT uq_updates_client_covers_after UNIQUE (client, covers_after),
    CONSTRAINT uq_updates_client_update_id UNIQUE (client, update_id),
    CONSTRAINT fk_updates_rounds_federation_round
        FOREIGN KEY(federation, round) REFERENCES rounds (federation, number),
    CONSTRAINT fk_updates_clients_client FOREIGN KEY(client) REFERENCES clients (id),
    CONSTRAINT ck_updates_update_id_length CHECK (length(update_id) BETWEEN 1 AND 36),
    CONSTRAINT ck_updates_base_version CHECK (base_version >= 0),
    CONSTRAINT ck_updates_n_interactions CHECK (n_interactions > 0),
    CONSTRAINT ck_updates_covers_both CHECK ((covers_after IS NULL) = (covers_through IS NULL)),
    CONSTRAINT ck_updates_covers_range CHECK (covers_after >= 0 AND covers_after < covers_through),
    CONSTRAINT ck_updates_covers_interactions CHECK (n_interactions <= covers_through - covers_after),{checks}
    CONSTRAINT ck_updates_cohort_iff_masked CHECK ((cohort IS NOT NULL) = (encoding = 'masked_u64')),
    CONSTRAINT ck_updates_position_in_a_cohort CHECK ((cohort IS NULL) = (position IS NULL)),
    CONSTRAINT ck_updates_fault_of_a_masked_one CHECK (fault IS NULL OR cohort IS NOT NULL)
)
"""
_SQLITE_COLUMNS = {
    "key_fingerprint": "\n    key_fingerprint BLOB,",
    "ticket": "\n    ticket BLOB,",
    "body": "\n    body BLOB,\n    cipher VARCHAR(64) DEFAULT '' NOT NULL,",
}
_CHECKS_BEFORE = {
    "cipher": "cipher IN ('', 'aes-256-gcm')",
    "key_fingerprint_iff_sealed": "(cipher = '') = (key_fingerprint IS NULL)",
    "key_fingerprint_length": "length(key_fingerprint) = 8",
    "n_bytes": "length(body) = n_bytes + CASE cipher WHEN '' THEN 0 ELSE 28 END",
    "ticket_goes_with_body": "(ticket IS NOT NULL) = (cohort IS NOT NULL AND body IS NOT NULL)",
}
_CHECKS_AFTER = {"n_bytes": "n_bytes >= 0"}
_PARTIAL_INDEXES = (
    ("uq_updates_position", ["federation", "round", "cohort", "position"], "cohort IS NOT NULL"),
    ("ix_updates_votes", ["federation", "round", "client", "vote"], "vote IS NOT NULL"),
    ("ix_updates_evaluations", ["federation", "round", "clicked", "reward", "base_reward"], "clicked IS NOT NULL"),
)


def upgrade() -> None:
    _create_bodies()
    _create_parts()
    named = "CONSTRAINT ck_rounds_part CHECK (part >= 0)"
    op.execute(f"ALTER TABLE rounds ADD COLUMN part INTEGER DEFAULT '0' NOT NULL {named}")
    _in_slices(_FILL, "bodies of {} of {} updates are in their own table")
    op.execute("DROP VIEW client_history")
    if _is_sqlite():
        _take_columns_out_of_sqlite()
    else:
        op.execute(f"COMMENT ON COLUMN rounds.part IS '{_PART}'")
        for name in _CHECKS_BEFORE:
            op.drop_constraint(op.f(f"ck_updates_{name}"), "updates", type_="check")
        for name in _moved_columns():
            op.drop_column("updates", name)
        op.create_check_constraint(op.f("ck_updates_n_bytes"), "updates", _CHECKS_AFTER["n_bytes"])
        _comment_updates(_ENCODING.format("How its"), f"{_UPDATES}; kept for ever")
        _tell("the table of updates is written anew, without them")
        # Or the space of the columns would stay with the rows.
        op.execute("CLUSTER updates USING pk_updates")
        op.execute("ALTER TABLE updates SET WITHOUT CLUSTER")
    _create_client_history(_BODY, _OF_FEDERATION)


def downgrade() -> None:
    op.execute("DROP VIEW client_history")
    if _is_sqlite():
        _write_sqlite_anew(_SQLITE_COLUMNS, _CHECKS_BEFORE)
    else:
        for column in _moved_columns().values():
            op.add_column("updates", column)
        op.drop_constraint(op.f("ck_updates_n_bytes"), "updates", type_="check")
        for name, condition in _CHECKS_BEFORE.items():
            op.create_check_constraint(op.f(f"ck_updates_{name}"), "updates", condition)
        _comment_updates(_ENCODING.format("How"), _UPDATES)
    _in_slices(_FILL_BACK, "bodies of {} of {} updates are with their updates again")
    op.drop_table("update_bodies")
    op.drop_table("body_parts")
    op.execute("ALTER TABLE rounds DROP COLUMN part")
    _create_client_history(_BODY_BEFORE, "")


def _moved_columns() -> "dict[str, sa.Column[Any]]":
    sealed = "How body is sealed with its client's data key: aes-256-gcm; empty: it is as sent"
    key = "Which data key body is sealed with; null where it is as sent"
    columns: list[sa.Column[Any]] = [
        sa.Column("key_fingerprint", sa.LargeBinary(), comment=key),
        sa.Column(
            "ticket", sa.LargeBinary(), comment="Of a masked update: what helpers are shown; goes with the body"
        ),
        sa.Column("body", sa.LargeBinary(), comment="The update itself, sealed as cipher says; null once thinned"),
        sa.Column("cipher", sa.String(64), nullable=False, server_default="", comment=sealed),
    ]
    return {column.name: column for column in columns}


def _create_bodies() -> None:
    constraints: list[sa.Constraint] = [
        sa.PrimaryKeyConstraint("federation", "round", "client", "part", name=op.f("pk_update_bodies")),
        sa.CheckConstraint("part >= 0", name=op.f("ck_update_bodies_part")),
        sa.CheckConstraint("cipher IN ('', 'aes-256-gcm')", name=op.f("ck_update_bodies_cipher")),
        sa.CheckConstraint(
            "(cipher = '') = (key_fingerprint IS NULL)", name=op.f("ck_update_bodies_key_fingerprint_iff_sealed")
        ),
        sa.CheckConstraint("length(key_fingerprint) = 8", name=op.f("ck_update_bodies_key_fingerprint_length")),
        sa.CheckConstraint("cipher = '' OR length(body) >= 28", name=op.f("ck_update_bodies_sealed_length")),
    ]
    if _is_sqlite():
        constraints.append(
            sa.ForeignKeyConstraint(
                ["federation", "round", "client"],
                ["updates.federation", "updates.round", "updates.client"],
                name=op.f("fk_update_bodies_updates_federation_round_client"),
            )
        )
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    part = "As its round's: bodies of one part are deleted together, those of part 0 row by row"
    ticket = "Of a masked update: what helpers are shown; null of any other"
    op.create_table(
        "update_bodies",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("round", sa.Integer(), nullable=False, comment="The round of its update"),
        sa.Column("client", row_id, nullable=False, comment="The device that sent it"),
        sa.Column("part", sa.Integer(), nullable=False, server_default="0", comment=part),
        _moved_columns()["cipher"],
        _moved_columns()["key_fingerprint"],
        sa.Column("ticket", sa.LargeBinary(), comment=ticket),
        sa.Column("body", sa.LargeBinary(), nullable=False, comment="The update itself, sealed as cipher says"),
        *constraints,
        comment="What was sent with each update, until its round is thinned",
        postgresql_partition_by="LIST (part)",
    )
    if not _is_sqlite():
        op.execute("CREATE TABLE update_bodies_0 PARTITION OF update_bodies FOR VALUES IN (0)")


def _create_parts() -> None:
    interval = "Of these rounds 1, 1 + interval, 1 + 2 interval, ... are not in it: unlearning keeps them"
    dropped = "When it was dropped with all bodies in it, UTC; null: it is there"
    op.create_table(
        "body_parts",
        sa.Column(
            "part", sa.Integer(), nullable=False, autoincrement=True, comment="Its number, from 1; never used again"
        ),
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("first_round", sa.Integer(), nullable=False, comment="The first round whose bodies it is for"),
        sa.Column("last_round", sa.Integer(), nullable=False, comment="The last one"),
        sa.Column("interval", sa.Integer(), nullable=False, comment=interval),
        sa.Column("dropped_at", sa.DateTime(timezone=True), comment=dropped),
        sa.PrimaryKeyConstraint("part", name=op.f("pk_body_parts")),
        sa.UniqueConstraint("federation", "first_round", name=op.f("uq_body_parts_federation_first_round")),
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_body_parts_federations_federation")
        ),
        sa.CheckConstraint("first_round >= 1 AND last_round >= first_round", name=op.f("ck_body_parts_rounds")),
        sa.CheckConstraint("interval >= 1", name=op.f("ck_body_parts_interval")),
        comment="Blocks of rounds whose bodies go together: table update_bodies_N for part N; none on SQLite",
        sqlite_autoincrement=True,
    )


def _take_columns_out_of_sqlite() -> None:
    """Take the columns that have moved out of the table of updates, with the conditions that name them.

    Row by row, in the table's order: to write it anew would fill its index of update ids, which are random, and take
    ever longer where that is larger than the cache. SQLite drops no column that a condition names, and no condition at all;
    what it documents for that is to write the table's text (https://sqlite.org/lang_altertable.html, section 7).
    """
    may_drop = sqlite3.sqlite_version_info >= _DROPS_COLUMNS_SINCE
    if not (may_drop and _is_as_in(_SQLITE_COLUMNS) and _may_set_text()):
        _write_sqlite_anew(dict.fromkeys(_SQLITE_COLUMNS, ""), _CHECKS_AFTER)
        return
    (view,) = op.get_bind().execute(sa.text("SELECT sql FROM sqlite_master WHERE name = 'round_history'")).scalars()
    op.execute("DROP VIEW round_history")  # or SQLite would look into it with each column
    _set_sqlite_text(_SQLITE_COLUMNS, {})
    for name in ("body", "ticket", "key_fingerprint", "cipher"):  # the largest first
        _tell(f"the table of updates is written anew, without {name}")
        op.execute(f"ALTER TABLE updates DROP COLUMN {name}")
    _set_sqlite_text(dict.fromkeys(_SQLITE_COLUMNS, ""), _CHECKS_AFTER)
    op.execute(view)


def _is_as_in(columns: dict[str, str]) -> bool:
    """Tell whether the table of updates has the columns and keys of our text, in its order."""
    op.execute(_SQLITE_UPDATES.format(**columns, checks=""))
    is_alike = _shape_of("updates") == _shape_of("updates_anew")
    op.execute("DROP TABLE updates_anew")
    return is_alike


def _shape_of(table: str) -> list[Any]:
    bind = op.get_bind()
    columns = bind.execute(sa.text(f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{table}')"))  # noqa: S608
    keys = bind.execute(
        sa.text(
            "SELECT i.origin, i.seq, c.seqno, c.name FROM pragma_index_list(:name) i, pragma_index_info(i.name) c "
            "WHERE i.origin <> 'c' ORDER BY i.name, c.seqno"
        ),
        {"name": table},
    )
    return [columns.all(), [(row.origin, row.seqno, row.name) for row in keys]]


def _may_set_text() -> bool:
    """Tell whether this SQLite lets anybody write the text of a table; some systems' does not."""
    op.execute("PRAGMA writable_schema = ON")
    try:
        op.execute("UPDATE sqlite_master SET sql = sql WHERE name = 'updates'")
    except sa.exc.OperationalError:
        return False
    finally:
        op.execute("PRAGMA writable_schema = RESET")
    return True


def _set_sqlite_text(columns: dict[str, str], checks: dict[str, str]) -> None:
    """Have SQLite read the table of updates as having these columns, which it has, and conditions."""
    conditions = "".join(f"\n    CONSTRAINT ck_updates_{name} CHECK ({each})," for name, each in checks.items())
    created = _SQLITE_UPDATES.format(**columns, checks=conditions).strip().replace("updates_anew", "updates", 1)
    op.execute("PRAGMA writable_schema = ON")
    op.get_bind().execute(
        sa.text("UPDATE sqlite_master SET sql = :created WHERE type = 'table' AND name = 'updates'"),
        {"created": created},
    )
    op.execute("PRAGMA writable_schema = RESET")


def _write_sqlite_anew(columns: dict[str, str], checks: dict[str, str]) -> None:
    """Write the table of updates anew, with these columns and conditions; those that are new are empty."""
    _tell("the table of updates is written anew")
    (view,) = op.get_bind().execute(sa.text("SELECT sql FROM sqlite_master WHERE name = 'round_history'")).scalars()
    op.execute("DROP VIEW round_history")  # or SQLite would not rename the table that it reads
    conditions = "".join(f"\n    CONSTRAINT ck_updates_{name} CHECK ({each})," for name, each in checks.items())
    op.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    op.execute(_SQLITE_UPDATES.format(**columns, checks=conditions))
    op.execute(f"INSERT INTO updates_anew ({_KEPT}) SELECT {_KEPT} FROM updates")  # noqa: S608
    op.execute("DROP TABLE updates")
    op.execute("ALTER TABLE updates_anew RENAME TO updates")
    for name, on, condition in _PARTIAL_INDEXES:
        op.create_index(name, "updates", on, unique=name.startswith("uq"), sqlite_where=sa.text(condition))
    op.execute(view)


def _in_slices(statement: str, words: str) -> None:
    """Run a statement for all rounds, some at a time, and tell how far it is."""
    n_all = op.get_bind().scalar(sa.text("SELECT coalesce(sum(n_updates), 0) FROM rounds"))
    done = 0
    for name, first, last, n in _slices():
        op.get_bind().execute(sa.text(statement), {"name": name, "first": first, "last": last})
        done += n
        if n_all > _at_once():
            _tell(words.format(f"{done:,}", f"{n_all:,}"))


def _slices() -> Iterator[tuple[str, int, int, int]]:
    """Give (federation, first round, last round, updates) of slices that have all rounds in them."""
    rows = op.get_bind().execute(
        sa.text("SELECT federation, number, coalesce(n_updates, 0) FROM rounds ORDER BY federation, number")
    )
    name, first, last, n = "", 0, 0, 0
    for federation, number, n_updates in rows.all():
        if first and (federation != name or n + n_updates > _at_once()):
            yield name, first, last, n
            first, n = 0, 0
        name, first, last, n = federation, first or number, number, n + n_updates
    if first:
        yield name, first, last, n


def _create_client_history(body: str, of_federation: str) -> None:
    op.execute(_CLIENT_HISTORY.format(body=body, of_federation=of_federation))
    if not _is_sqlite():
        for what, comment in _VIEW_COMMENTS.items():
            op.execute(f"COMMENT ON {what} IS '{comment}'")


def _comment_updates(encoding: str, table: str) -> None:
    op.alter_column("updates", "encoding", existing_type=sa.String(64), existing_nullable=False, comment=encoding)
    op.create_table_comment("updates", table)


def _tell(words: str) -> None:
    """Tell whoever waits for a large database how far this is."""
    context.config.attributes["tell"](words)


def _at_once() -> int:
    return int(context.config.attributes["rows_at_once"])


def _is_sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"
