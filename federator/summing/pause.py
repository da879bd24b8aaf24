"""Puts rounds on hold after one has failed, and while the federator itself cannot check norm proofs.

A failed round has cost each device that sent to it a participation, of which a client has few in its life. The next one
may well fail too: often it is unknown who is at fault, and a helper may be at fault for days. So the next round is
announced only after a pause, ever longer until one ends with a model. A new policy of the operator ends the hold. The
table `foltr.core.protocol.states.AFTERMATH` says which ends of a round count. How rounds ended is stored, so a
restarted federator, or a standby that takes over, waits as long.
"""

import math

import structlog

from foltr.core.protocol.epochs import ends_soon
from foltr.core.protocol.states import AbandonReason
from foltr.federator.round import Round
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.store import FederationStore
from foltr.storage.sum_records import FailedRounds

log = structlog.get_logger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 86_400.0
LONGEST_FOR_TOO_FEW_S = 21_600.0
"""Not a day: the next round would come at the same hour, when devices may be too few again."""


class Pause:
    """How long announcing the open round is on hold. Times are epoch seconds.

    Attributes:
        failed: the failed rounds before the open one, as of the last look.
    """

    def __init__(self, store: FederationStore) -> None:
        self._store = store
        self._looked_back_at: tuple[int, float] | None = None  # the round, and when it was opened
        self._told_end: tuple[int, bool] | None = None  # the policy, and whether it has ended
        self._paused_until = self._until = 0.0
        self.failed: FailedRounds | None = None

    async def find_pause(self, current: Round | None, now: float) -> bool:
        """Find how long the open round is on hold; return whether it is another round than the last time."""
        if current is None or current.terms is None:
            return False
        is_new = self._looked_back_at != _named(current)
        if is_new:
            self._looked_back_at, self._paused_until = (
                _named(current),
                await self._find_pause(current, current.terms, now),
            )
        # Its deadline may have changed since.
        self._until = released_at(self._paused_until, current.closes_at, current.policy.max_time_s)
        if now >= self._until:
            self._paused_until = self._until = 0.0
        elif is_new and self.failed is not None:
            why = {"n_failed": self.failed.n_rounds, "reason": self.failed.reason}
            log.warning("round_held_back", round=current.number, **why, until=self._until)
        return is_new

    async def _find_pause(self, current: Round, terms: SecureTerms, now: float) -> float:
        policy = terms.policy.policy
        if ends_soon(policy, now) and self._told_end != (told := (policy.version, current.is_after_policy)):
            self._told_end = told
            if current.is_after_policy:
                log.warning("policy_ended", round=current.number, policy=policy.version, ends_at=policy.ends_at)
            else:
                log.warning("policy_ends_soon", policy=policy.version, ends_at=policy.ends_at)
        self.failed = failed = await self._store.count_failed_rounds(terms.policy.hash)
        if terms.lacks_verify_key:
            # Updates for it could be in no sum.
            log.warning("verify_key_missing", round=current.number, policy=terms.policy.policy.version)
            return math.inf
        return 0.0 if failed is None else held_until(failed, now)

    def holds(self, now: float) -> bool:
        """Return whether announcing the open round is on hold."""
        return now < self._until

    def wake_at(self, current: Round | None) -> float:
        """When `find_pause` has something to do."""
        if current is None or current.terms is None:
            return math.inf
        if self._looked_back_at != _named(current):
            return -math.inf
        return self._until or math.inf


def _named(current: Round) -> tuple[int, float]:
    """A round's identity: one that nobody was online for begins again under its number."""
    return current.number, current.opened_at


def held_until(failed: FailedRounds, now: float) -> float:
    """Return until when rounds are on hold, in epoch seconds."""
    longest = LONGEST_FOR_TOO_FEW_S if failed.reason is AbandonReason.TOO_FEW_CLIENTS else LONGEST_PAUSE_S
    # Count from now at most: after a clock was set back, an end in the future must not prolong the hold.
    return min(failed.closed_at.timestamp(), now) + min(FIRST_PAUSE_S * 2.0 ** (failed.n_rounds - 1), longest)


def released_at(until: float, closes_at: float, max_time_s: float) -> float:
    """Return when a round of ``max_time_s`` is announced, if rounds are on hold until a moment.

    A round whose time is half over by then stays on hold to its end. Shortly before its deadline devices would come too
    late, or too few would, and each would still spend its participation.
    """
    return closes_at if closes_at - max_time_s / 2 < until < closes_at else until
