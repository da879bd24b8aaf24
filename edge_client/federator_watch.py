"""A device knows whether its federator is online: from its heartbeat, and from how long that has been silent."""

from foltr.core.logs import get_logger
from foltr.core.protocol.heartbeat import FederatorStatus

log = get_logger(__name__)

# One beat may be late, and one lost with a connection.
_MISSED_BEATS = 3


class FederatorWatch:
    """What one device knows of its federator. ``now`` is monotonic seconds; no two clocks are compared."""

    def __init__(self, federation: str, client_id: str) -> None:
        self._federation = federation
        self._client_id = client_id
        self._status: FederatorStatus | None = None  # over this connection
        self._heard_at = 0.0
        self._beat_at: float | None = None  # over any connection
        self._is_away = False

    def begin_connection(self) -> None:
        """Forget the status: it may have changed since the last connection was lost."""
        self._status = None

    def receive(self, status: FederatorStatus, now: float) -> None:
        """Take a status of the federator, or its last will."""
        if status.federation != self._federation:
            return
        self._status, self._heard_at = status, now
        if status.online:
            self._beat_at = now
        self.check(now)

    def check(self, now: float) -> None:
        """Log if the federator has gone or come back since the last call."""
        online = self.online(now)
        if online is None or self._is_away is not online:
            return  # nothing arrived, or no change
        self._is_away = not online
        event = "federator_back" if online else "federator_away"
        log.info(event, client_id=self._client_id, federation=self._federation)

    def online(self, now: float) -> bool | None:
        """Whether it is online; None if nothing arrived over this connection."""
        status = self._status
        if status is None:
            return None
        return status.online and now - self._heard_at < _MISSED_BEATS * status.interval_s

    def absence(self, now: float) -> str | None:
        """Describe why it is not known to be online; None if it is."""
        if self.online(now):
            return None
        name = f"the federator of {self._federation!r}"
        heard = "" if self._beat_at is None else f", last heard {now - self._beat_at:.0f} s ago"
        if self._status is None:
            return f"the broker has no message of {name}{heard}"
        if self._status.online:
            return f"{name} has been silent for {now - self._heard_at:.0f} s"
        return f"{name} is away{heard}"
