"""A bounded buffer between the network and the code that commits.

It never blocks the network and never grows past its bounds; what does not fit is refused, and the caller tells the
sender. A device resends until it has a receipt, so a refused message is late, not lost.

Three rules keep one sender from using it up:

* Senders are served in turn, one message each: a sender's first message waits one rotation, however much others send.
* Besides its fixed bounds, a sender may hold no more than is still free. While messages are taken, flooding senders
  settle at holding as much as is left over. So as long as they are fewer than the places, a sender with nothing waiting
  finds room. (The dynamic thresholds of shared-memory switches, Choudhury and Hahne 1998, with alpha = 1. Equal shares,
  ``max_messages // senders``, leave a newcomer nothing.)
* A token bucket per sender. Only an accepted message costs a token.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from foltr.broker.link import InboundMessage

# A forgotten sender comes back with a full bucket, which most idle ones have anyway: at the default limits it refills
# in 8 s.
MAX_IDLE_SENDERS = 10_000
MAX_REFUSED_SENDERS = 500
RETRY_WHEN_FULL_S = 2.0
MIN_RETRY_S = 1.0
_N_STRANGERS = 64
# Not every event loop takes an infinite timer.
_MAX_WAIT_S = 24 * 3600.0


class Arrival(NamedTuple):
    """An accepted message; ``at`` is in the clock's seconds."""

    message: InboundMessage
    at: float
    sender: str


@dataclass(frozen=True)
class IntakeLimits:
    """Limits on what may wait, in all and per sender, and on how fast one sender may send.

    A message counts with the bytes of its payload and its topic. One above ``max_bytes_per_sender`` never fits.

    Attributes:
        max_bytes_at_once: of messages that are taken together; a larger message is taken alone. Everything built on
            their way into the database, clear and encrypted, is in memory at once.
    """

    max_messages: int = 20_000
    max_bytes: int = 64 * 1024 * 1024
    max_waiting_per_sender: int = 256
    max_bytes_per_sender: int = 8 * 1024 * 1024
    rate_per_s: float = 50.0  # messages per second a sender's bucket refills by
    burst: int = 400  # messages a full bucket holds
    max_bytes_at_once: int = 4 * 1024 * 1024


DEFAULT_LIMITS = IntakeLimits()


class RefusalCause(StrEnum):
    """The bound by which a message was refused."""

    FULL = "full"
    SENDER_FULL = "sender_full"
    RATE = "rate"


@dataclass(frozen=True)
class Refusal:
    """Why a message was refused, and when to try again."""

    cause: RefusalCause
    retry_after_s: float


@dataclass(slots=True)
class RefusedSender:
    """The refusals of one sender since the last report: the latest cause, the longest wait."""

    sender: str
    n_messages: int
    cause: RefusalCause
    retry_after_s: float


