"""Who leads a federation, for a few seconds at a time, and who waits to.

Revision ID: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def _federation() -> "sa.Column[str]":
    return sa.Column("federation", sa.String(64), nullable=False, comment="Federation")


def _of_federation(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["federation"], ["federations.name"], name=op.f(f"fk_{table}_federations_federation")
    )


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "leases",
        _federation(),
        sa.Column("holder", sa.String(128), comment="The process that leads: host, number, chance; null: given up"),
        sa.Column("taken_at", moment, nullable=False, comment="Since when; the database's clock, UTC"),
        sa.Column("expires_at", moment, comment="Until when, unless it is renewed; the same clock. Null: given up"),
        sa.PrimaryKeyConstraint("federation", name=op.f("pk_leases")),
        _of_federation("leases"),
        sa.CheckConstraint("length(holder) BETWEEN 1 AND 128", name=op.f("ck_leases_holder_length")),
        sa.CheckConstraint("(holder IS NULL) = (expires_at IS NULL)", name=op.f("ck_leases_given_up")),
        comment="The right to lead a federation, for a few seconds at a time; what fences a writer is its epoch",
    )
    op.create_table(
        "standbys",
        _federation(),
        sa.Column("holder", sa.String(128), nullable=False, comment="The process that waits for the lease"),
        sa.Column("seen_at", moment, nullable=False, comment="When it looked last; the database's clock, UTC"),
        sa.PrimaryKeyConstraint("federation", "holder", name=op.f("pk_standbys")),
        _of_federation("standbys"),
        sa.CheckConstraint("length(holder) BETWEEN 1 AND 128", name=op.f("ck_standbys_holder_length")),
        comment="Federators that wait to lead; one that was not seen for a while is gone",
    )


def downgrade() -> None:
    op.drop_table("standbys")
    op.drop_table("leases")
