"""What the leading federator finds wrong with itself and its machine, and from whom it took the lease.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Types are written out, as in the baseline.
_moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "leader_findings",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("reason", sa.String(32), nullable=False, comment="What is wrong, as in docs/runbook.md"),
        sa.Column(
            "culprit", sa.String(128), nullable=False, comment="What or who causes it; empty if that is not known"
        ),
        sa.Column("detail", sa.Text(), nullable=False, comment="The measured fact, for people"),
        sa.Column("since", _moment, nullable=False, comment="When the leader found it first; the leader's clock, UTC"),
        sa.PrimaryKeyConstraint("federation", "reason", "culprit"),
        sa.ForeignKeyConstraint(["federation"], ["federations.name"]),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 32", name="reason_length"),
        sa.CheckConstraint("length(culprit) <= 128", name="culprit_length"),
        sa.CheckConstraint("length(detail) <= 500", name="detail_length"),
        comment="What the leading federator finds wrong with itself and its machine; void once its lease has expired",
    )


    former = "The former leader, if it did not give the lease up"
    op.add_column("leases", sa.Column("taken_from", sa.String(128), comment=former))


def downgrade() -> None:
    with op.batch_alter_table("leases") as leases:
        leases.drop_column("taken_from")
    op.drop_table("leader_findings")
