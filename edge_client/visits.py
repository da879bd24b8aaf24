"""A device connects as often as its federation asks: for a visit, or for as long as it runs. No I/O.

If a federator announces a pace (`foltr.core.protocol.paces`), a device connects for visits only. It reads retained
messages, joins, sends what it has, waits for the answers, disconnects, and draws the time of its next visit. It sends
no status, and has no last will. Messages in between it reads at its next visit.

A pace holds while the newest round has the same epoch. A pace stored at an earlier visit is kept until a round says
otherwise; then the device connects again, and stays.
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

# How long a finished visit lasts without a message: announcements may follow a receipt a moment later.
LINGER_S = 0.25
# How long an unfinished visit lasts; the next visit continues. Less than a federator's heartbeat.
PATIENCE_S = 20.0


class Visits:
    """The visits of one device. ``now`` is monotonic seconds.

    Args:
        clock: epoch seconds, by which the next visit is stored.

    Attributes:
        period_s: how often it connects; None: it stays connected.
        is_resting: it is disconnected on purpose.
        n_callers: how many wait for an answer; while there are any the device stays connected.
        next_at: when it connects again, by ``clock``; None before that was drawn.
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
        """Begin to connect, in as many tries as needed."""
        self._heard_at, self._is_reached, self.is_resting = now, False, False

    def begin_session(self) -> None:
        """Reset what belongs to a connection; before it is up, as retained messages may arrive then."""
        self._heard = None

    def note_reached(self, now: float) -> None:
        """Note that the broker was reached."""
        self._heard_at, self._is_reached = now, True

    def note_message(self, now: float) -> None:
        """Note that a message came."""
        self._heard_at = now

    def receive(self, envelope: Envelope) -> None:
        """Take a pace; ignore another federation's. MessageError if it cannot be read."""
        pace = envelope.read(Pace)
        if pace.federation == self._federation:
            self._heard = pace, epoch_and_number(envelope.sequence)[0]

    def follow_pace(self) -> None:
        """Follow the valid pace, or none, once this connection's round and the join's answer have come."""
        participation = self._participation
        if not participation.is_fresh:
            return
        pace, epoch = self._heard or (None, None)
        if pace is not None and epoch == participation.epoch:
            if self.period_s is None:
                log.info("periodic_visits_started", client_id=self._client_id, period_s=pace.period_s)
            self.period_s = pace.period_s
            participation.comes_by = True
        elif self.period_s is not None and participation.joined:
            log.info("periodic_visits_ended", client_id=self._client_id)
            self.period_s = self.next_at = None
            participation.comes_by = participation.rests = False
            self._is_first = True
            self._keep()

    def over_at(self, *, is_done: bool) -> float:
        """Return when this visit ends if nothing arrives before; infinity if the device stays connected.

        Args:
            is_done: nothing waits to be sent, answered or fetched.
        """
        if self.period_s is None or self.n_callers:
            return float("inf")
        # A forgotten client takes no round.
        is_told = self._participation.is_fresh or self._is_forgotten
        return self._heard_at + (LINGER_S if is_done and is_told else PATIENCE_S)

    def end_visit(self) -> None:
        """Rest, and draw the time of the next visit; it is stored, so that a restart does not come sooner."""
        self.is_resting = True
        if self.period_s is None or self._is_forgotten:
            return
        draw = next_pause_s if self._is_reached else retry_pause_s
        if self._is_first:
            draw, self._is_first = first_pause_s, False
        self.next_at = self._clock() + draw(self.period_s, self._rng)
        self._keep()

    def begin_overdue(self) -> None:
        """If the drawn moment has passed meanwhile, draw one soon after the start."""
        now = self._clock()
        if self.next_at is not None and self.next_at < now:
            self.next_at = now + overdue_pause_s(now - self.next_at, self._rng)

    def rest_s(self) -> float:
        """Return how long to rest from now."""
        if self.next_at is None or self.period_s is None:
            return float("inf")
        # A clock that was set back, perhaps since the moment was drawn, must not keep it away.
        if self.next_at > self._clock() + latest_pause_s(self.period_s):
            self.next_at = self._clock() + next_pause_s(self.period_s, self._rng)
            self._keep()
        return self.next_at - self._clock()

    @property
    def resting_until(self) -> datetime | None:
        """When it connects again; None while it is connected, or if it connects only on request."""
        if not self.is_resting or self.next_at is None:
            return None
        return datetime.fromtimestamp(self.next_at, UTC)

    def forget(self) -> None:
        """Make no more than requested connections: the client was forgotten."""
        self._heard, self.next_at, self._is_forgotten = None, None, True

    def _keep(self) -> None:
        if self._store.forgotten:
            return  # it would reveal when the device was online
        try:
            self._store.put_pace(self.period_s, self.next_at)
        except DataError as error:
            log.warning(
                "pace_not_stored", client_id=self._client_id, cause=str(error)
            )  # a restart in between comes sooner
