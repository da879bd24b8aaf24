"""A device knows whether its federator is there: from the federator's heartbeat, and from how long that is silent."""

from foltr.core.logs import get_logger
from foltr.core.protocol.heartbeat import FederatorStatus

log = get_logger(__name__)

# Of beats that did not come: one may be late, and one lost with a connection.
_MISSED_BEATS = 3


class FederatorWatch:
    """What one device has heard of its federator. ``now`` is monotonic seconds; no two clocks are compared."""

    def __init__(self, federation: str, client_id: str) -> None:
        self._federation = federation
        self._client_id = client_id
        self._status: FederatorStatus | None = None  # over this connection
        self._heard_at = 0.0
        self._beat_at: float | None = None  # over any
        self._is_away = False

    def begin_connection(self) -> None:
        """Know nothing: what was so when the last connection was lost may be so no more."""
        self._status = None

    def receive(self, status: FederatorStatus, now: float) -> None:
        """Take a status of the federator's, or its last will."""
        if status.federation != self._federation:
            return
        self._status, self._heard_at = status, now
        if status.online:
            self._beat_at = now
        self.look(now)

    def look(self, now: float) -> None:
        """Say in the log if the federator is away since this was called last, or back."""
        online = self.online(now)
        if online is None or self._is_away is not online:
            return  # nothing was heard, or it is as it was
        self._is_away = not online
        event = "federator_back" if online else "federator_away"
        log.info(event, client_id=self._client_id, federation=self._federation)

    def online(self, now: float) -> bool | None:
        """Whether it is there; None where nothing was heard over this connection."""
        status = self._status
        if status is None:
            return None
        return status.online and now - self._heard_at < _MISSED_BEATS * status.interval_s

    def absence(self, now: float) -> str | None:
        """Say why it is not known to be there; None where it is."""
        if self.online(now):
            return None
        name = f"the federator of {self._federation!r}"
        heard = "" if self._beat_at is None else f", last heard {now - self._beat_at:.0f} s ago"
        if self._status is None:
            return f"{name} has said nothing at this broker{heard}"
        if self._status.online:
            return f"{name} has been silent for {now - self._heard_at:.0f} s"
        return f"{name} is away{heard}"
