"""What a model has is a number of values: only a linear ranker has as many as features.

Revision ID: 0006
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Both databases change the constraint that counts them, too.
    op.execute("ALTER TABLE models RENAME COLUMN n_features TO n_values")


def downgrade() -> None:
    op.execute("ALTER TABLE models RENAME COLUMN n_values TO n_features")
