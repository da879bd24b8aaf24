"""A leader reads of what workers have stored only what is new.

Revision ID: 0018
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ingest_batches",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("first_answer", sa.BigInteger(), nullable=False, comment="The number of its first answer"),
        sa.Column(
            "clients",
            sa.Text(),
            nullable=False,
            comment="Whose updates are in it: their keys in clients, as a list in JSON",
        ),
        sa.PrimaryKeyConstraint("federation", "first_answer", name=op.f("pk_ingest_batches")),
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_ingest_batches_federations_federation")
        ),
        comment="Batches that workers have stored since their leader let them take updates, until it does so again",
    )


def downgrade() -> None:
    op.drop_table("ingest_batches")
