"""What devices' interleaved lists say of the model, with each update.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COMMENTS = {
    "credit_total": "Credits of its lists, above 0 for the model; null: none",
    "credit_squares": "Their squares; null likewise",
}


def upgrade() -> None:
    op.execute("ALTER TABLE updates ADD COLUMN credit_total FLOAT")
    # In place: SQLite would otherwise copy the largest table.
    check = "CONSTRAINT ck_updates_credit_squares CHECK (credit_squares > 0)"
    op.execute(f"ALTER TABLE updates ADD COLUMN credit_squares FLOAT {check}")
    if op.get_bind().dialect.name == "postgresql":
        for column, comment in _COMMENTS.items():
            op.execute(f"COMMENT ON COLUMN updates.{column} IS '{comment}'")
    with_credits = sa.text("credit_squares IS NOT NULL")
    op.create_index(
        "ix_updates_credits",
        "updates",
        ["federation", "round", "client", "credit_total", "credit_squares", "base_version"],
        sqlite_where=with_credits,
        postgresql_where=with_credits,
    )


def downgrade() -> None:
    op.drop_index("ix_updates_credits", "updates")
    for column in _COMMENTS:
        op.execute(f"ALTER TABLE updates DROP COLUMN {column}")
