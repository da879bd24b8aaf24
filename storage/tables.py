"""The tables, as SQLAlchemy Core sees them. The constraints carry the invariants.

`migrations/` creates the same schema; a test shows that the two agree on SQLite and PostgreSQL. Every table is keyed by
``federation``, so that several federations share one database. Only its row of ``clients`` has a client's name; other
tables have its key, ``client``, so that forgetting a client means deleting rows.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from foltr.core.protocol.helper_messages import TicketFault
from foltr.core.protocol.states import ASKING_HELPERS, CLIENTS, OPEN_ROUND, Membership, Pacing, Privacy, RoundState

# For the metadata: importing these tables imports the others too.
from foltr.storage import (  # noqa: F401
    aggregation_tables,
    body_tables,
    erasure_tables,
    ingest_tables,
    lease_tables,
    model_tables,
    order_tables,
    sum_tables,
)
from foltr.storage.schema import (
    CLIENT_ID_MAX,
    DETAIL_MAX,
    FEDERATION_MAX,
    SHORT_TEXT_MAX,
    UPDATE_ID_MAX,
    ClientId,
    Member,
    RowId,
    UtcDateTime,
    client_column,
    federation_column,
    in_words,
    metadata,
    one_of,
)

federations = Table(
    "federations",
    metadata,
    Column("name", String(FEDERATION_MAX), primary_key=True, comment="Name, as in the MQTT topics"),
    Column(
        "writer_epoch",
        BigInteger,
        nullable=False,
        comment="Epoch of the last claim, at least its unix seconds; only that federator may write",
    ),
    Column(
        "last_batch_id",
        String(36),
        comment="The last committed batch: offered again, it is not applied again",
    ),
    Column("ranker", String(SHORT_TEXT_MAX), nullable=False, comment="Kind of ranker: linear or neural"),
    Column("n_features", Integer, nullable=False, comment="Features of one document"),
    Column("created_at", UtcDateTime, nullable=False, comment="When the federation was created, UTC"),
    Column("selection_seed", LargeBinary, comment="First seed of random selections; never changed"),
    Column(
        "roster_version",
        Integer,
        nullable=False,
        server_default="0",
        comment="Version of the operator's roster; a lower one is refused",
    ),
    Column("roster", LargeBinary, comment="The operator's roster, as signed"),
    Column(
        "last_order",
        Integer,
        nullable=False,
        server_default="0",
        comment="Number of the operator's newest order that has an outcome; the next one is to follow it",
    ),
    Column(
        "method",
        String(SHORT_TEXT_MAX),
        nullable=False,
        server_default="fpdgd",
        comment="How it learns, e.g. fpdgd; fixed as long as it exists",
    ),
    Column("hidden", Integer, comment="Hidden units of a neural ranker; null for a linear one"),
    Column("aggregation_seed", LargeBinary, comment="Seed of what an aggregation draws; secret, never changed"),
    Column("pseudonym_key", LargeBinary, comment="Key of the pseudonyms of erased clients; secret, never changed"),
    Column(
        "n_deletions",
        Integer,
        nullable=False,
        server_default="0",
        comment="Counts transactions that deleted something of a forgotten client",
    ),
    Column(
        "n_purged",
        Integer,
        nullable=False,
        server_default="0",
        comment="So many of them have left no byte of a name: the database was purged since",
    ),
    Column(
        "privacy",
        Member(Privacy),
        nullable=False,
        server_default=Privacy.TRUSTED,
        comment=f"{in_words(Privacy)}; fixed as long as it exists",
    ),
    Column("schema_hash", LargeBinary, comment="SHA-256 of the feature schema; null without one. Fixed likewise"),
    Column(
        "activation",
        String(SHORT_TEXT_MAX),
        comment="Activation of the hidden units: sigmoid or relu; null for a linear one",
    ),
    CheckConstraint(f"length(name) BETWEEN 1 AND {FEDERATION_MAX}", name="name_length"),
    CheckConstraint(one_of("privacy", Privacy), name="privacy"),
    CheckConstraint("writer_epoch >= 0", name="writer_epoch"),
    CheckConstraint("n_features > 0", name="n_features"),
    CheckConstraint("length(ranker) > 0", name="ranker_length"),
    CheckConstraint("(ranker = 'neural') = (hidden IS NOT NULL)", name="hidden_iff_neural"),
    CheckConstraint("(ranker = 'neural') = (activation IS NOT NULL)", name="activation_iff_neural"),
    CheckConstraint("activation IN ('sigmoid', 'relu')", name="activation"),
    CheckConstraint("n_purged BETWEEN 0 AND n_deletions", name="n_purged"),
    CheckConstraint("last_order >= 0", name="last_order"),
    CheckConstraint("length(schema_hash) = 32", name="schema_hash_length"),
    comment="One federation: a ranker learned together. The row is also the lock of its single writer",
)

clients = Table(
    "clients",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True, comment="Key that other tables have; never used again"),
    federation_column(),
    Column("client_id", ClientId, nullable=False, comment="Identity of the device within the federation: its name"),
    Column("membership", Member(Membership), nullable=False, comment=in_words(Membership)),
    Column("online", Boolean, nullable=False, comment="Connected, as far as its status messages tell"),
    Column("joined_at", UtcDateTime, comment="Start of the latest membership, UTC; null for who is, or was, no member"),
    Column("left_at", UtcDateTime, comment="When it left, UTC; set exactly while membership is left"),
    Column("last_seen_at", UtcDateTime, nullable=False, comment="Latest join, leave or status, UTC"),
    Column("sdk_version", String(SHORT_TEXT_MAX), comment="Version of foltr the device said it runs"),
    Column("public_key", LargeBinary, comment="Ed25519 key its messages are verified with"),
    Column("enrolment_serial", Integer, comment="Serial of the enrolment it joined with"),
    Column("revoked_at", UtcDateTime, comment="When its enrolment was revoked, UTC; null unless it is"),
    Column(
        "membership_sequence",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="Sequence number of its newest join or leave; an older one is a replay",
    ),
    Column(
        "status_sequence",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="Sequence number of its newest status; an older one is out of date",
    ),
    Column("quarantined_at", UtcDateTime, comment="When the operator quarantined it, UTC; null unless it is"),
    Column("quarantine_reason", Text, comment="Why, in the operator's words; null unless it is quarantined"),
    Column(
        "counted_through",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="The watermark: its interactions up to this number are in stored updates, or will never be",
    ),
    Column("enrolment", LargeBinary, comment="That enrolment as the operator signed it: helpers are shown it"),
    UniqueConstraint("federation", "client_id"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint(f"length(client_id) BETWEEN 1 AND {CLIENT_ID_MAX}", name="client_id_length"),
    CheckConstraint(one_of("membership", Membership), name="membership"),
    CheckConstraint(f"(membership = '{Membership.LEFT}') = (left_at IS NOT NULL)", name="left_at_iff_left"),
    CheckConstraint(f"({one_of('membership', CLIENTS)}) = (joined_at IS NOT NULL)", name="joined_at_iff_client"),
    CheckConstraint(f"length(sdk_version) <= {SHORT_TEXT_MAX}", name="sdk_version_length"),
    CheckConstraint("(quarantined_at IS NULL) = (quarantine_reason IS NULL)", name="quarantine_reason_iff_quarantined"),
    CheckConstraint(f"length(quarantine_reason) <= {DETAIL_MAX}", name="quarantine_reason_length"),
    CheckConstraint("counted_through >= 0", name="counted_through"),
    comment="Every device that has joined, with its membership; and strangers. No other table has names",
    sqlite_autoincrement=True,
)

_OPEN = one_of("state", OPEN_ROUND)
IS_OPEN = text(_OPEN)
"""The condition that a round is open, worded as in the index of open rounds: otherwise all rounds would be read."""

rounds = Table(
    "rounds",
    metadata,
    federation_column(),
    Column("number", Integer, nullable=False, comment="1, 2, 3, ..."),
    Column("state", Member(RoundState), nullable=False, comment=in_words(RoundState)),
    Column("base_version", Integer, nullable=False, comment="The model the round trains from"),
    Column("min_clients", Integer, nullable=False, comment="Fewer updates than this abandon the round"),
    Column("max_clients", Integer, nullable=False, comment="The round takes at most so many updates"),
    Column("min_time_s", Float, nullable=False, comment="The round stays open at least this long, seconds"),
    Column("max_time_s", Float, nullable=False, comment="The round stays open at most this long, seconds"),
    Column("opened_at", UtcDateTime, nullable=False, comment="When it opened, UTC"),
    Column("closes_at", UtcDateTime, nullable=False, comment="The deadline, UTC"),
    Column("closed_at", UtcDateTime, comment="When it was completed or abandoned, UTC; null while open"),
    Column("reason", Text, comment="Why it was abandoned; null otherwise"),
    Column("n_updates", Integer, comment="Updates it had when it closed; null while open"),
    Column("n_interactions", BigInteger, comment="Interactions behind those updates; null while open"),
    Column("model_version", Integer, comment="The model it made; null unless completed"),
    Column("pacing", Member(Pacing), nullable=False, server_default=Pacing.DEADLINE, comment=in_words(Pacing)),
    Column(
        "staleness_limit",
        Integer,
        nullable=False,
        server_default="0",
        comment="Buffered: how many model versions old an update's base may be",
    ),
    Column(
        "staleness_exponent",
        Float,
        nullable=False,
        server_default="0.5",
        comment="Buffered: an update of staleness s weighs (1 + s) ** -exponent",
    ),
    Column("selection_seed", LargeBinary, comment="Seed of its random selection; null: all were asked"),
    Column("selection_cutoff", LargeBinary, comment="Whose ticket is at most this was asked; nobody has it"),
    Column("n_selected", Integer, comment="How many clients were to be asked"),
    Column("n_eligible", Integer, comment="Clients online when it opened"),
    Column(
        "aggregation",
        String(SHORT_TEXT_MAX),
        nullable=False,
        server_default="mean",
        comment="Rule it is aggregated by, e.g. nnm+krum",
    ),
    Column(
        "byzantine",
        Float,
        nullable=False,
        server_default="0.2",
        comment="Hostile clients the rule is to withstand: a count, or a share below 0.5",
    ),
    Column(
        "aggregation_parameters",
        Text,
        nullable=False,
        server_default="{}",
        comment="Parameters of the rule, JSON; those not named have their defaults",
    ),
    Column(
        "aggregation_fallback",
        String(SHORT_TEXT_MAX),
        nullable=False,
        server_default="median",
        comment="Rule where too few arrive for the first one, or abandon",
    ),
    Column("policy_hash", LargeBinary, comment="The policy that it is under; null: the federator sees every update"),
    Column("clip_norm", Float, comment="C, to which devices shorten what they send; null without a policy"),
    Column(
        "anchor_version",
        Integer,
        comment="The model that devices compare the newest with, and vote on; null: nobody is asked to",
    ),
    Column(
        "period_s",
        Float,
        comment="Time between visits, as announced when it opened, seconds; null: devices stay connected",
    ),
    Column(
        "part",
        Integer,
        nullable=False,
        server_default="0",
        comment="The part of update_bodies that its updates' bodies are in, or were; 0: they are deleted row by row",
    ),
    PrimaryKeyConstraint("federation", "number"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    ForeignKeyConstraint(["federation", "base_version"], ["models.federation", "models.version"]),
    ForeignKeyConstraint(["federation", "model_version"], ["models.federation", "models.version"]),
    ForeignKeyConstraint(["federation", "anchor_version"], ["models.federation", "models.version"]),
    ForeignKeyConstraint(["federation", "policy_hash"], ["policies.federation", "policies.hash"]),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint("anchor_version <= base_version", name="anchor_version"),
    CheckConstraint("period_s > 0", name="period"),
    CheckConstraint("part >= 0", name="part"),
    CheckConstraint(one_of("state", RoundState), name="state"),
    CheckConstraint("(policy_hash IS NULL) = (clip_norm IS NULL)", name="clip_norm_iff_policy"),
    CheckConstraint(f"policy_hash IS NOT NULL OR NOT ({one_of('state', ASKING_HELPERS)})", name="asks_under_a_policy"),
    CheckConstraint("min_clients >= 1 AND max_clients >= min_clients", name="clients_range"),
    CheckConstraint("min_time_s >= 0 AND max_time_s >= min_time_s", name="time_range"),
    CheckConstraint("closes_at >= opened_at", name="closes_after_opened"),
    CheckConstraint(f"({_OPEN}) = (closed_at IS NULL)", name="closed_at_iff_closed"),
    CheckConstraint(f"({_OPEN}) = (n_updates IS NULL)", name="n_updates_iff_closed"),
    CheckConstraint(f"({_OPEN}) = (n_interactions IS NULL)", name="n_interactions_iff_closed"),
    CheckConstraint(f"(state = '{RoundState.ABANDONED}') = (reason IS NOT NULL)", name="reason_iff_abandoned"),
    CheckConstraint(
        f"(state = '{RoundState.COMPLETED}') = (model_version IS NOT NULL)", name="model_version_iff_completed"
    ),
    CheckConstraint(f"length(reason) BETWEEN 1 AND {DETAIL_MAX}", name="reason_length"),
    comment="Every round, open or closed",
)
Index(
    "uq_rounds_one_open",
    rounds.c.federation,
    unique=True,
    sqlite_where=IS_OPEN,
    postgresql_where=IS_OPEN,
)

updates = Table(
    "updates",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round it counts in"),
    client_column("The device that sent it", nullable=False),
    Column("update_id", String(UPDATE_ID_MAX), nullable=False, comment="Chosen by the device, kept on resending"),
    Column("base_version", Integer, nullable=False, comment="The model the device trained from"),
    Column("n_interactions", Integer, nullable=False, comment="Interactions behind it"),
    Column(
        "encoding",
        String(SHORT_TEXT_MAX),
        nullable=False,
        comment="How its body is encoded: dense_f32, part_f32, evolution or masked_u64",
    ),
    Column("n_bytes", Integer, nullable=False, comment="Length of the update as sent"),
    Column("received_at", UtcDateTime, nullable=False, comment="When the federator received it, UTC"),
    Column(
        "covers_after",
        BigInteger,
        comment="It covers its client's interactions above this number; null once taken back with its round",
    ),
    Column("covers_through", BigInteger, comment="... and up to this one"),
    Column("cohort", Integer, comment="Of a masked update: which of its round's sums it is for; null of any other"),
    Column("position", Integer, comment="Of a masked update: its ticket's among those of its cohort, from 0"),
    Column("fault", Member(TicketFault, 32), comment="Why it was taken out of its sum; null unless it was"),
    Column(
        "vote",
        SmallInteger,
        comment="Of the newest model against its round's anchor: -1 worse, 0 none, 1 better; null: no vote",
    ),
    Column("clicked", Float, comment="Share of its lists with a click, 0 to 1; null: it came without an evaluation"),
    Column("reward", Float, comment="Mean reciprocal rank of the first click, in its lists as shown; null likewise"),
    Column("base_reward", Float, comment="Mean reciprocal rank of these clicks in the base order; null likewise"),
    Column("credit_total", Float, comment="Credits of its lists, above 0 for the model; null: none"),
    Column("credit_squares", Float, comment="Their squares; null likewise"),
    # A client contributes once to a round, and an update counts once however often it is delivered.
    PrimaryKeyConstraint("federation", "round", "client"),
    UniqueConstraint("client", "update_id"),
    # No interaction is in two updates that count: each begins where the one before ended (`foltr.storage.watermarks`).
    UniqueConstraint("client", "covers_after"),
    ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
    CheckConstraint(f"length(update_id) BETWEEN 1 AND {UPDATE_ID_MAX}", name="update_id_length"),
    CheckConstraint("base_version >= 0", name="base_version"),
    CheckConstraint("n_interactions > 0", name="n_interactions"),
    CheckConstraint("(covers_after IS NULL) = (covers_through IS NULL)", name="covers_both"),
    CheckConstraint("covers_after >= 0 AND covers_after < covers_through", name="covers_range"),
    CheckConstraint("n_interactions <= covers_through - covers_after", name="covers_interactions"),
    CheckConstraint("n_bytes >= 0", name="n_bytes"),
    CheckConstraint("(cohort IS NOT NULL) = (encoding = 'masked_u64')", name="cohort_iff_masked"),
    CheckConstraint("(cohort IS NULL) = (position IS NULL)", name="position_in_a_cohort"),
    CheckConstraint("fault IS NULL OR cohort IS NOT NULL", name="fault_of_a_masked_one"),
    CheckConstraint("vote IN (-1, 0, 1)", name="vote"),
    CheckConstraint("clicked BETWEEN 0 AND 1", name="clicked"),
    CheckConstraint("(reward IS NULL) = (clicked IS NULL) AND reward BETWEEN 0 AND clicked", name="reward"),
    CheckConstraint(
        "(base_reward IS NULL) = (clicked IS NULL) AND base_reward BETWEEN 0 AND clicked", name="base_reward"
    ),
    CheckConstraint("credit_squares > 0", name="credit_squares"),
    comment="Every accepted update: the contribution of one client to one round; kept for ever",
)


def _index_if(name: str, condition: str, *columns: str, unique: bool = False) -> None:
    """Index the updates that fulfil a condition."""
    chosen = (updates.c[column] for column in ("federation", "round", *columns))
    Index(name, *chosen, unique=unique, sqlite_where=text(condition), postgresql_where=text(condition))


_index_if("uq_updates_position", "cohort IS NOT NULL", "cohort", "position", unique=True)
_index_if("ix_updates_votes", "vote IS NOT NULL", "client", "vote")
_index_if("ix_updates_evaluations", "clicked IS NOT NULL", "clicked", "reward", "base_reward")
_index_if(
    "ix_updates_credits", "credit_squares IS NOT NULL", "client", "credit_total", "credit_squares", "base_version"
)

events = Table(
    "events",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True, comment="Order of recording"),
    Column(
        "federation",
        String(FEDERATION_MAX),
        ForeignKey("federations.name"),
        nullable=False,
        comment="Federation",
    ),
    Column("at", UtcDateTime, nullable=False, comment="When it happened, UTC"),
    Column("kind", String(SHORT_TEXT_MAX), nullable=False, comment="What happened, e.g. update_rejected"),
    Column("code", String(SHORT_TEXT_MAX), comment="Reason code of the receipt, e.g. late"),
    client_column("The client as the message named it; null: none, or one of too many", index=True),
    # No foreign key: a rejected message may name a round that does not exist.
    Column("round", Integer, comment="The round as the message named it"),
    Column("detail", Text, nullable=False, comment="What a person needs to know"),
    Column("n", Integer, nullable=False, server_default="1", comment="How often; of refusals, within the minute"),
    Column("minute", BigInteger, comment="Of a refusal: the minute, since 1970, of which equal ones are this row"),
    # A client that sends junk all day leaves a row a minute. If one of these is null, each batch leaves a row.
    UniqueConstraint("federation", "client", "kind", "code", "round", "minute"),
    CheckConstraint("minute IS NULL OR code IS NOT NULL", name="minute_of_a_refusal"),
    CheckConstraint(f"length(kind) BETWEEN 1 AND {SHORT_TEXT_MAX}", name="kind_length"),
    CheckConstraint(f"length(code) BETWEEN 1 AND {SHORT_TEXT_MAX}", name="code_length"),
    CheckConstraint(f"length(detail) <= {DETAIL_MAX}", name="detail_length"),
    Index(None, "federation", "round"),
    comment="What was refused, who came and who left",
    sqlite_autoincrement=True,
)
