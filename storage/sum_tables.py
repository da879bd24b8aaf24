"""The tables of secure sums: the operator's policies, the sums of each round, and the helpers' answers.

The results of votes and evaluations have a table each, from which the standing of the newest model is read.
"""

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
    UniqueConstraint,
)

from foltr.core.aggregation.fates import Fate
from foltr.storage.schema import CLIENT_ID_MAX, Member, UtcDateTime, federation_column, in_words, metadata, one_of

policies = Table(
    "policies",
    metadata,
    federation_column(),
    Column("hash", LargeBinary, nullable=False, comment="SHA-256 of the signed bytes, by which rounds name it"),
    Column("version", Integer, nullable=False, comment="A higher one replaces a lower"),
    Column("signed", LargeBinary, nullable=False, comment="The policy as the operator signed it"),
    Column("adopted_at", UtcDateTime, nullable=False, comment="When the federator took it up, UTC"),
    PrimaryKeyConstraint("federation", "hash"),
    UniqueConstraint("federation", "version"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint("length(hash) = 32", name="hash_length"),
    CheckConstraint("version >= 1", name="version"),
    comment="The operator's policies that rounds were, or are to be, under",
)

round_sums = Table(
    "round_sums",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round"),
    Column("cohort", Integer, nullable=False, comment="Which of its cohorts, from 0"),
    Column("n_tickets", Integer, nullable=False, comment="Positions of tickets that helpers were shown"),
    Column("n_clients", Integer, nullable=False, comment="Those in the sum: whom nobody took out"),
    Column("kept", LargeBinary, nullable=False, comment="Those as bits by position, the first the highest"),
    Column("set_digest", LargeBinary, nullable=False, comment="SHA-256 over the SHA-256 of each of their tickets"),
    # With the answers this gives the sum: without one of them it is uniformly random.
    Column("masked_sum", LargeBinary, comment="Sum of their masked vectors; null until all helpers have answered"),
    Column("fate", Member(Fate), comment=f"By the rule: {in_words(Fate)}; null of the plain mean"),
    Column("share", Float, comment="How much of the model's step is this sum's, 0 to 1; null: unknown"),
    Column("n_norm_proofs_failed", Integer, comment="Those excluded because their norm proofs fail; null: no proofs"),
    PrimaryKeyConstraint("federation", "round", "cohort"),
    UniqueConstraint("federation", "round", "cohort", "set_digest"),
    ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
    CheckConstraint("cohort >= 0", name="cohort"),
    CheckConstraint("n_clients BETWEEN 1 AND n_tickets", name="n_clients"),
    CheckConstraint("n_norm_proofs_failed BETWEEN 0 AND n_tickets - n_clients", name="n_norm_proofs_failed"),
    CheckConstraint("length(kept) = (n_tickets + 7) / 8", name="kept_length"),
    CheckConstraint("length(set_digest) = 32", name="set_digest_length"),
    CheckConstraint("length(masked_sum) = 8 * (length(masked_sum) / 8)", name="masked_sum_length"),
    CheckConstraint(one_of("fate", Fate), name="fate"),
    CheckConstraint("share >= 0 AND share <= 1", name="share"),
    comment="The set of clients of each cohort that a sum was asked of, fixed before anybody was asked, and their sum",
)

helper_answers = Table(
    "helper_answers",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round"),
    Column("cohort", Integer, nullable=False, comment="The cohort"),
    Column("helper", String(CLIENT_ID_MAX), nullable=False, comment="Who answered"),
    Column("start", Integer, nullable=False, comment="The number of the sum that this part of the answer begins with"),
    Column("set_digest", LargeBinary, nullable=False, comment="The set that it answers for: the one that was asked"),
    Column("answer", LargeBinary, nullable=False, comment="The answer as the helper signed it"),
    # A helper answers once per stored set.
    PrimaryKeyConstraint("federation", "round", "cohort", "helper", "start"),
    ForeignKeyConstraint(
        ["federation", "round", "cohort", "set_digest"],
        ["round_sums.federation", "round_sums.round", "round_sums.cohort", "round_sums.set_digest"],
        name="fk_helper_answers_round_sums",
    ),
    CheckConstraint("start >= 0", name="start"),
    comment="What each helper answered for a set: the sum of its masks less the helper's noise, in parts",
)

round_tallies = Table(
    "round_tallies",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round: completed, with an anchor, under a policy with votes"),
    Column("n_updates", Integer, nullable=False, comment="Updates in its sums"),
    # Of all cohorts together: the share of a single one is in its sum.
    Column("worse", Float, nullable=False, comment="Votes worse among them, with the helpers' noise"),
    Column("better", Float, nullable=False, comment="Votes better among them, likewise"),
    Column("deviation", Float, nullable=False, comment="Standard deviation of the noise in each, in votes"),
    PrimaryKeyConstraint("federation", "round"),
    ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
    CheckConstraint("n_updates >= 1", name="n_updates"),
    CheckConstraint("deviation > 0", name="deviation"),
    comment="What the votes in a round's secure sums come to; without those that an erased client was in",
)

round_evaluations = Table(
    "round_evaluations",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round: completed, under a policy with evaluation"),
    Column("n_updates", Integer, nullable=False, comment="Updates in its sums"),
    Column("clicked", Float, nullable=False, comment="Sum of their shares of lists with a click, with noise"),
    Column("reward", Float, nullable=False, comment="Sum of their mean rewards of lists as shown, likewise"),
    Column("base_reward", Float, nullable=False, comment="Sum of their mean rewards in the base order, likewise"),
    Column("deviation", Float, nullable=False, comment="Standard deviation of the helpers' noise in each, in updates"),
    Column("credit_total", Float, comment="Credits of their lists, with noise; null: none, or a client erased since"),
    Column("credit_deviation", Float, comment="Standard deviation of the helpers' noise in it; null likewise"),
    PrimaryKeyConstraint("federation", "round"),
    ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
    CheckConstraint("n_updates >= 1", name="n_updates"),
    CheckConstraint("deviation >= 0", name="deviation"),
    CheckConstraint(
        "(credit_deviation IS NULL) = (credit_total IS NULL) AND credit_deviation > 0", name="credit_deviation"
    ),
    comment="What the evaluations in a round's secure sums come to; without those that an erased client was in",
)
