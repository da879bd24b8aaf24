"""What rounds are computed with is stored, and what a rule remembers is kept with models that unlearning made.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_JOB = (
    "The unlearning job whose steps it is of; 0: it is of the rounds",
    "Number of an unlearning job; 0: it is of the newest model",
)
_RECORDS = (
    "What the rule of aggregation remembers of each client after the newest model, or a job's newest step",
    "What the rule remembers of each client: after the newest model, a job's newest step, or as its model came",
)


def upgrade() -> None:
    op.create_table(
        "trainings",
        sa.Column("federation", sa.String(64), nullable=False, comment="Federation"),
        sa.Column("from_round", sa.Integer(), nullable=False, comment="The first round that was computed with it"),
        sa.Column(
            "training", sa.Text(), nullable=False, comment="Settings of the method as devices are told them, JSON"
        ),
        sa.CheckConstraint("from_round >= 1", name=op.f("ck_trainings_from_round")),
        sa.ForeignKeyConstraint(
            ["federation"], ["federations.name"], name=op.f("fk_trainings_federations_federation")
        ),
        sa.PrimaryKeyConstraint("federation", "from_round", name=op.f("pk_trainings")),
        comment="What rounds were computed with, up to the next row's: it may change when the federator starts again",
    )
    _comment(1)


def downgrade() -> None:
    _comment(0)
    op.drop_table("trainings")


def _comment(version: int) -> None:
    """Say what records there are; SQLite has no comments."""
    if op.get_context().dialect.name != "postgresql":
        return
    op.alter_column("defence_records", "job", existing_type=sa.Integer(), comment=_JOB[version])
    op.create_table_comment("defence_records", _RECORDS[version])
