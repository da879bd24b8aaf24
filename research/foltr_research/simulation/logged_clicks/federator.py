"""The federator in a replay: the service's rounds (`foltr.federator.round`), with models in memory.

What counts, when a round ends and what a late update weighs are decided by the service's code. So are two of its rules
that are not in a round: an update that a buffer cannot take now is sent again (`foltr.federator.deciding.updates`), and
the updates of a round without a model count no longer (`foltr.federator.deciding.withdrawal`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.mean import staleness_weight
from foltr.core.aggregation.round_aggregation import TooFewUpdatesError
from foltr.core.methods.aggregations import is_plain_mean
from foltr.core.methods.base import Memory
from foltr.core.methods.registry import make_aggregation
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import AbandonReason, Pacing
from foltr.federator.plan import FederationPlan
from foltr.federator.round import Abandon, Record, Reject, Round
from foltr_research.simulation.logged_clicks.devices import GlobalModel, Update

_TRY_AGAIN = (ReceiptCode.LATE, ReceiptCode.ALREADY_CONTRIBUTED)


@dataclass(frozen=True)
class EndedRound:
    """A round that ended. It had at least one update, since one without begins again.

    Attributes:
        staleness: of each update that is part of the new model.
        n_interactions: that these were learned from.
        taken_back: the updates of a round without a model, which count no longer.
    """

    staleness: Sequence[int] = ()
    n_interactions: int = 0
    taken_back: Sequence[Update] = ()

    @property
    def made_model(self) -> bool:
        return not self.taken_back


class ReplayedFederator:
    """Rounds one after the other, from the first model on.

    Args:
        first: (n_weights + n_auxiliary,) the first model.
        seed: of the run, for rules that draw.
        now: when the first round opens, in epoch seconds.
    """

    def __init__(self, plan: FederationPlan, first: NDArray[np.float32], seed: int, now: float) -> None:
        self._plan = plan
        self._seed = seed
        self._memory = Memory()
        self._counted_through: dict[str, int] = {}
        self._taken: dict[str, tuple[Update, int]] = {}
        self._round = Round.open(1, 0, plan.policy, now)
        self.newest = GlobalModel(first, 0, 1)

    @property
    def has_updates(self) -> bool:
        """Whether the open round has an update."""
        return bool(self._taken)

    @property
    def is_full(self) -> bool:
        """Whether the open round takes no further update."""
        return self._round.full

    def decide(self, update: Update, now: float) -> Record | Reject:
        """Decide on an update; one that counts is part of the open round from here on.

        A refusal with the code ``busy`` is none: the same update may count when it is sent again.
        """
        client_id = update.header.client_id
        counted_through = self._counted_through.get(client_id, 0)
        decision = self._round.decide(update.header, now, counted_through=counted_through)
        if isinstance(decision, Record):
            self._counted_through[client_id] = update.header.through
            self._taken[client_id] = (update, decision.staleness)
        elif self._plan.policy.pacing is Pacing.BUFFERED and decision.code in _TRY_AGAIN:
            return Reject(ReceiptCode.BUSY, decision.detail)
        return decision

    def wake_at(self) -> float:
        """When a round may end without a message."""
        return self._round.wake_at()

    def rest_until(self, time: float) -> None:
        """Let a round without updates begin again at each of its deadlines before a time, at once.

        A log may be silent for years, and a round may last a second.
        """
        if self._taken:
            return
        lasts = self._plan.policy.max_time_s
        n_more = math.ceil((time - self._round.closes_at) / lasts) - 1
        if n_more >= 0:
            self._round.restart(self._round.closes_at + n_more * lasts)

    def end_due(self, now: float) -> EndedRound | None:
        """End the round if that is due, and open the next one. None while it goes on.

        A round without updates begins again at its deadline, as in a federation whose devices are all away.
        """
        step = self._round.next_step(now)
        if step is None:
            return None
        if isinstance(step, Abandon):
            if step.reason is AbandonReason.NO_UPDATES:
                self._round.restart(now)
                return None
            return self._end_without_model(step.reason, now)
        self._round.stop_collecting()
        try:
            values = self._next_model()
        except TooFewUpdatesError:
            return self._end_without_model(AbandonReason.TOO_FEW_FOR_RULE, now)
        self._round.complete()
        ended = EndedRound(
            [staleness for _, staleness in self._taken.values()],
            sum(update.n_interactions for update, _ in self._taken.values()),
        )
        self._open_next(values, self.newest.version + 1, now)
        return ended

    def _end_without_model(self, reason: AbandonReason, now: float) -> EndedRound:
        """Move back the watermarks of all who contributed, and go on from the same model."""
        self._round.abandon(reason)
        taken_back = [update for update, _ in self._taken.values()]
        for update in taken_back:
            self._counted_through[update.header.client_id] = update.header.after
        self._open_next(self.newest.values, self.newest.version, now)
        return EndedRound(taken_back=taken_back)

    def _open_next(self, values: NDArray[np.float32], version: int, now: float) -> None:
        self._taken = {}
        self._round = Round.open(self._round.number + 1, version, self._plan.policy, now)
        self.newest = GlobalModel(values, version, self._round.number)

    def _next_model(self) -> NDArray[np.float32]:
        """Return the next model, from the updates in the service's order, that of their clients' names.

        Raises:
            TooFewUpdatesError: fewer than the rule needs, and its fallback is to abandon the round.
            DataError: the model does not fit float32.
        """
        policy, rng = self._plan.policy, None
        if not is_plain_mean(policy.rule):
            rng = np.random.default_rng(np.random.SeedSequence([self._seed, self._round.number, *b"aggregation"]))
        aggregation = make_aggregation(
            self._plan.training, self._plan.ranker, policy.rule, n_expected=len(self._taken), rng=rng
        )
        for client_id in sorted(self._taken):
            update, staleness = self._taken[client_id]
            weight = staleness_weight(staleness, policy.staleness_exponent)
            aggregation.add(update.body, update.n_interactions, weight, client_id)
        following = aggregation.finish(self.newest.values, self._memory)
        self._memory = following.memory
        return following.weights
