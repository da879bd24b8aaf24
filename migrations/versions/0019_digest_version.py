"""An erasure says what its digest is: one of all bytes, or a chain, as since 0017.

Revision ID: 0019
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_COMMENTS = {
    "digest_version": (
        "What erased_digest is, and its receipt''s version; 1: SHA-256 in order of rounds, 2: a chain of it, the newest "
        "first"
    ),
    "erased_digest": "Over the deleted updates'' bytes as stored, in hex; which SHA-256: digest_version",
}
_DIGEST_BEFORE = "Chain of SHA-256 over the deleted updates'' bytes as stored, the newest first, in hex"


def upgrade() -> None:
    # As SQL, or SQLite would write the table anew.
    known = "CONSTRAINT ck_erasures_digest_version CHECK (digest_version IN (1, 2))"
    op.execute(f"ALTER TABLE erasures ADD COLUMN digest_version SMALLINT DEFAULT '1' NOT NULL {known}")
    # Those that were erased by a foltr of before and wait for their receipt have the digest of before.
    op.execute("UPDATE erasures SET digest_version = 2 WHERE state = 'erasing'")
    _comment(_COMMENTS)


def downgrade() -> None:
    op.execute("ALTER TABLE erasures DROP COLUMN digest_version")
    _comment({"erased_digest": _DIGEST_BEFORE})


def _comment(comments: dict[str, str]) -> None:
    if op.get_context().dialect.name == "postgresql":  # SQLite keeps no comments
        for column, comment in comments.items():
            op.execute(f"COMMENT ON COLUMN erasures.{column} IS '{comment}'")
