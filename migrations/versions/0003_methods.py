"""The method of a federation, its neural ranker, and the state of the federator's optimiser.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_COLUMNS = {
    "federations": (
        sa.Column(
            "method",
            sa.String(64),
            nullable=False,
            server_default="fpdgd",
            comment="How it learns, e.g. fpdgd; fixed as long as it exists",
        ),
    ),
    "models": (
        sa.Column(
            "optimizer_state",
            sa.LargeBinary(),
            comment="The federator's optimiser after this model, e.g. Adam's moments; null where there is none",
        ),
    ),
}

# Column to its comment before and after: every ranker was linear, so that a weight was a feature's.
_COMMENTS = {
    "models.n_features": ("Number of weights", "Number of values in weights; for a linear ranker the features"),
    "models.weights": (
        "Little-endian float32, one per feature",
        "Little-endian float32: the ranker's, then what only training uses",
    ),
    "federations.hidden": (None, "Hidden units of a neural ranker; null for a linear one"),
    "federations.ranker": ("Kind of ranker, e.g. linear", "Kind of ranker: linear or neural"),
    "updates.encoding": (
        "How body is encoded, e.g. dense_f32",
        "How body is encoded: dense_f32, part_f32 or evolution",
    ),
}


def upgrade() -> None:
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.add_column(table, column._copy())
    # As a part of the column, because SQLite adds no constraint to a table that is there.
    op.execute(
        "ALTER TABLE federations ADD COLUMN hidden INTEGER CONSTRAINT ck_federations_hidden_iff_neural "
        "CHECK ((ranker = 'neural') = (hidden IS NOT NULL))"
    )
    _set_comments(1)


def downgrade() -> None:
    op.drop_column("federations", "hidden")
    for table, columns in _COLUMNS.items():
        for column in reversed(columns):
            op.drop_column(table, column.name)
    _set_comments(0)


def _set_comments(which: int) -> None:
    if op.get_bind().dialect.name == "postgresql":  # SQLite keeps none
        for column, comments in _COMMENTS.items():
            if (comment := comments[which]) is not None:
                escaped = comment.replace("'", "''")
                op.execute(f"COMMENT ON COLUMN {column} IS '{escaped}'")
