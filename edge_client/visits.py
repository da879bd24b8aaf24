"""A device connects as often as its federation asks: for a visit, or for as long as it runs. No I/O.

If a federator announces a pace (`foltr.core.protocol.paces`), a device is connected for a visit only: it reads what is
retained, joins, sends what it has, waits for the answers, disconnects, and draws when it comes again. It sends no
status, and has no last will. What is said in between it hears at its next visit.

A pace holds as long as the newest round was announced under the same epoch. One that was stored at an earlier visit is
kept until a round says otherwise; then the device connects again, and stays.
"""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

from foltr.core.errors import DataError
from foltr.core.logs import get_logger
from foltr.core.protocol.codec import Envelope
from foltr.core.protocol.paces import (
    Pace,
    first_pause_s,
    latest_pause_s,
    next_pause_s,
    overdue_pause_s,
    retry_pause_s,
)
from foltr.core.protocol.signing import epoch_and_number
from foltr.edge_client.participation import Participation
from foltr.edge_client.store.store import DeviceStore

log = get_logger(__name__)

# So long without a message a visit lasts when all is done: what is announced with a receipt comes a moment later.
LINGER_S = 0.25
# And so long when something is not: it is taken up at the next visit. Less than a federator's heartbeat.
PATIENCE_S = 20.0


class Visits:
    """The visits of one device. ``now`` is monotonic seconds.

    Args:
        clock: seconds since the epoch, by which the next visit is remembered.

    Attributes:
        period_s: how often it comes; None: it stays connected.
        is_resting: it is not connected, on purpose.
        n_callers: so many wait for an answer; as long as there are any the device stays connected.
        next_at: when it comes again, by ``clock``; None before that was drawn.
    """

    def __init__(
        self,
        federation: str,
        client_id: str,
        store: DeviceStore,
        participation: Participation,
        rng: random.Random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._federation = federation
        self._client_id = client_id
        self._store = store
        self._participation = participation
        self._rng = rng
        self._clock = clock
        self._heard: tuple[Pace, int] | None = None  # with its epoch, over this connection
        self._heard_at = 0.0
        self._is_reached = False
        self.n_callers = 0
        self._is_first = True
        self._is_forgotten = False
        self.is_resting = False
        self.period_s: float | None = None
        self.next_at: float | None = None
        kept = None if store.forgotten else store.pace()
        if kept is not None:
            self.period_s, self.next_at = kept
            self._is_first, participation.comes_by = False, True

    def begin_visit(self, now: float) -> None:
        """Begin to connect, as often as that takes."""
        self._heard_at, self._is_reached, self.is_resting = now, False, False

    def begin_session(self) -> None:
        """Know nothing of this connection's: before it stands, what is retained may come."""
        self._heard = None

    def note_reached(self, now: float) -> None:
        """Note that the broker was reached."""
        self._heard_at, self._is_reached = now, True

    def hear(self, now: float) -> None:
        """Note that a message came, whatever it says."""
        self._heard_at = now

    def receive(self, envelope: Envelope) -> None:
        """Take a pace; another federation's is passed over. MessageError if it cannot be read."""
        pace = envelope.read(Pace)
        if pace.federation == self._federation:
            self._heard = pace, epoch_and_number(envelope.sequence)[0]

    def look(self) -> None:
        """Follow the pace that holds, or none, once this connection's round and the join's answer have come."""
        participation = self._participation
        if not participation.is_fresh:
            return
        pace, epoch = self._heard or (None, None)
        if pace is not None and epoch == participation.epoch:
            if self.period_s is None:
                log.info("visits_started", client_id=self._client_id, period_s=pace.period_s)
            self.period_s = pace.period_s
            participation.comes_by = True
        elif self.period_s is not None and participation.joined:
            log.info("visits_ended", client_id=self._client_id)
            self.period_s = self.next_at = None
            participation.comes_by = participation.rests = False
            self._is_first = True
            self._keep()

    def over_at(self, *, is_done: bool) -> float:
        """Return when this visit is over if nothing arrives before; infinity if the device stays connected.

        Args:
            is_done: nothing waits to be sent, answered or fetched.
        """
        if self.period_s is None or self.n_callers:
            return float("inf")
        # Who was forgotten takes no round.
        is_told = self._participation.is_fresh or self._is_forgotten
        return self._heard_at + (LINGER_S if is_done and is_told else PATIENCE_S)

    def end_visit(self) -> None:
        """Rest, and draw when to come again; it is stored, so that a start in between does not come sooner."""
        self.is_resting = True
        if self.period_s is None or self._is_forgotten:
            return
        draw = next_pause_s if self._is_reached else retry_pause_s
        if self._is_first:
            draw, self._is_first = first_pause_s, False
        self.next_at = self._clock() + draw(self.period_s, self._rng)
        self._keep()

    def begin_overdue(self) -> None:
        """Draw a moment soon after the start, where the one that was drawn has passed meanwhile."""
        now = self._clock()
        if self.next_at is not None and self.next_at < now:
            self.next_at = now + overdue_pause_s(now - self.next_at, self._rng)

    def rest_s(self) -> float:
        """Return how long to rest still."""
        if self.next_at is None or self.period_s is None:
            return float("inf")
        # A clock that was set back, perhaps since the moment was drawn, must not keep it away.
        if self.next_at > self._clock() + latest_pause_s(self.period_s):
            self.next_at = self._clock() + next_pause_s(self.period_s, self._rng)
            self._keep()
        return self.next_at - self._clock()

    @property
    def resting_until(self) -> datetime | None:
        """When it comes again; None while it is connected, or comes only if it is called."""
        if not self.is_resting or self.next_at is None:
            return None
        return datetime.fromtimestamp(self.next_at, UTC)

    def forget(self) -> None:
        """Come no more unless called: the client was forgotten."""
        self._heard, self.next_at, self._is_forgotten = None, None, True

    def _keep(self) -> None:
        if self._store.forgotten:
            return  # it says when the device was there
        try:
            self._store.put_pace(self.period_s, self.next_at)
        except DataError as error:
            log.warning(
                "pace_not_stored", client_id=self._client_id, cause=str(error)
            )  # a start in between comes sooner
