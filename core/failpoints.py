"""Places in which a test can make a process die or fail; inactive unless the environment names one.

``FOLTR_TEST_FAILPOINTS="batch_committed=kill@3"`` ends the process with SIGKILL the third time it passes there;
``=error`` raises OSError every time, ``=error@2`` the second time. Several are separated by commas.
"""

import os
import re
import signal
from enum import StrEnum
from functools import cache

from foltr.core.errors import SettingsError

VARIABLE = "FOLTR_TEST_FAILPOINTS"


class Failpoint(StrEnum):
    """Every failpoint: of an update, in the order in which it passes them, an erasure, a device, a helper, an order, a
    restore.
    """

    FEDERATION_CLAIMED = "federation_claimed"
    BATCH_DECIDED = "batch_decided"
    IN_BATCH_TRANSACTION = "in_batch_transaction"
    BATCH_COMMITTED = "batch_committed"
    RECEIPT_SENT = "receipt_sent"
    TAKEN_BACK = "taken_back"
    HANDED_OVER = "handed_over"
    INGEST_BEGUN = "ingest_begun"
    IN_INGEST_TRANSACTION = "in_ingest_transaction"
    INGEST_COMMITTED = "ingest_committed"
    COLLECTING_STOPPED = "collecting_stopped"
    PROOFS_CHECKED = "proofs_checked"
    SETS_DECIDED = "sets_decided"
    IN_SETS_TRANSACTION = "in_sets_transaction"
    SETS_STORED = "sets_stored"
    ANSWERS_STORED = "answers_stored"
    IN_SUMS_TRANSACTION = "in_sums_transaction"
    SUMS_STORED = "sums_stored"
    AGGREGATED = "aggregated"
    IN_ROUND_TRANSACTION = "in_round_transaction"
    ROUND_COMPLETED = "round_completed"
    ROUND_ABANDONED = "round_abandoned"
    IN_RESTORATION_TRANSACTION = "in_restoration_transaction"
    MODEL_ROLLED_BACK = "model_rolled_back"
    MODEL_ANNOUNCED = "model_announced"
    ROUND_ANNOUNCED = "round_announced"
    IN_ERASURE_TRANSACTION = "in_erasure_transaction"
    ERASED = "erased"
    KEY_DESTROYED = "key_destroyed"
    IN_REKEY_TRANSACTION = "in_rekey_transaction"
    REKEYED = "rekeyed"
    KEY_TAKEN_UP = "key_taken_up"
    IN_PART_TRANSACTION = "in_part_transaction"
    STEP_COMMITTED = "step_committed"
    IN_SWAP_TRANSACTION = "in_swap_transaction"
    IN_INTERACTION_TRANSACTION = "in_interaction_transaction"
    INTERACTION_STORED = "interaction_stored"
    IN_UPDATE_TRANSACTION = "in_update_transaction"
    UPDATE_STORED = "update_stored"
    IN_SETTLEMENT_TRANSACTION = "in_settlement_transaction"
    SETTLEMENT_STORED = "settlement_stored"
    IN_MODEL_TRANSACTION = "in_model_transaction"
    MODEL_STORED = "model_stored"
    IN_WISH_TRANSACTION = "in_wish_transaction"
    WISH_STORED = "wish_stored"
    WISH_SENT = "wish_sent"
    IN_FORGETTING_TRANSACTION = "in_forgetting_transaction"
    STORE_FORGOTTEN = "store_forgotten"
    IN_CHECK_TRANSACTION = "in_check_transaction"
    TICKETS_CHECKED = "tickets_checked"
    IN_COMMITMENT_TRANSACTION = "in_commitment_transaction"
    SET_COMMITTED = "set_committed"
    IN_DESTRUCTION_TRANSACTION = "in_destruction_transaction"
    KEYS_DELETED = "keys_deleted"
    IN_OPENING_TRANSACTION = "in_opening_transaction"
    SUM_OPENED = "sum_opened"
    HELPER_ANSWERED = "helper_answered"
    ORDER_WRITTEN = "order_written"
    ORDER_SENT = "order_sent"
    ORDER_ANSWERED = "order_answered"
    ORDER_NOTED = "order_noted"
    TOKEN_CLAIMED = "token_claimed"  # noqa: S105 (a place)
    TOKEN_ENROLLED = "token_enrolled"  # noqa: S105
    TOKEN_USED = "token_used"  # noqa: S105
    KEYS_MADE = "keys_made"
    ENROLMENT_ANSWERED = "enrolment_answered"
    RESTORE_COPIED = "restore_copied"
    RESTORE_KEPT = "restore_kept"
    RESTORED = "restored"


class _Action:
    def __init__(self, kind: str, only: int | None) -> None:
        self._kind = kind
        self._only = only
        self._n_passed = 0

    def run(self, name: str) -> None:
        self._n_passed += 1
        if self._only is not None and self._n_passed != self._only:
            return
        if self._kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(f"failpoint {name}")


class Failpoints:
    """The failpoints that a setting activates.

    Args:
        setting: as in the environment variable; empty activates none.

    Raises:
        SettingsError: an unknown name; a test that uses one would test nothing.
    """

    def __init__(self, setting: str) -> None:
        self._actions = _read(setting)

    def reach(self, name: Failpoint) -> None:
        """Do what the setting says for this failpoint, if anything."""
        if self._actions and (action := self._actions.get(name)) is not None:
            action.run(name)


def _read(text: str) -> dict[str, _Action]:
    """Return the actions by failpoint."""
    actions: dict[str, _Action] = {}
    for part in filter(None, text.split(",")):
        name, _, action = part.partition("=")
        if name not in set(Failpoint):
            raise SettingsError(f"{VARIABLE}: unknown failpoint {name!r}; known are {', '.join(Failpoint)}")
        matched = re.fullmatch(r"(kill|error)(?:@([1-9][0-9]*))?", action)
        if matched is None:
            raise SettingsError(f"{VARIABLE}: {part!r} is not {name}=kill, {name}=error or one of them with @N, N >= 1")
        kind, only = matched.groups()
        actions[name] = _Action(kind, None if only is None else int(only))
    return actions


@cache
def of_this_process() -> Failpoints:
    """Return the failpoints of the environment, made once.

    Raises:
        SettingsError: the environment names an unknown failpoint or action.
    """
    return Failpoints(os.environ.get(VARIABLE, ""))


def failpoint(name: Failpoint) -> None:
    """Do what the environment says for this failpoint; normally nothing."""
    of_this_process().reach(name)


# At import: a wrong setting is refused before anything is done.
of_this_process()
