"""An erasure that is not done by its deadline is told of once, also by a federator that starts again.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "erasures",
        sa.Column(
            "overdue_at",
            sa.DateTime(timezone=True),
            comment="When it was told that its deadline had passed, UTC; null: never",
        ),
    )


def downgrade() -> None:
    op.drop_column("erasures", "overdue_at")
