"""What interleaved lists say of the model in secure sums.

Revision ID: 0005
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_COMMENTS = {
    "credit_total": "Credits of their lists, with noise; null: none, or a client erased since",
    "credit_deviation": "Standard deviation of the helpers' noise in it; null likewise",
}


def upgrade() -> None:
    op.execute("ALTER TABLE round_evaluations ADD COLUMN credit_total FLOAT")
    both = "(credit_deviation IS NULL) = (credit_total IS NULL) AND credit_deviation > 0"
    check = f"CONSTRAINT ck_round_evaluations_credit_deviation CHECK ({both})"
    op.execute(f"ALTER TABLE round_evaluations ADD COLUMN credit_deviation FLOAT {check}")
    if op.get_bind().dialect.name == "postgresql":
        for column, comment in _COMMENTS.items():
            quoted = comment.replace("'", "''")
            op.execute(f"COMMENT ON COLUMN round_evaluations.{column} IS '{quoted}'")


def downgrade() -> None:
    for column in reversed(_COMMENTS):
        op.execute(f"ALTER TABLE round_evaluations DROP COLUMN {column}")
