"""A job that would put the first model in service waits for the operator's order, and what it costs is kept.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "unlearning_resets",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("job", sa.Integer(), nullable=False, comment="The number of the job that would do it"),
        sa.Column(
            "held_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="Since when it waits for the operator's order, UTC",
        ),
        sa.Column(
            "first_round", sa.Integer(), nullable=False, comment="The first of the rounds whose teaching is lost by it"
        ),
        sa.Column(
            "last_round", sa.Integer(), nullable=False, comment="The last of them that was completed by then"
        ),
        sa.Column(
            "n_updates",
            sa.Integer(),
            nullable=False,
            comment="Updates of them that are stored: of clients that stay",
        ),
        sa.Column("n_clients", sa.Integer(), nullable=False, comment="Clients that these are of"),
        sa.Column("ordered_at", sa.DateTime(timezone=True), comment="When the operator ordered it, UTC; null: not yet"),
        sa.CheckConstraint("job >= 1", name=op.f("ck_unlearning_resets_job")),
        sa.CheckConstraint(
            "first_round >= 1 AND last_round >= first_round", name=op.f("ck_unlearning_resets_rounds")
        ),
        sa.CheckConstraint("n_clients >= 1 AND n_updates >= n_clients", name=op.f("ck_unlearning_resets_counts")),
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_unlearning_resets_federations_federation")
        ),
        sa.PrimaryKeyConstraint("federation", "job", name=op.f("pk_unlearning_resets")),
        comment="Unlearning jobs that would put the first model in service: none does without the operator's order",
    )


def downgrade() -> None:
    op.drop_table("unlearning_resets")
