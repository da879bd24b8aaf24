"""The device of a `SearchRanker`: a store, and once enrolled a client that runs in a separate thread.

It has no reference to the ranker, so that a dropped ranker can be collected.
"""

import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from foltr.core.errors import UsageError
from foltr.core.logs import get_logger
from foltr.edge_client.store.recent_lists import SAVED_WITHIN_S
from foltr.edge_client.store.store import DeviceStore

if TYPE_CHECKING:
    from foltr.edge_client.agent import Agent
    from foltr.edge_client.client import EdgeClient
    from foltr.edge_client.loop_thread import LoopThread

log = get_logger(__name__)

T = TypeVar("T")

# To say goodbye, and to finish learning.
_CLOSE_S = 10.0


class BackgroundDevice:
    """One device in the process that has its store. Any thread may call every method.

    Attributes:
        agent: None until it is a client of a federation.
        life: held while it becomes a client or is closed.
    """

    def __init__(self, store: DeviceStore) -> None:
        self.store = store
        store.recent.schedule = _later
        self.agent: Agent | None = None
        self.life = threading.RLock()
        self._is_closed = False
        self._client: EdgeClient | None = None
        self._thread: LoopThread | None = None

    def start(self, client: "EdgeClient", remarks: tuple[str, ...]) -> None:
        """Become this client, and connect in the background; does nothing if it has these credentials already.

        Args:
            remarks: warnings about the application's features given so far.

        Raises:
            SettingsError: the store is another client's.
            UsageError: it is a client with other credentials, or closed.
        """
        from foltr.edge_client.loop_thread import LoopThread

        with self.life:
            self.check_open()
            if self._client is not None:
                if self._client.credentials == client.credentials:
                    return  # another process did it, or asks again because the one that did it was killed
                raise UsageError(f"it is enrolled already, as {self._client.client_id} of {self._client.federation!r}")
            self.store.take_over((client.federation, client.client_id))
            client.open(self.store, self._soon)
            client.agent.features.remarks = remarks
            self._thread = LoopThread(f"foltr-{client.client_id}")
            # Before it starts, because an observer may look.
            self._client, self.agent = client, client.agent
            self._thread.call(client.start())

    def close(self) -> None:
        """Say goodbye, and close the store. The next start sends what is left."""
        with self.life:
            if self._is_closed:
                return
            self._is_closed = True
        thread = self._thread
        if thread is None or not (thread.end(self._end(), _CLOSE_S) or thread.is_current):
            self.store.close()

    async def _end(self) -> None:
        try:
            if self._client is not None:
                await self._client.stop()
        finally:
            self.store.close()

    def check_open(self) -> None:
        """Raise UsageError if it is closed."""
        if self._is_closed:
            raise UsageError("it is closed: construct another one on the same store")
        self.store.check_open()

    def call(self, what: "Callable[[EdgeClient], Coroutine[Any, Any, T]]") -> T:
        """Run a coroutine of the client's in its thread, and wait for it.

        Raises:
            UsageError: it is not a client of a federation, or closed, or this is its thread.
        """
        self.check_open()
        if self._client is None or self._thread is None:
            raise UsageError("it is not enrolled: give credentials, or call enrol")
        return self._thread.call(what(self._client))

    def _soon(self, work: Callable[[], None]) -> None:
        def done() -> None:
            try:
                work()
            except Exception:
                log.exception("clicks_not_learned")  # they are stored: learned with the next ones, or at the next start

        if self._thread is not None:
            self._thread.soon(done)


def load_client() -> "type[EdgeClient]":
    """Load what a client of a federation needs, most of what a device is: nobody else waits for it."""
    from foltr.edge_client.client import EdgeClient

    return EdgeClient


def _later(work: Callable[[], None]) -> None:
    """Work in a thread, which does not keep the process alive: closing does what is left."""
    timer = threading.Timer(SAVED_WITHIN_S, work)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # the process ends
        timer.start()
