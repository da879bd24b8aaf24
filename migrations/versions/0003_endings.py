"""Why the last leader ended by itself.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ENDED = "Why the last federator ended by itself; null: it runs, was stopped, or was killed"


def upgrade() -> None:
    op.add_column("leases", sa.Column("ended", sa.String(32), comment=_ENDED))
    op.add_column("leases", sa.Column("ended_detail", sa.Text(), comment="Its error, for people"))


def downgrade() -> None:
    with op.batch_alter_table("leases") as leases:
        leases.drop_column("ended_detail")
        leases.drop_column("ended")
