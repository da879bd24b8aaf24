"""Rounds are held back after most norm proofs of one have failed, and where the federator itself can check none.

A round in which most failed has cost each of its devices a participation, and those are numbered for life. Who lies is
not known, and the next round may well end likewise. So devices hear of it only after a pause, ever longer until one
ends with a model, or the operator makes a policy with other helpers, for which nothing is held back. How many have
ended so is stored, and a federator that starts again waits as long.
"""

import math

import structlog

from federator.round import Round
from federator.secure_terms import SecureTerms
from federator.summing.store import SumStore
from storage.sum_records import Disagreements

log = structlog.get_logger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 86_400.0


class Pause:
    """For how long devices do not hear of the open round. Times are epoch seconds."""

    def __init__(self, sums: SumStore) -> None:
        self._sums = sums
        self._looked_back_at = 0
        self._until = 0.0

    async def look_back(self, current: Round | None, now: float) -> None:
        """Take up for how long the open round is held back: by how those before it have ended, or for good."""
        if current is not None and current.terms is not None and self._looked_back_at != current.number:
            self._looked_back_at, self._until = current.number, await self._held_until(current, current.terms, now)
        if now >= self._until:
            self._until = 0.0

    async def _held_until(self, current: Round, terms: SecureTerms, now: float) -> float:
        if terms.lacks_verify_key:
            # Whatever devices sent to it would be in no sum.
            log.warning("verify_key_lost", round=current.number, policy=terms.policy.policy.version)
            return math.inf
        ended = await self._sums.count_disagreements(terms.policy.hash)
        until = let_go_at(held_until(ended, now), current.closes_at, current.policy.max_time_s)
        if now < until:
            log.warning("round_held_back", round=current.number, n_disagreed=ended.n_rounds, until=until)
        return until

    def hold(self) -> None:
        """Hold back all rounds until one is looked back from."""
        self._until = math.inf

    def holds(self, now: float) -> bool:
        """Whether devices are not to hear of the open round yet."""
        return now < self._until

    def wake_at(self, current: Round | None) -> float:
        """When `look_back` has something to do."""
        if current is None or current.terms is None:
            return math.inf
        if self._looked_back_at != current.number:
            return -math.inf
        return self._until or math.inf


def held_until(ended: Disagreements, now: float) -> float:
    """Return until when rounds are held back, in epoch seconds; 0 where none ended so since the last model."""
    if ended.closed_at is None:
        return 0.0
    # From now at most: where a clock was set back, a round that ended in the future holds back nobody for longer.
    return min(ended.closed_at.timestamp(), now) + min(FIRST_PAUSE_S * 2.0 ** (ended.n_rounds - 1), LONGEST_PAUSE_S)


def let_go_at(until: float, closes_at: float, max_time_s: float) -> float:
    """Return when devices hear of a round, which takes ``max_time_s``, while rounds are held back until a moment.

    A round whose time is half over then is held back to its end. Devices that hear of one shortly before its deadline
    come too late, or too few do: each has spent its participation all the same.
    """
    return closes_at if closes_at - max_time_s / 2 < until < closes_at else until
