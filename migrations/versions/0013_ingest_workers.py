"""Ingest workers may take a federation's updates beside its leader.

Revision ID: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def _federation() -> "sa.Column[str]":
    return sa.Column("federation", sa.String(64), nullable=False, comment="Federation")


def _of_federation(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["federation"], ["federations.name"], name=op.f(f"fk_{table}_federations_federation")
    )


def upgrade() -> None:
    op.create_table(
        "ingestion",
        _federation(),
        sa.Column(
            "takes_updates",
            sa.String(16),
            nullable=False,
            comment="writer, leader or workers: nobody else stores an update",
        ),
        sa.Column(
            "n_answers",
            sa.BigInteger(),
            nullable=False,
            comment="Answers to devices that were numbered under the newest claim; each next one has a higher number",
        ),
        sa.Column(
            "n_collected",
            sa.Integer(),
            nullable=False,
            comment="Updates that the open round has; right while workers take them",
        ),
        sa.Column(
            "evaluation",
            sa.Boolean(),
            nullable=False,
            comment="Whether devices are asked what their users' lists earned",
        ),
        sa.PrimaryKeyConstraint("federation", name=op.f("pk_ingestion")),
        _of_federation("ingestion"),
        sa.CheckConstraint(
            "takes_updates IN ('writer', 'leader', 'workers')", name=op.f("ck_ingestion_takes_updates")
        ),
        sa.CheckConstraint("n_answers >= 0", name=op.f("ck_ingestion_n_answers")),
        sa.CheckConstraint("n_collected >= 0", name=op.f("ck_ingestion_n_collected")),
        comment="Who takes a federation's updates; no row: its writer. Changed only by who holds the federation's row",
    )
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "ingest_workers",
        _federation(),
        sa.Column("worker_id", sa.String(64), nullable=False, comment="One process, as long as it lives"),
        sa.Column("seen_at", moment, nullable=False, comment="When it wrote last; the database's clock, UTC"),
        sa.Column(
            "arrived_before",
            moment,
            nullable=False,
            comment="Every update that reached it before this moment is stored or answered, UTC",
        ),
        sa.PrimaryKeyConstraint("federation", "worker_id", name=op.f("pk_ingest_workers")),
        _of_federation("ingest_workers"),
        sa.CheckConstraint("length(worker_id) BETWEEN 1 AND 64", name=op.f("ck_ingest_workers_worker_id_length")),
        comment="Ingest workers; one that was not seen for a while is gone",
    )


def downgrade() -> None:
    op.drop_table("ingest_workers")
    op.drop_table("ingestion")
