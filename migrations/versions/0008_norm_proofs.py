"""How many norm proofs failed is stored with each sum.

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_N_CLIENTS = "Those in the sum: whom no helper took out", "Those in the sum: whom nobody took out"
_FAULT = (
    "Why a helper took it out of its sum; null unless one did",
    "Why it was taken out of its sum; null unless it was",
)


def upgrade() -> None:
    with op.batch_alter_table("round_sums") as sums:
        sums.add_column(
            sa.Column(
                "n_norm_proofs_failed",
                sa.Integer(),
                comment="Those taken out as their norm proofs fail; null: there are none",
            )
        )
        sums.create_check_constraint(
            op.f("ck_round_sums_n_norm_proofs_failed"), "n_norm_proofs_failed BETWEEN 0 AND n_tickets - n_clients"
        )
    _comment(1)


def downgrade() -> None:
    with op.batch_alter_table("round_sums") as sums:
        sums.drop_constraint(op.f("ck_round_sums_n_norm_proofs_failed"), type_="check")
        sums.drop_column("n_norm_proofs_failed")
    _comment(0)


def _comment(version: int) -> None:
    """Say who takes clients out; SQLite has no comments."""
    if op.get_context().dialect.name != "postgresql":
        return
    op.alter_column(
        "round_sums", "n_clients", existing_type=sa.Integer(), existing_nullable=False, comment=_N_CLIENTS[version]
    )
    op.alter_column("updates", "fault", existing_type=sa.String(32), comment=_FAULT[version])
