"""An unlearning job may be of the strategy relearn.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _allow("fed_eraser", "rollback", "retrain", "fed_remove", "relearn")


def downgrade() -> None:
    _allow("fed_eraser", "rollback", "retrain", "fed_remove")


def _allow(*strategies: str) -> None:
    with op.batch_alter_table("unlearning_jobs") as jobs:
        jobs.alter_column(
            "strategy",
            existing_type=sa.String(16),
            existing_nullable=False,
            comment=f"{', '.join(strategies[:-1])} or {strategies[-1]}",
        )
        jobs.drop_constraint(op.f("ck_unlearning_jobs_strategy"), type_="check")
        jobs.create_check_constraint(
            op.f("ck_unlearning_jobs_strategy"), f"strategy IN ({', '.join(map(repr, strategies))})"
        )
