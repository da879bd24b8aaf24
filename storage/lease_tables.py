"""The tables of who leads a federation, and who waits to: none of their rows is ever locked for long.

They are apart from ``federations``, whose row is locked while a round closes: renewing a lease must not wait for that.
"""

from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, PrimaryKeyConstraint, String, Table, Text

from foltr.core.protocol.verdicts import Ending, Reason
from foltr.storage.schema import DETAIL_MAX, Member, UtcDateTime, federation_column, metadata

HOLDER_MAX = 128
_REASON_MAX = 32

leases = Table(
    "leases",
    metadata,
    federation_column(),
    Column("holder", String(HOLDER_MAX), comment="The process that leads: host, number, chance; null: given up"),
    Column("taken_at", UtcDateTime, nullable=False, comment="Since when; the database's clock, UTC"),
    Column("expires_at", UtcDateTime, comment="Until when, unless it is renewed; the same clock. Null: given up"),
    Column("taken_from", String(HOLDER_MAX), comment="The former leader, if it did not give the lease up"),
    Column(
        "ended",
        Member(Ending, _REASON_MAX),
        comment="Why the last federator ended by itself; null: it runs, was stopped, or was killed",
    ),
    Column("ended_detail", Text, comment="Its error, for people"),
    PrimaryKeyConstraint("federation"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint(f"length(holder) BETWEEN 1 AND {HOLDER_MAX}", name="holder_length"),
    CheckConstraint("(holder IS NULL) = (expires_at IS NULL)", name="given_up"),
    comment="The right to lead a federation, for a few seconds at a time; what fences a writer is its epoch",
)

standbys = Table(
    "standbys",
    metadata,
    federation_column(),
    Column("holder", String(HOLDER_MAX), nullable=False, comment="The process that waits for the lease"),
    Column("seen_at", UtcDateTime, nullable=False, comment="When it looked last; the database's clock, UTC"),
    PrimaryKeyConstraint("federation", "holder"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint(f"length(holder) BETWEEN 1 AND {HOLDER_MAX}", name="holder_length"),
    comment="Federators that wait to lead; one that was not seen for a while is gone",
)

leader_findings = Table(
    "leader_findings",
    metadata,
    federation_column(),
    Column("reason", Member(Reason, _REASON_MAX), nullable=False, comment="What is wrong, as in docs/runbook.md"),
    Column("culprit", String(HOLDER_MAX), nullable=False, comment="What or who causes it; empty if that is not known"),
    Column("detail", Text, nullable=False, comment="The measured fact, for people"),
    Column("since", UtcDateTime, nullable=False, comment="When the leader found it first; the leader's clock, UTC"),
    PrimaryKeyConstraint("federation", "reason", "culprit"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint(f"length(reason) BETWEEN 1 AND {_REASON_MAX}", name="reason_length"),
    CheckConstraint(f"length(culprit) <= {HOLDER_MAX}", name="culprit_length"),
    CheckConstraint(f"length(detail) <= {DETAIL_MAX}", name="detail_length"),
    comment="What the leading federator finds wrong with itself and its machine; void once its lease has expired",
)
