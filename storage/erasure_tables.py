"""The tables of erasure: forgotten clients, the jobs that make models without them, and the audit log.

Only its pseudonym is left of a client: its row of ``clients`` is deleted once its device is notified.
"""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)

from foltr.core.erasure.states import ErasureState, Requester
from foltr.core.protocol.states import OPEN_JOB, JobState, Strategy
from foltr.storage.schema import (
    DETAIL_MAX,
    SHORT_TEXT_MAX,
    Member,
    UtcDateTime,
    client_column,
    federation_column,
    in_words,
    metadata,
    one_of,
)

_OPEN_JOB = one_of("state", OPEN_JOB)
_NOT_WELL = one_of("state", (JobState.PAUSED, JobState.FAILED))
_DONE_JOB = f"state = '{JobState.DONE}'"
_DONE = f"state = '{ErasureState.DONE}'"

unlearning_jobs = Table(
    "unlearning_jobs",
    metadata,
    federation_column(),
    Column("number", Integer, nullable=False, comment="1, 2, 3, ..."),
    Column("state", Member(JobState), nullable=False, comment=in_words(JobState)),
    Column("strategy", Member(Strategy), nullable=False, comment=in_words(Strategy)),
    Column("interval", Integer, nullable=False, comment="Every so many rounds one is replayed; delta t of the thesis"),
    Column(
        "local_interactions",
        Integer,
        nullable=False,
        comment="Interactions a client learns from in a step; n' of the thesis",
    ),
    Column("created_at", UtcDateTime, nullable=False, comment="When it was created, UTC"),
    Column("start_version", Integer, nullable=False, comment="The model it started from"),
    Column("start_round", Integer, nullable=False, comment="The first round it replays"),
    Column("step", Integer, nullable=False, comment="Calibration rounds that are done"),
    Column("n_steps", Integer, nullable=False, comment="Calibration rounds there are to do, as known now"),
    Column("last_round", Integer, comment="The stored round that its last step stood for; null before the first"),
    Column("weights", LargeBinary, comment="The model so far, little-endian float32; null once the job is closed"),
    Column("coverage_sum", Float, nullable=False, comment="Sum of the coverages, 0 to 1, of the steps that are done"),
    Column("optimizer_state", LargeBinary, comment="The federator's optimiser after the step, or null"),
    Column("defence_state", LargeBinary, comment="What the rule of aggregation remembers of all together, or null"),
    Column("reason", Text, comment="Why it is paused or failed; null otherwise"),
    Column("closed_at", UtcDateTime, comment="When it was done or failed, UTC; null while open"),
    Column("model_version", Integer, comment="The model it made; null unless done"),
    Column("figures", Text, nullable=False, comment="What was measured of its model, JSON"),
    PrimaryKeyConstraint("federation", "number"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    ForeignKeyConstraint(["federation", "start_version"], ["models.federation", "models.version"]),
    ForeignKeyConstraint(["federation", "model_version"], ["models.federation", "models.version"]),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint(one_of("state", JobState), name="state"),
    CheckConstraint(one_of("strategy", Strategy), name="strategy"),
    CheckConstraint("interval >= 1 AND local_interactions >= 1 AND start_round >= 1", name="plan"),
    CheckConstraint("step >= 0 AND n_steps >= step", name="steps"),
    CheckConstraint("coverage_sum >= 0 AND coverage_sum <= step", name="coverage_sum"),
    CheckConstraint(f"({_OPEN_JOB}) = (weights IS NOT NULL)", name="weights_iff_open"),
    CheckConstraint(f"({_OPEN_JOB}) = (closed_at IS NULL)", name="closed_at_iff_closed"),
    CheckConstraint(f"({_NOT_WELL}) = (reason IS NOT NULL)", name="reason_iff_not_well"),
    CheckConstraint(f"({_DONE_JOB}) = (model_version IS NOT NULL)", name="model_version_iff_done"),
    CheckConstraint(f"length(reason) BETWEEN 1 AND {DETAIL_MAX}", name="reason_length"),
    comment="Every attempt to make a model without the clients that were erased",
)
Index(
    "uq_unlearning_jobs_one_open",
    unlearning_jobs.c.federation,
    unique=True,
    sqlite_where=text(_OPEN_JOB),
    postgresql_where=text(_OPEN_JOB),
)

erasures = Table(
    "erasures",
    metadata,
    federation_column(),
    Column("pseudonym", String(32), nullable=False, comment="What is left of its name: 32 hex digits"),
    client_column("Its row of clients, which has its name until its device has the answer; then null", index=True),
    Column("state", Member(ErasureState), nullable=False, comment=in_words(ErasureState)),
    Column("requested_at", UtcDateTime, nullable=False, comment="When it was asked for, UTC"),
    Column("requested_by", Member(Requester), nullable=False, comment=in_words(Requester)),
    Column(
        "erased_at",
        UtcDateTime,
        nullable=False,
        comment="When its last row was deleted, UTC; of one that is being erased: when that began",
    ),
    Column("completed_at", UtcDateTime, comment="When no model in service held its updates any more, UTC"),
    Column("n_rounds", Integer, nullable=False, comment="Completed rounds that its updates were in"),
    Column("n_updates", Integer, nullable=False, comment="Its updates that were deleted"),
    Column("n_events", Integer, nullable=False, comment="Its events that were deleted"),
    Column(
        "erased_digest",
        String(64),
        nullable=False,
        comment="Chain of SHA-256 over the deleted updates' bytes as stored, the newest first, in hex",
    ),
    Column("first_round", Integer, comment="The first completed round with an update of it; null: in no model"),
    Column("key_fingerprint", LargeBinary, comment="Which data key its updates were sealed with; null: with none"),
    Column("key_destroyed", Boolean, nullable=False, comment="No data key of it exists any more"),
    Column("told", Boolean, nullable=False, comment="Its device knows"),
    Column("job", Integer, comment="The unlearning job it is or was in"),
    Column("receipt", Text, comment="The signed receipt; null before it is done, and where nothing is signed"),
    Column("audit_seq", Integer, comment="The entry of the audit log that completes it; null before"),
    Column("overdue_at", UtcDateTime, comment="When its missed deadline was reported, UTC; null: never"),
    PrimaryKeyConstraint("federation", "pseudonym"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    ForeignKeyConstraint(["federation", "job"], ["unlearning_jobs.federation", "unlearning_jobs.number"]),
    CheckConstraint("length(pseudonym) = 32", name="pseudonym_length"),
    CheckConstraint(one_of("state", ErasureState), name="state"),
    CheckConstraint(one_of("requested_by", Requester), name="requested_by"),
    CheckConstraint("n_rounds >= 0 AND n_updates >= n_rounds AND n_events >= 0", name="counts"),
    CheckConstraint("(n_rounds = 0) = (first_round IS NULL)", name="first_round_iff_in_models"),
    CheckConstraint("length(erased_digest) = 64", name="erased_digest_length"),
    CheckConstraint("length(key_fingerprint) = 8", name="key_fingerprint_length"),
    CheckConstraint(f"({_DONE}) = (completed_at IS NOT NULL)", name="completed_at_iff_done"),
    CheckConstraint(f"({_DONE}) = (audit_seq IS NOT NULL)", name="audit_seq_iff_done"),
    CheckConstraint(f"{_DONE} OR receipt IS NULL", name="receipt_only_done"),
    CheckConstraint(f"state <> '{ErasureState.UNLEARNING}' OR job IS NOT NULL", name="unlearning_in_a_job"),
    comment="Every client that was forgotten: what proves it, and that its name is not used again",
)
Index(None, erasures.c.federation, erasures.c.state)

unlearning_resets = Table(
    "unlearning_resets",
    metadata,
    federation_column(),
    Column("job", Integer, nullable=False, comment="The number of the job that would do it"),
    Column("held_at", UtcDateTime, nullable=False, comment="Since when it waits for the operator's order, UTC"),
    Column("first_round", Integer, nullable=False, comment="The first of the rounds whose teaching is lost by it"),
    Column("last_round", Integer, nullable=False, comment="The last of them that was completed by then"),
    Column("n_updates", Integer, nullable=False, comment="Updates of them that are stored: of clients that stay"),
    Column("n_clients", Integer, nullable=False, comment="Clients that these are of"),
    Column("ordered_at", UtcDateTime, comment="When the operator ordered it, UTC; null: not yet"),
    PrimaryKeyConstraint("federation", "job"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint("job >= 1", name="job"),
    CheckConstraint("first_round >= 1 AND last_round >= first_round", name="rounds"),
    CheckConstraint("n_clients >= 1 AND n_updates >= n_clients", name="counts"),
    comment="Unlearning jobs that would put the first model in service: none does without the operator's order",
)

stored_rounds = Table(
    "stored_rounds",
    metadata,
    federation_column(),
    Column("round", Integer, nullable=False, comment="The round: completed, and no update of it was thinned"),
    PrimaryKeyConstraint("federation", "round"),
    ForeignKeyConstraint(["federation", "round"], ["rounds.federation", "rounds.number"]),
    comment="The rounds that unlearning can go through: what is left of their updates is stored, and there is some",
)

audit_log = Table(
    "audit_log",
    metadata,
    federation_column(),
    Column("seq", Integer, nullable=False, comment="1, 2, 3, ..."),
    Column("at", UtcDateTime, nullable=False, comment="When it happened, UTC"),
    Column("kind", String(SHORT_TEXT_MAX), nullable=False, comment="What happened, e.g. client_erased"),
    Column("body", Text, nullable=False, comment="Details, JSON; nothing personal"),
    Column("previous_hash", String(64), nullable=False, comment="Hash of the entry before"),
    Column("hash", String(64), nullable=False, comment="SHA-256 over this entry and the hash before it, in hex"),
    PrimaryKeyConstraint("federation", "seq"),
    ForeignKeyConstraint(["federation"], ["federations.name"]),
    CheckConstraint("seq >= 1", name="seq"),
    CheckConstraint(f"length(kind) BETWEEN 1 AND {SHORT_TEXT_MAX}", name="kind_length"),
    CheckConstraint("length(previous_hash) = 64 AND length(hash) = 64", name="hash_length"),
    comment="What was erased and unlearned, in a chain of hashes: no entry can be changed unnoticed",
)
