"""Neural rankers say the activation of their hidden units, which was sigmoid before there was a choice.

Revision ID: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# What a foltr of before refuses as another ranker than it was told of: it would score ReLU units as sigmoid ones.
_UNKNOWN_BEFORE = "'relu-' || hidden"


def upgrade() -> None:
    with op.batch_alter_table("federations") as federations:
        federations.add_column(
            sa.Column(
                "activation", sa.String(64), comment="Activation of the hidden units: sigmoid or relu; null for a linear one"
            )
        )
    op.execute("UPDATE federations SET activation = 'sigmoid' WHERE ranker = 'neural'")
    op.execute(
        "UPDATE federations SET ranker = 'neural', hidden = CAST(substr(ranker, 6) AS INTEGER), activation = 'relu' "
        "WHERE ranker LIKE 'relu-%'"
    )
    with op.batch_alter_table("federations") as federations:
        federations.create_check_constraint(
            op.f("ck_federations_activation_iff_neural"), "(ranker = 'neural') = (activation IS NOT NULL)"
        )
        federations.create_check_constraint(op.f("ck_federations_activation"), "activation IN ('sigmoid', 'relu')")


def downgrade() -> None:
    with op.batch_alter_table("federations") as federations:
        federations.drop_constraint(op.f("ck_federations_activation_iff_neural"), type_="check")
        federations.drop_constraint(op.f("ck_federations_activation"), type_="check")
    op.execute(
        f"UPDATE federations SET ranker = {_UNKNOWN_BEFORE}, hidden = NULL WHERE activation = 'relu'"
    )
    with op.batch_alter_table("federations") as federations:
        federations.drop_column("activation")
