"""How long a link waits before it reconnects, and when to log that. No I/O."""

import random
from dataclasses import replace

from foltr.broker.failures import CONNECTS_AGAIN, ONE_IDENTITY_EACH, FailureCause, FailureKind

FIRST_S = 0.25
LIMIT_S = 30.0
# After another process took over the session. Each return disconnects that one, so returns get ever rarer.
TAKEN_OVER_FIRST_S = 30.0
TAKEN_OVER_LIMIT_S = 300.0
# A takeover that is only suspected may have another cause, so it keeps a device away for less time.
SUSPECTED_LIMIT_S = 60.0
# A network that ends a few connections in a row is no reason to stay away, only to mention another process.
_N_SUSPICIOUS = 8
_N_WORTH_MENTION = 3
_STEADY_S = 10.0
_DOUBLINGS_KEPT = 2  # a pause of up to 2 s after a connection that did not last
# Longer than the first pause of a disconnected process; shorter than a keepalive needs to fail.
_SOON_S = 40.0
ENDED_SOON = "the broker ends each connection soon after it was made, as if another process connects as this user"


class Backoff:
    """The outages of one link. ``now`` is monotonic seconds.

    Attributes:
        down_since: when the outage began.
    """

    def __init__(self, now: float) -> None:
        self.down_since = now
        self._cause = FailureCause(FailureKind.UNREACHABLE, "")
        self._n_failures = self._n_doublings = self._n_taken_over = self._n_ended_soon = 0
        self._limit_s = SUSPECTED_LIMIT_S

    @property
    def suspects_another(self) -> bool:
        """Whether the last connection ended as if another process had taken over the session."""
        return self._n_ended_soon > 0 or self._n_taken_over > 0

    def shares_session(self, lasts_s: float) -> bool:
        """Whether another process seems to use the session, though too few connections ended to stay away.

        Args:
            lasts_s: how long the present connection has lasted; 0 without one.
        """
        if self._n_taken_over:
            return lasts_s <= 2 * self._limit_s
        return self._n_ended_soon >= _N_WORTH_MENTION and lasts_s < _SOON_S

    def note(self, cause: FailureCause, now: float, up_since: float | None, *, in_order: bool) -> FailureCause:
        """Note why a connection ended or failed; return the cause as it looks in view of earlier ones.

        Args:
            up_since: when it was made; None if it was not.
            in_order: the other side closed it like a broker. A failing network resets it or goes silent.
        """
        if up_since is not None:
            self._note_end(now, now - up_since)
        if up_since is None or not in_order:
            self._n_ended_soon = 0  # broker or network is down, which explains the earlier ends too
        self._n_failures += 1
        self._n_doublings += 1
        self._cause = self._judge(cause, was_up=up_since is not None)
        return self._cause

    def _note_end(self, now: float, lasted_s: float) -> None:
        self._n_ended_soon = self._n_ended_soon + 1 if lasted_s < _SOON_S else 0
        if lasted_s > _STEADY_S:
            self._n_failures = self._n_doublings = 0
        if lasted_s > 2 * self._limit_s:  # longer than another process would have stayed away
            self._n_taken_over = 0
        if not self._n_taken_over:  # else the same outage goes on: another process wants the session too
            self.down_since = now
        # Restarting from the first pause would be wrong, since the broker may end every new connection at once. So
        # would keeping the pause: a few short outages would add up to half a minute.
        self._n_doublings = min(self._n_doublings, _DOUBLINGS_KEPT)

    def _judge(self, cause: FailureCause, *, was_up: bool) -> FailureCause:
        """Count takeovers: reported by the broker, or suspected because every connection ends early."""
        if cause.failure_kind is FailureKind.TAKEN_OVER:
            self._limit_s = TAKEN_OVER_LIMIT_S
        elif was_up and (self._n_taken_over or self._n_ended_soon >= _N_SUSPICIOUS):
            cause = FailureCause(FailureKind.TAKEN_OVER, f"{ENDED_SOON} ({cause.in_words})", ONE_IDENTITY_EACH)
        elif was_up and cause.next_step is None:
            # The broker was up a moment ago. The next attempt, soon, shows whether it still is.
            cause = replace(cause, next_step=CONNECTS_AGAIN)
        if cause.failure_kind is FailureKind.TAKEN_OVER:
            self._n_taken_over += 1
        return cause

    @property
    def is_worth_a_line(self) -> bool:
        """Whether to log the last noted cause: the first time, and now and then."""
        n = self._n_taken_over if self._cause.failure_kind is FailureKind.TAKEN_OVER else self._n_failures
        return n in (1, 5) or n % 20 == 0

    def pause_s(self) -> float:
        """Draw how long to wait."""
        if self._cause.failure_kind is FailureKind.TAKEN_OVER:
            longest = min(self._limit_s, TAKEN_OVER_FIRST_S * 2.0 ** min(self._n_taken_over - 1, 16))
            return random.uniform(0.5, 1) * longest  # noqa: S311
        # Full jitter: after a broker restart a fleet must not come back in step.
        return random.uniform(0.1, 1) * min(LIMIT_S, FIRST_S * 2.0 ** min(self._n_doublings, 16))  # noqa: S311
