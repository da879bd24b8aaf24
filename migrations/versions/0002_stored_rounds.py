"""The rounds that unlearning can go through are listed as they come and go, and not looked for among all updates.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "stored_rounds",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column(
            "round", sa.Integer(), nullable=False, comment="The round: completed, and no update of it was thinned"
        ),
        sa.ForeignKeyConstraint(
            ["federation", "round"],
            ["rounds.federation", "rounds.number"],
            name=op.f("fk_stored_rounds_rounds_federation_round"),
        ),
        sa.PrimaryKeyConstraint("federation", "round", name=op.f("pk_stored_rounds")),
        comment="The rounds that unlearning can go through: what is left of their updates is stored, and there is some",
    )
    op.execute(
        """
        INSERT INTO stored_rounds (federation, round)
        SELECT r.federation, r.number FROM rounds r
        WHERE r.state = 'completed'
          AND EXISTS (SELECT 1 FROM updates u WHERE u.federation = r.federation AND u.round = r.number)
          AND NOT EXISTS (
              SELECT 1 FROM updates u
              WHERE u.federation = r.federation AND u.round = r.number AND u.body IS NULL
          )
        """
    )


def downgrade() -> None:
    op.drop_table("stored_rounds")
