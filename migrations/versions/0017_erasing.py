"""An erasure may be in state erasing: rows of its client are left to delete.

Revision ID: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _allow("erasing", "erased", "waiting", "unlearning", "done")


def downgrade() -> None:
    n_left = op.get_bind().scalar(sa.text("SELECT count(*) FROM erasures WHERE state = 'erasing'"))
    if n_left:
        raise RuntimeError(
            f"{n_left} clients are being erased, of whom an older federator would leave rows. Let the federator run "
            "until none is (foltr erasure list), and downgrade then"
        )
    _allow("erased", "waiting", "unlearning", "done")


def _allow(*states: str) -> None:
    with op.batch_alter_table("erasures") as erasures:
        erasures.alter_column(
            "state",
            existing_type=sa.String(16),
            existing_nullable=False,
            comment=f"{', '.join(states[:-1])} or {states[-1]}",
        )
        erasures.drop_constraint(op.f("ck_erasures_state"), type_="check")
        erasures.create_check_constraint(op.f("ck_erasures_state"), f"state IN ({', '.join(map(repr, states))})")
    if op.get_context().dialect.name == "postgresql":  # SQLite keeps no comments
        for column, comments in _COMMENTS.items():
            op.execute(f"COMMENT ON COLUMN erasures.{column} IS '{comments['erasing' in states]}'")


_COMMENTS = {
    "erased_digest": (
        "SHA-256 over the deleted updates'' bytes as stored, in order of rounds, in hex",
        "Chain of SHA-256 over the deleted updates'' bytes as stored, the newest first, in hex",
    ),
    "erased_at": (
        "When its rows were deleted, UTC",
        "When its last row was deleted, UTC; of one that is being erased: when that began",
    ),
}
