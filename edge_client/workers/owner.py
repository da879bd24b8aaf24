"""The process that owns a store answers the others, each connection in a thread."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from foltr.edge_client.workers.local_socket import LocalConnection, LocalListener
from foltr.edge_client.workers.requests import Enrolment, Greeting, Request, failure_of

_SEND_S = 10.0


class Owner:
    """Answers at a path.

    Args:
        answer: computes the answer to a greeting or request. Raises ConnectionError: another process is to answer.

    Raises:
        OSError: nobody can connect there.
    """

    def __init__(self, path: str, answer: Callable[[Greeting | Request], object]) -> None:
        self._answer = answer
        self._listener = LocalListener(path)
        self._lock = threading.RLock()  # a collected ranker is closed by any thread
        self._connections: set[LocalConnection] = set()
        self._watchers: list[LocalConnection] = []
        _in_thread(self._accept)

    def tell(self, enrolment: Enrolment) -> None:
        """Tell all processes how the device is enrolled: one of them may have to take over."""
        with self._lock:
            for watcher in self._watchers:
                with contextlib.suppress(OSError):
                    watcher.send(enrolment, _SEND_S)

    def stop_listening(self) -> None:
        """Refuse further connections."""
        self._listener.close()

    def close(self) -> None:
        """End all connections, and refuse further ones."""
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                connection.close()

    def _accept(self) -> None:
        while (connection := self._listener.accept()) is not None:
            with self._lock:
                self._connections.add(connection)
            _in_thread(self._serve, connection)

    def _serve(self, connection: LocalConnection) -> None:
        try:
            while True:
                message = connection.receive()
                answer = self._answered(message)
                if not isinstance(message, Greeting):
                    _send(connection, answer)
                    continue
                with self._lock:  # it gets this answer before anything newer
                    connection.send(answer, _SEND_S)
                    self._watchers.append(connection)
        except OSError:
            pass
        finally:
            with self._lock:  # `tell` is not sending by it
                self._connections.discard(connection)
                if connection in self._watchers:
                    self._watchers.remove(connection)
                connection.close()

    def _answered(self, message: Greeting | Request) -> object:
        try:
            return self._answer(message)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 (the other process raises it)
            return failure_of(error)


def _send(connection: LocalConnection, answer: object) -> None:
    try:
        connection.send(answer, _SEND_S)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 (it cannot be pickled)
        connection.send(failure_of(error), _SEND_S)


def _in_thread(work: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=work, args=args, name="foltr-workers", daemon=True).start()
