"""The tables of aggregation: settings of rounds, what rules did with updates, and what rules remember of clients."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

from foltr.core.aggregation.fates import Fate
from foltr.storage.schema import (
    DETAIL_MAX,
    SHORT_TEXT_MAX,
    Member,
    client_column,
    federation_column,
    in_words,
    metadata,
    one_of,
)

round_aggregations = Table(
    "round_aggregations",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round"),
    Column("rule", String(SHORT_TEXT_MAX), nullable=False, comment="Rule that made its model"),
    Column("parameters", Text, nullable=False, comment="Parameters as used, JSON: n updates, m hostile ones, ..."),
    Column("fallback_reason", Text, comment="Why it is not the configured rule; null if it is"),
    Column("n_kept", Integer, nullable=False, comment="Updates in the model as they were sent"),
    Column("n_clipped", Integer, nullable=False, comment="Updates in the model after they were shortened"),
    Column("n_dropped", Integer, nullable=False, comment="Updates that are not in the model"),
    PrimaryKeyConstraint("federation", "round"),
    ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
    CheckConstraint("length(rule) > 0", name="rule_length"),
    CheckConstraint(f"length(fallback_reason) BETWEEN 1 AND {DETAIL_MAX}", name="fallback_reason_length"),
    CheckConstraint("n_kept >= 0 AND n_clipped >= 0 AND n_dropped >= 0", name="counts"),
    comment="How a round was aggregated by a rule; none for the plain mean",
)

update_fates = Table(
    "update_fates",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round"),
    client_column("The device whose update it is", nullable=False, index=True),
    Column("fate", Member(Fate), nullable=False, comment=in_words(Fate)),
    Column("share", Float, comment="How much of the model's step is this update's, 0 to 1; null: unknown"),
    Column("score", Float, comment="What the rule decided by; its meaning is the rule's"),
    Column("reason", Text, nullable=False, comment="Why it was clipped or dropped; empty if it was kept"),
    # No foreign key to the update: its body may be deleted before its outcome.
    PrimaryKeyConstraint("federation", "round", "client"),
    ForeignKeyConstraint(["federation", "round"], ["round_aggregations.federation", "round_aggregations.round"]),
    CheckConstraint(one_of("fate", Fate), name="fate"),
    CheckConstraint("share >= 0 AND share <= 1", name="share"),
    CheckConstraint(f"length(reason) <= {DETAIL_MAX}", name="reason_length"),
    comment="What a rule made of each update of a round; none for the plain mean",
)

trainings = Table(
    "trainings",
    metadata,
    federation_column(),
    Column("from_round", Integer, nullable=False, comment="The first round that was computed with it"),
    Column("training", Text, nullable=False, comment="Settings of the method as announced to devices, JSON"),
    # No foreign key to the round: it may not have been opened yet.
    PrimaryKeyConstraint("federation", "from_round"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint("from_round >= 1", name="from_round"),
    comment="What rounds were computed with, up to the next row's: it may change when the federator starts again",
)

defence_records = Table(
    "defence_records",
    metadata,
    federation_column(),
    Column("job", Integer, nullable=False, comment="Number of an unlearning job; 0: it is of the newest model"),
    client_column("Whose record it is", nullable=False, index=True),
    Column("record", LargeBinary, nullable=False, comment="What the rule of aggregation remembers of the client"),
    # No foreign key to the job: 0 means no job. Rows of a failed job are deleted.
    PrimaryKeyConstraint("federation", "job", "client"),
    CheckConstraint("job >= 0", name="job"),
    comment="What the rule remembers of each client: after the newest model, a job's newest step, or as its model came",
)
