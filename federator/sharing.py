"""A leader shares its federation with ingest workers: they take updates while it waits, and it decides alone.

Theory of operation. ``ingestion.takes_updates`` says who may store updates. A leader takes that right back in one
transaction, reads what workers have stored meanwhile, decides and stores as a federator without workers does, and lets
workers go on in another one. So all that a leader decides by is what is stored: no update gets in between that it has
not read, and no watermark moves. While workers have the right it decides nothing but who is connected, which no update
goes by and nobody is answered; and it looks now and then, without a lock, whether the round has enough.

An update counts by when it arrived. So a round does not end, at its deadline or after its least time, before every
worker has said that all which reached it before that is stored, or has been silent for a while.
"""

import asyncio
import math
from typing import Final

import structlog

from foltr.broker.buffer import BoundedIntake
from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.states import RoundState, TakesUpdates
from foltr.federator.clock import Clock, ClockWatch
from foltr.federator.deciding.state import FederationState
from foltr.federator.publishing.announcements import ReceiptSender
from foltr.federator.publishing.answer_numbers import AnswerNumbers
from foltr.federator.round import RecordedUpdate, Round
from foltr.federator.store import FederationStore
from foltr.storage.ingest_records import TakenBack

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 0.05
"""How often a leader looks at what workers have stored."""
WORKERS_LATE_S: Final = 2.0
"""So long after it may end a round waits for workers that say nothing."""
# Workers have as much time as the leader had, and at least so much, before it takes updates back again.
_LEAST_TURN_S: Final = 0.02
_LONGEST_REST_S: Final = 0.5
_LEAST_LOOK_S: Final = 0.005


class Sharing:
    """The right to take updates, as the leader gives it away and takes it back. Only its single writer calls it.

    Attributes:
        is_shared: workers take updates.
        n_workers: how many there were when it looked last.
    """

    def __init__(
        self, store: FederationStore, clock: Clock, receipts: ReceiptSender, numbers: AnswerNumbers, *, evaluation: bool
    ) -> None:
        self._store = store
        self._clock = clock
        self._clock_watch = ClockWatch(clock)
        self._receipts = receipts
        self._numbers = numbers
        self._evaluation = evaluation
        self.is_shared = False
        self._taken_at = self._shared_at = -math.inf
        self.n_workers: int | None = None

    def begin(self, epoch: int) -> None:
        """Answer devices under the claim ``epoch``, with which no worker takes updates."""
        self._numbers.begin(epoch)
        self.is_shared = False

    async def hand_over(self, state: FederationState) -> None:
        """Let workers take updates, if a round does."""
        current = state.round
        if self.is_shared or current is None or current.state is not RoundState.COLLECTING:
            return
        # Numbered by now: what is decided later has a higher one.
        self._receipts.number_notices()
        await self._store.hand_over(self._numbers.newest, current.n_clients, evaluation=self._evaluation)
        self.is_shared, self._shared_at = True, self._clock.now()

    async def take_back(self, state: FederationState) -> None:
        """Have workers take no update, and know all that they have stored."""
        if not self.is_shared:
            return
        left = await self._store.take_back()
        self.is_shared, self._taken_at = False, self._clock.now()
        self._numbers.go_on(left.n_answers)
        current = state.round
        if current is not None and left.n_collected != len(current.contributions):
            await self._know(state, current, left)

    async def take_back_at(self, state: FederationState, now: float) -> float:
        """Take updates back whatever there is to do; returns the moment that the round may be judged by."""
        moment = await self.look(state, now)
        await self.take_back(state)
        return moment

    async def _know(self, state: FederationState, current: Round, left: TakenBack) -> None:
        """Read what workers have stored since: they take nothing away, so what was known counts still."""
        rows = await self._store.list_collected(current.number, left.clients)
        n_known = len(current.contributions) + len(rows)
        if n_known != left.n_collected:
            raise ProtocolViolationError(
                f"round {current.number} of {state.federation!r} has {n_known} updates; workers counted "
                f"{left.n_collected}"
            )
        for row in rows:
            state.members.move_watermark(row.client_id, row.covers_through)
        current.know(
            {row.client_id: RecordedUpdate(row.update_id, row.covers_after, row.cohort, row.position) for row in rows}
        )

    async def wait(self, intake: BoundedIntake, current: Round | None, wake_at: float) -> None:
        """Wait until there may be something to do, at ``wake_at`` if nothing arrives; workers have their time."""
        now = self._clock.now()
        if not self.is_shared:
            await intake.wait(max(0.0, wake_at - now) if current is None else 0.0)
            return
        rest_s = self._shared_at + max(_LEAST_TURN_S, min(self._shared_at - self._taken_at, _LONGEST_REST_S)) - now
        if rest_s > 0:
            await asyncio.sleep(rest_s)  # what arrives meanwhile is served together
        await intake.wait(max(_LEAST_LOOK_S, min(wake_at - now, LOOK_EVERY_S) - max(0.0, rest_s)))

    async def look(self, state: FederationState, now: float) -> float:
        """See what workers have stored; returns the moment that the round may be judged by.

        That is ``now``, or just before the round may end while a worker may have what arrived before that.
        """
        current = state.round
        if not self.is_shared or current is None:
            return now
        workers = await self._store.look_at_workers()
        if workers is None or workers.takes_updates is not TakesUpdates.WORKERS:
            raise ProtocolViolationError(f"nobody takes updates of {state.federation!r}, and its leader did not say so")
        self._note(workers.n_workers)
        self._clock_watch.compare(workers.now)
        current.n_others = workers.n_collected - len(current.contributions)
        # With a quorum a round without a least time may end at any moment: none is worth waiting for.
        ends_at = current.closes_at if current.policy.min_time_s == 0 else current.wake_at()
        is_over = now >= ends_at and not current.full
        if not is_over or now >= ends_at + WORKERS_LATE_S:
            return now
        through = workers.arrived_before
        if through is None or through.timestamp() >= ends_at:
            return now
        return math.nextafter(ends_at, -math.inf)

    def _note(self, n_workers: int) -> None:
        if n_workers == 0 and self.n_workers != 0:
            log.warning("no_ingest_worker", hint="updates wait until one is started: foltr federator run --role ingest")
        elif n_workers and self.n_workers == 0:
            log.info("ingest_workers_back", n_workers=n_workers)
        self.n_workers = n_workers
