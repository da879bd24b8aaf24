"""A leader shares its federation with ingest workers: they take updates while it waits, and only it decides.

Theory of operation. ``ingestion.takes_updates`` says who may store updates. In one transaction a leader takes that
right back. It then reads what workers have stored meanwhile, and decides and stores like a federator without workers.
In another transaction it lets workers go on. So it decides by stored state alone: no unread update gets in between, and
no watermark moves. While workers have the right it only tracks who is connected, which no update depends on and needs
no answer. Now and then it looks, without a lock, whether the round has enough.

An update counts by its arrival. So a round does not end, at its deadline or after its least time, before every worker
has reported that everything which reached it earlier is stored, or has been silent for a while.
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
from foltr.storage.ingest_records import WorkerResults

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 0.05
"""How often a leader looks at what workers have stored, seconds."""
WORKERS_LATE_S: Final = 2.0
"""How long a round that may end waits for silent workers, seconds."""
# Workers get as much time as the leader took, and at least this, before it takes updates back.
_LEAST_TURN_S: Final = 0.02
_LONGEST_REST_S: Final = 0.5
_LEAST_LOOK_S: Final = 0.005


class WorkerSharing:
    """The right to take updates, which the leader gives away and takes back. Only its single writer calls it.

    Attributes:
        is_shared: workers take updates.
        n_workers: the number of workers at the last look.
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

    async def start(self, state: FederationState) -> None:
        """Let workers take updates, if a round does."""
        current = state.round
        if self.is_shared or current is None or current.state is not RoundState.COLLECTING:
            return
        # Number notices first: later decisions get higher numbers.
        self._receipts.number_notices()
        await self._store.hand_over(self._numbers.newest, current.n_clients, evaluation=self._evaluation)
        self.is_shared, self._shared_at = True, self._clock.now()

    async def stop(self, state: FederationState) -> None:
        """Stop workers from taking updates, and load all that they have stored."""
        if not self.is_shared:
            return
        left = await self._store.take_back()
        self.is_shared, self._taken_at = False, self._clock.now()
        self._numbers.continue_above(left.n_answers)
        current = state.round
        if current is not None and left.n_collected != len(current.contributions):
            await self._load_collected(state, current, left)

    async def stop_at(self, state: FederationState, now: float) -> float:
        """Take updates back in any case; return the moment by which to judge the round."""
        moment = await self.check_workers(state, now)
        await self.stop(state)
        return moment

    async def _load_collected(self, state: FederationState, current: Round, left: WorkerResults) -> None:
        """Load what workers have stored since: they remove nothing, so known updates still count."""
        rows = await self._store.list_collected(current.number, left.clients)
        n_known = len(current.contributions) + len(rows)
        if n_known != left.n_collected:
            raise ProtocolViolationError(
                f"round {current.number} of {state.federation!r} has {n_known} updates; workers counted "
                f"{left.n_collected}"
            )
        for row in rows:
            state.members.move_watermark(row.client_id, row.covers_through)
        current.add_stored(
            {row.client_id: RecordedUpdate(row.update_id, row.covers_after, row.cohort, row.position) for row in rows}
        )

    async def wait(self, intake: BoundedIntake, current: Round | None, wake_at: float) -> None:
        """Wait until there may be something to do, at ``wake_at`` at the latest; workers get their time."""
        now = self._clock.now()
        if not self.is_shared:
            await intake.wait(max(0.0, wake_at - now) if current is None else 0.0)
            return
        rest_s = self._shared_at + max(_LEAST_TURN_S, min(self._shared_at - self._taken_at, _LONGEST_REST_S)) - now
        if rest_s > 0:
            await asyncio.sleep(rest_s)  # what arrives meanwhile is served together
        await intake.wait(max(_LEAST_LOOK_S, min(wake_at - now, LOOK_EVERY_S) - max(0.0, rest_s)))

    async def check_workers(self, state: FederationState, now: float) -> float:
        """Look at what workers have stored; return the moment by which to judge the round.

        That is ``now``, or just before the round may end while a worker may have updates from before that.
        """
        current = state.round
        if not self.is_shared or current is None:
            return now
        workers = await self._store.look_at_workers()
        if workers is None or workers.takes_updates is not TakesUpdates.WORKERS:
            raise ProtocolViolationError(
                f"no process takes updates of {state.federation!r}, and its leader did not say so"
            )
        self._note(workers.n_workers)
        self._clock_watch.compare(workers.now)
        current.n_others = workers.n_collected - len(current.contributions)
        # With a quorum a round without a least time may end at any moment, so do not wait.
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
            log.warning(
                "ingest_workers_missing",
                hint="updates wait until a worker is started: foltr federator run --role ingest",
            )
        elif n_workers and self.n_workers == 0:
            log.info("ingest_workers_recovered", n_workers=n_workers)
        self.n_workers = n_workers
