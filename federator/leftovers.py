"""Remembers whose retained messages were turned away: of a forgotten client the broker is to have none."""

from broker.link import InboundMessage
from foltr.protocol.topics import Topics

# Beyond them it is heard of at the next connection. Who was forgotten is not known before the federator has started.
MOST_NAMES = 100_000


class TurnedAwayRetained:
    """The names in such messages since they were last looked at."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._names: set[str] = set()

    def note(self, message: InboundMessage) -> None:
        """Note a message that the intake had no room for."""
        client_id, kind = self._topics.parse(message.topic) or ("", None)
        # An empty one clears what was retained.
        if kind is not None and kind.is_retained and message.payload and len(self._names) < MOST_NAMES:
            self._names.add(client_id)

    def take(self) -> set[str]:
        """Hand over the names, and begin anew."""
        names, self._names = self._names, set()
        return names