class BoundedIntake:
    """Inbound messages, bounded in count and bytes, taken fairly.

    Args:
        clock: seconds; must not step back.
        sender_of: whose limits a message counts against; map names that anybody can invent to one sender.
        is_slow: whether a message takes so long to serve that few should be taken at once.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        sender_of: Callable[[InboundMessage], str],
        limits: IntakeLimits = DEFAULT_LIMITS,
        is_slow: Callable[[InboundMessage], bool] = lambda _: False,
    ) -> None:
        self._clock = clock
        self._sender_of = sender_of
        self._limits = limits
        self._is_slow = is_slow
        self._waiting: OrderedDict[int, Arrival] = OrderedDict()  # by number, in order of arrival
        self._n_bytes = 0
        self._n_arrived = 0
        self._rotation: OrderedDict[str, _Sender] = OrderedDict()  # who has something waiting, next turn first
        self._idle: OrderedDict[str, _Sender] = OrderedDict()  # who has nothing waiting, longest idle first
        self._refused: dict[str, RefusedSender] = {}
        self._n_refused = 0
        self.arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, message: InboundMessage) -> Refusal | None:
        """Queue ``message``, or return why it does not fit and change nothing."""
        limits, name, size = self._limits, self._sender_of(message), _size(message)
        free, free_bytes = limits.max_messages - len(self._waiting), limits.max_bytes - self._n_bytes
        if free < 1 or free_bytes < size:
            return self._refuse(name, _FULL)
        now = self._clock()
        sender = self._rotation.get(name) or self._idle.get(name) or _Sender(name, limits.burst, now)
        if len(sender.numbers) + 1 > min(limits.max_waiting_per_sender, free) or sender.n_bytes + size > min(
            limits.max_bytes_per_sender, free_bytes
        ):
            return self._refuse(name, _SENDER_FULL)
        sender.tokens = min(limits.burst, sender.tokens + (now - sender.refilled_at) * limits.rate_per_s)
        sender.refilled_at = now
        if sender.tokens < 1:
            retry_after_s = (1 - sender.tokens) / limits.rate_per_s
            return self._refuse(
                name, _RATE if retry_after_s <= MIN_RETRY_S else Refusal(RefusalCause.RATE, retry_after_s)
            )
        sender.tokens -= 1
        self._append(sender, message, size, now)
        return None

    def take(self, limit: int, before: float | None = None, most_slow: int | None = None) -> list[Arrival]:
        """Take up to ``limit`` messages, possibly none: a sender's own in order of arrival, the senders in turn.

        Returns fewer if they are large (`IntakeLimits.max_bytes_at_once`).

        Args:
            before: take only messages that arrived by then.
            most_slow: take at most this many slow ones; a sender passed over for that keeps its turn.
        """
        until = math.inf if before is None else before
        n_slow = n_bytes = 0
        arrivals: list[Arrival] = []
        passed_over: list[_Sender] = []
        while len(arrivals) < limit and self._rotation and (oldest := self.oldest()) is not None and oldest <= until:
            name, sender = self._rotation.popitem(last=False)
            first = self._waiting[sender.numbers[0]]
            is_slow = most_slow is not None and self._is_slow(first.message)
            if first.at > until or (is_slow and n_slow == most_slow):
                passed_over.append(sender)
                continue
            n_bytes += _size(first.message)
            if arrivals and n_bytes > self._limits.max_bytes_at_once:
                passed_over.append(sender)
                break
            n_slow += is_slow
            arrivals.append(self._pop_first(sender))
            if sender.numbers:
                self._rotation[name] = sender
            else:
                self._rest(sender)
        for sender in reversed(passed_over):
            self._rotation[sender.name] = sender
            self._rotation.move_to_end(sender.name, last=False)
        if not self._waiting:
            self.arrived.clear()
        return arrivals

    def oldest(self) -> float | None:
        """Return when the message that waits longest arrived."""
        for arrival in self._waiting.values():
            return arrival.at
        return None

    def refused(self) -> tuple[list[RefusedSender], int]:
        """Return the refusals since the last call: by sender, the first 500 of them, and the number of messages."""
        senders, n_messages = list(self._refused.values()), self._n_refused
        self._refused.clear()
        self._n_refused = 0
        return senders, n_messages

    def wake(self) -> None:
        """End a running `wait` without a message."""
        self.arrived.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when a message waits, or after ``timeout_s``, a day at most."""
        try:
            async with asyncio.timeout(min(max(0.0, timeout_s), _MAX_WAIT_S)):
                await self.arrived.wait()
        except TimeoutError:
            pass

    def _append(self, sender: "_Sender", message: InboundMessage, size: int, now: float) -> None:
        if not sender.numbers:
            self._idle.pop(sender.name, None)
            self._rotation[sender.name] = sender
        self._n_arrived += 1
        # Share the sender's own string: 20,000 equal names would be most of the memory of small messages.
        self._waiting[self._n_arrived] = Arrival(message, now, sender.name)
        sender.numbers.append(self._n_arrived)
        sender.n_bytes += size
        self._n_bytes += size
        self.arrived.set()

    def _pop_first(self, sender: "_Sender") -> Arrival:
        arrival = self._waiting.pop(sender.numbers.popleft())
        size = _size(arrival.message)
        sender.n_bytes -= size
        self._n_bytes -= size
        return arrival

    def _rest(self, sender: "_Sender") -> None:
        self._idle[sender.name] = sender
        if len(self._idle) > MAX_IDLE_SENDERS:
            self._idle.popitem(last=False)

    def _refuse(self, name: str, refusal: Refusal) -> Refusal:
        self._n_refused += 1
        so_far = self._refused.get(name)
        if so_far is not None:
            so_far.n_messages += 1
            so_far.cause = refusal.cause
            so_far.retry_after_s = max(so_far.retry_after_s, refusal.retry_after_s)
        elif len(self._refused) < MAX_REFUSED_SENDERS:
            self._refused[name] = RefusedSender(name, 1, refusal.cause, refusal.retry_after_s)
        return refusal


@dataclass(slots=True)
class _Sender:
    """A sender with messages waiting, and a token bucket."""

    name: str
    tokens: float
    refilled_at: float
    numbers: deque[int] = field(default_factory=deque)
    n_bytes: int = 0


_FULL = Refusal(RefusalCause.FULL, RETRY_WHEN_FULL_S)
_SENDER_FULL = Refusal(RefusalCause.SENDER_FULL, RETRY_WHEN_FULL_S)
_RATE = Refusal(RefusalCause.RATE, MIN_RETRY_S)


def stranger(name: str) -> str:
    """Return the sender to count an unknown client's messages against: one of 64, however many names are invented."""
    return f"?{hash(name) % _N_STRANGERS}"  # no client's name begins so: none shares its place with strangers


def _size(message: InboundMessage) -> int:
    return len(message.payload) + len(message.topic)
