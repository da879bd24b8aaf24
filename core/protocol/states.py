"""The states in which members, rounds and unlearning jobs are stored and announced, defined once.

Tables use them in their constraints, messages accept no others. The transitions are with the state machines that decide
them: `foltr.federator.round` and `foltr.federator.job`.
"""

from enum import StrEnum
from typing import Final


class Membership(StrEnum):
    """Why a name is known.

    A client that once joined is a member or has left. A stranger was named by a refused message, and never joined. A
    forgotten client keeps its name until its device is notified.
    """

    JOINED = "joined"
    LEFT = "left"
    STRANGER = "stranger"
    FORGOTTEN = "forgotten"


CLIENTS: Final = (Membership.JOINED, Membership.LEFT)


class OrderOutcome(StrEnum):
    """The outcome of an operator's order; either way its number is used up."""

    OBEYED = "obeyed"
    REFUSED = "refused"


class TakesUpdates(StrEnum):
    """Who stores the updates of a federation.

    Its writer itself, or workers. A leader lets workers take them, and takes them back while it decides.
    """

    WRITER = "writer"
    LEADER = "leader"
    WORKERS = "workers"


class RoundState(StrEnum):
    """The state of a round; those in `ASKING_HELPERS` only with a secure sum."""

    COLLECTING = "collecting"
    CHECKING = "checking"
    OPENING = "opening"
    AGGREGATING = "aggregating"
    COMPLETED = "completed"
    ABANDONED = "abandoned"


ASKING_HELPERS: Final = (RoundState.CHECKING, RoundState.OPENING)
WITHDRAWABLE: Final = (RoundState.COLLECTING, RoundState.CHECKING)
"""In these states an update can leave its round: no set has been fixed."""
OPEN_ROUND: Final = (RoundState.COLLECTING, *ASKING_HELPERS, RoundState.AGGREGATING)


class AbandonReason(StrEnum):
    """Why a round ended without a model."""

    NO_UPDATES = "no_updates"
    TOO_FEW_CLIENTS = "too_few_clients"
    HELD_BACK = "held_back"  # it was not announced to devices before its deadline; a few sent all the same
    AGGREGATION_FAILED = "aggregation_failed"
    TOO_FEW_FOR_RULE = "too_few_for_rule"
    ONLY_SUSPECTS = "only_suspects"
    UNLEARNED = "unlearned"
    MODEL_ROLLED_BACK = "model_rolled_back"  # most devices found its base worse than the anchor
    # For rounds with a secure sum. Nothing was released.
    COHORTS_TOO_SMALL = "cohorts_too_small"  # without the clients that helpers refused
    HELPERS_SILENT = "helpers_silent"
    HELPERS_REFUSED = "helpers_refused"
    CLIENT_WITHDRAWN = "client_withdrawn"  # whose update was in a set that helpers had been asked to open
    SUM_IMPLAUSIBLE = "sum_implausible"
    VERIFIERS_DISAGREE = "verifiers_disagree"  # most norm proofs failed: a helper, not its clients, is at fault


class Aftermath(StrEnum):
    """What an abandoned round with a secure sum means for the next rounds.

    A device spends one of its lifetime's participations with each update that it sends, even if the round fails.
    """

    NOTHING = "nothing"  # no device that was asked has spent anything
    PAUSE = "pause"  # devices have spent something for nothing: the next round is announced only after a pause
    HELPERS_FIRST = "helpers_first"  # likewise, and all helpers have to answer before
    NO_PAUSE = "no_pause"  # what they have spent decided something, like a round with a model


AFTERMATH: Final = {
    AbandonReason.NO_UPDATES: Aftermath.NOTHING,
    AbandonReason.HELD_BACK: Aftermath.NOTHING,
    AbandonReason.UNLEARNED: Aftermath.NOTHING,
    AbandonReason.MODEL_ROLLED_BACK: Aftermath.NO_PAUSE,
    AbandonReason.TOO_FEW_CLIENTS: Aftermath.PAUSE,
    AbandonReason.AGGREGATION_FAILED: Aftermath.PAUSE,
    AbandonReason.TOO_FEW_FOR_RULE: Aftermath.PAUSE,
    AbandonReason.ONLY_SUSPECTS: Aftermath.PAUSE,
    AbandonReason.COHORTS_TOO_SMALL: Aftermath.PAUSE,
    AbandonReason.CLIENT_WITHDRAWN: Aftermath.PAUSE,
    AbandonReason.SUM_IMPLAUSIBLE: Aftermath.PAUSE,
    AbandonReason.VERIFIERS_DISAGREE: Aftermath.PAUSE,
    AbandonReason.HELPERS_SILENT: Aftermath.HELPERS_FIRST,
    AbandonReason.HELPERS_REFUSED: Aftermath.HELPERS_FIRST,
}
PAUSING: Final = tuple(
    reason for reason, after in AFTERMATH.items() if after in (Aftermath.PAUSE, Aftermath.HELPERS_FIRST)
)


class Privacy(StrEnum):
    """What a federator sees: every update, or noised sums only (`foltr.core.protocol.policies`)."""

    TRUSTED = "trusted"
    SECURE = "secure"


class Pacing(StrEnum):
    """Updates count only in the round they were made for, or fill the buffer of any (`foltr.federator.round`)."""

    DEADLINE = "deadline"
    BUFFERED = "buffered"


class JobState(StrEnum):
    """The stored progress of an unlearning job; while one runs, `foltr.federator.job` knows more."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"


OPEN_JOB: Final = (JobState.RUNNING, JobState.PAUSED)


class Strategy(StrEnum):
    """How a model is made without a client (thesis, Section 6.1.2).

    ``fed_eraser`` calibrates stored updates from the first model on, ``rollback`` from the model before the client's
    first round on. ``relearn`` begins there too, and learns again in long steps: each has the interactions of the
    rounds that it stands for, and nothing is calibrated.
    """

    FED_ERASER = "fed_eraser"
    ROLLBACK = "rollback"
    RELEARN = "relearn"
