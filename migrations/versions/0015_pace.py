"""Rounds say how often devices come by, where they do not stay connected.

Revision ID: 0015
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_COMMENT = "How often devices come by, as they were told when it opened, seconds; null: they stay connected"


def upgrade() -> None:
    # As SQL, or SQLite would write the table anew.
    op.execute("ALTER TABLE rounds ADD COLUMN period_s FLOAT CONSTRAINT ck_rounds_period CHECK (period_s > 0)")
    if op.get_context().dialect.name == "postgresql":  # SQLite keeps no comments
        op.execute(f"COMMENT ON COLUMN rounds.period_s IS '{_COMMENT}'")


def downgrade() -> None:
    op.execute("ALTER TABLE rounds DROP COLUMN period_s")
