"""One device that several processes use: say, the workers of a web server.

The lock of the store decides which process owns it: that one has the store, the agent and the connection to the broker.
The others ask it by a Unix socket beside the store. So the gate, the model and an erasure are in one place, and a click
is stored once, however many processes there are. When the owner ends, even by ``kill -9``, the system frees its lock,
and another process takes over. What was asked meanwhile is asked again, and a repeated click changes nothing.
"""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import wraps
from inspect import getattr_static, isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from foltr.core.errors import FoltrError, SettingsError, UnavailableError, UsageError
from foltr.core.file_locks import StoreInUseError
from foltr.core.logs import get_logger
from foltr.edge_client.background import BackgroundDevice, load_client
from foltr.edge_client.serp import Serp
from foltr.edge_client.workers.local_socket import LocalConnection, connect, socket_beside
from foltr.edge_client.workers.owner import Owner
from foltr.edge_client.workers.requests import Answer, Enrolment, Failure, Greeting, Request

if TYPE_CHECKING:
    from foltr.edge_client.agent import Agent

log = get_logger(__name__)

RankerT = TypeVar("RankerT")

# A server that is restarted has two generations of workers for a moment, perhaps with other arguments.
_JOIN_S = 10.0
_ANSWER_S = 10.0
# Longer than any list takes; a search goes on without an owner that hangs.
_RANK_S = 1.0
_POLL_S = 0.02
_AFTER_ERROR_S = 1.0
_MOST_LISTS = 1000


class SharedDevice:
    """A device of one process or several; `join` it before anything else.

    Args:
        store: the path of its store.
        terms: what all its processes must have in common, by name, as text.
        enrolment: the credentials; None until there are some.
        open_device: opens the store. Raises StoreInUseError while another process has it.
        ranker: answers the other processes if this one owns the store; kept as a weak reference.

    Attributes:
        is_closed: for this process.
    """

    def __init__(
        self,
        store: str | Path,
        terms: dict[str, str],
        enrolment: Enrolment,
        open_device: Callable[[Enrolment], BackgroundDevice],
        ranker: object,
    ) -> None:
        self._path = socket_beside(store)
        self._terms, self._enrolment, self._open_device = terms, enrolment, open_device
        self._ranker = weakref.ref(ranker)
        self.is_closed = self._is_copy = False
        self._begin()
        _shared_devices.add(self)

    def _begin(self) -> None:
        self._state = threading.Condition()
        self._handing_over = threading.Lock()
        self._device: BackgroundDevice | None = None
        self._owner: Owner | None = None
        self._watched: LocalConnection | None = None
        self._idle: list[LocalConnection] = []
        self._unsent: deque[Serp] = deque(maxlen=_MOST_LISTS)
        self._lost_at = time.monotonic()
        self._has_asked = False

    def join(self) -> None:
        """Own the store, or reach the process that does.

        Raises:
            StoreInUseError: another process has the store, and does not share it.
            SettingsError: the owner has other terms.
            FoltrError: what opening raised.
        """
        give_up_at = time.monotonic() + _JOIN_S
        while (refusal := self._refused()) is not None:
            if self._path is None or time.monotonic() > give_up_at:
                raise refusal
            time.sleep(_POLL_S)
        if self._device is None:
            self._start_watching()

    @property
    def device(self) -> BackgroundDevice:
        """The device, whose store this process owns; UsageError if it does not."""
        if self._device is None:
            raise UsageError("it is closed" if self.is_closed else "another process owns the store")
        return self._device

    @property
    def agent(self) -> "Agent | None":
        """The agent behind it; None before it is enrolled, and if another process owns the store."""
        return None if self._device is None else self._device.agent

    @property
    def is_here(self) -> bool:
        """Whether this process answers for itself: it owns the store, or is closed."""
        return self._device is not None or self.is_closed

    @property
    def is_away(self) -> bool:
        """Whether nothing can be recorded here: it is closed, or another process owns the store."""
        return self.is_closed or self._device is None

    def check_open(self) -> None:
        """Raise UsageError if it is closed."""
        if self.is_closed:
            raise UsageError("it is closed: construct another one on the same store")

    # --- what is asked ----------------------------------------------------------------------------------------

    def ask(self, request: Request, within_s: float) -> Answer | None:
        """Have the owner call a method; None if this process is to call it.

        Raises:
            UnavailableError: no process answered in time. It may have done it.
            Exception: what the method raised.
        """
        with self._state:
            if self._is_copy:
                self._is_copy, self._lost_at = False, time.monotonic()
                self._start_watching()
        give_up_at = time.monotonic() + within_s
        while (connection := self._reach(give_up_at)) is not None:
            try:
                self._hand_over(connection)
                answer = self._said(connection, request, give_up_at)
            except TimeoutError:
                connection.close()
                self._lose()  # it hangs
            except OSError:
                connection.close()
            else:
                with self._state:
                    self._idle.append(connection)
                if isinstance(answer, Failure):
                    raise answer.kind(answer.text)
                return Answer(answer.value)
        return None

    def keep(self, serp: Serp) -> None:
        """Keep a list that was made without the owner, which gets it later."""
        if not self.is_closed:
            self._unsent.append(serp)

    def _reach(self, give_up_at: float) -> LocalConnection | None:
        """Return a connection to the owner; None if this process is to do it."""
        with self._state:
            while True:
                if self._device is not None or self.is_closed:
                    return None
                if self._watched is not None:
                    if self._idle:
                        return self._idle.pop()
                    try:
                        return connect(self._path or "")
                    except OSError:
                        pass  # it has just ended
                rest_s = give_up_at - time.monotonic()
                if rest_s <= 0:
                    raise UnavailableError(
                        "the process that owns the store does not answer. Try again; if it hangs, end it, and another "
                        "takes over"
                    )
                self._state.wait(min(rest_s, _POLL_S))

    def _hand_over(self, connection: LocalConnection) -> None:
        """Give the owner the lists that were made without it."""
        if not self._unsent:
            return
        with self._handing_over:
            lists = list(self._unsent)
            self._said(connection, Request("_remember", (lists,)), time.monotonic() + _ANSWER_S)
            for _ in lists:
                self._unsent.popleft()

    @staticmethod
    def _said(connection: LocalConnection, message: object, give_up_at: float) -> Any:
        rest_s = max(give_up_at - time.monotonic(), _POLL_S)
        connection.send(message, rest_s)
        return connection.receive(rest_s)

    # --- which process owns it --------------------------------------------------------------------------------

    def enrol(self, enrolment: Enrolment, become_client: Callable[[], None]) -> None:
        """Become a client, in the process that owns the store; the others know it before this returns."""
        become_client()
        self._enrolment = enrolment
        if self._owner is not None:
            self._owner.tell(enrolment)

    def close(self) -> None:
        """Close the device, or only leave it if another process owns it."""
        with self._state:
            if self.is_closed:
                return
            self.is_closed = True
            self._state.notify_all()
            owner, device = self._owner, self._device
            connections = [*self._idle, *([] if self._watched is None else [self._watched])]
        if owner is not None:
            owner.stop_listening()
        if device is not None:
            device.close()
        if owner is not None:
            owner.close()  # last: the others take over as soon as they notice
        for connection in connections:
            connection.close()

    def _refused(self) -> Exception | None:
        """Own the store, or reach its owner; return why neither is possible now. Raises what opening raises."""
        try:
            device = self._open_device(self._enrolment)
        except StoreInUseError as in_use:
            if self._path is None:
                return in_use
            try:
                return self._greet(connect(self._path))
            except OSError:
                return in_use
        with self._state:
            is_late = self.is_closed
            if not is_late:
                self._own(device)
                self._state.notify_all()
        if is_late:
            device.close()
        return None

    def _greet(self, connection: LocalConnection) -> Exception | None:
        try:
            answer = self._said(connection, Greeting(self._terms, self._enrolment), time.monotonic() + _ANSWER_S)
        except BaseException:
            connection.close()
            raise
        if isinstance(answer, Failure):
            connection.close()
            return answer.kind(answer.text)
        _make_ready(answer)
        with self._state:
            self._enrolment, self._watched, self._has_asked = answer, connection, True
            self._state.notify_all()
        return None

    def _own(self, device: BackgroundDevice) -> None:
        self._device, device.store.recent.is_shared = device, self._has_asked
        for serp in self._unsent:
            device.store.recent.remember(serp)
        self._unsent.clear()
        if self._path is None:
            return
        try:
            self._owner = Owner(self._path, self._answer)
        except OSError as error:
            log.info("store_not_shared", cause=str(error))

    def _start_watching(self) -> None:
        threading.Thread(target=self._watch, name="foltr-workers", daemon=True).start()

    def _watch(self) -> None:
        """Take over, or find the next owner, when the owner ends; until this process owns the store or is closed."""
        error: FoltrError | None = None
        while self._device is None and not self.is_closed:
            watched = self._watched
            try:
                if watched is not None:
                    self._enrolment = watched.receive()
                    _make_ready(self._enrolment)
                elif self._refused() is not None:
                    time.sleep(_POLL_S)
            except OSError:
                self._lose()
            except FoltrError as newest:
                if str(newest) != str(error):
                    log.warning("takeover_failed", cause=str(newest))
                error = newest
                time.sleep(_AFTER_ERROR_S)
        if self._device is not None and not self.is_closed:
            log.info("store_taken_over", pid=os.getpid())

    def _lose(self) -> None:
        with self._state:
            left = [*self._idle, *([] if self._watched is None else [self._watched])]
            if self._watched is not None:
                self._lost_at = time.monotonic()
            self._idle, self._watched = [], None
        for connection in left:
            connection.close()

    @property
    def rank_within_s(self) -> float:
        """How long a search may wait for the owner: once for each owner that is lost, not with each list."""
        if self._watched is not None or self._is_copy:
            return _RANK_S
        return max(self._lost_at + _RANK_S - time.monotonic(), 0.0)

    # --- what the others ask this process ---------------------------------------------------------------------

    def _answer(self, message: Greeting | Request) -> object:
        ranker = self._ranker()
        if ranker is None or self.is_closed:
            raise ConnectionAbortedError
        if isinstance(message, Greeting):
            answer: object = self._welcome(message, ranker)
        else:
            answer = Answer(_called(ranker, message))
        if self.is_closed:
            raise ConnectionAbortedError  # it may have been closed in the middle; another process knows
        return answer

    def _welcome(self, greeting: Greeting, ranker: object) -> Enrolment:
        for name, there in greeting.terms.items():
            if self._terms[name] != there:
                raise SettingsError(
                    f"{name}: {there}, but the process {os.getpid()}, which owns the store, has {self._terms[name]}. "
                    "All processes on one store need the same arguments and software"
                )
        if greeting.enrolment is not None:
            _called(ranker, Request("_enrol_as", (greeting.enrolment,)))
        self.device.store.recent.is_shared = True
        return self._enrolment

    def become_copy(self) -> None:
        """Begin again: this process was forked from one that goes on, whose threads and store are not here."""
        _of_parents.append((self._device, self._owner))
        self._begin()
        self._is_copy = True
        self.is_closed |= self._path is None  # nobody can be asked


def _make_ready(enrolment: Enrolment) -> None:
    """Load what this process needs if it takes over, so that no search waits for that."""
    if enrolment is not None:
        load_client()


def _called(ranker: object, request: Request) -> object:
    value = getattr(ranker, request.name)
    is_property = isinstance(getattr_static(type(ranker), request.name), property)
    return value if is_property else value(*request.args, **request.kwargs)


def runs_in_owner(ranker: type[RankerT]) -> type[RankerT]:
    """Have each public method and property of a class run in the process that owns the store.

    Instances have a `SharedDevice` as ``_shared``, and ``_as_sent(argument, value)`` that returns what can be pickled.
    """
    for name in dir(ranker):
        attribute = getattr_static(ranker, name)
        if (name.startswith("_") and name not in _ALSO) or name in _HERE:
            continue
        if isinstance(attribute, property) and attribute.fget is not None:
            setattr(ranker, name, property(_in_owner(name, attribute.fget)))
        elif isfunction(attribute):
            setattr(ranker, name, _in_owner(name, attribute))
    return ranker


def _in_owner(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    arguments = signature(method)

    @wraps(method)
    def in_owner(ranker: Any, *args: Any, **kwargs: Any) -> Any:
        shared: SharedDevice = ranker._shared  # noqa: SLF001 (of the class that is decorated)
        if shared.is_here:
            return method(ranker, *args, **kwargs)
        bound = arguments.bind(ranker, *args, **kwargs)
        given = {one: ranker._as_sent(one, bound.arguments[one]) for one in list(bound.arguments)[1:]}  # noqa: SLF001
        bound.apply_defaults()
        within_s = shared.rank_within_s if name in _ALONE else _ANSWER_S + bound.arguments.get("timeout_s", 0.0)
        try:
            answer = shared.ask(Request(name, kwargs=given), within_s)
        except UnavailableError:
            if name not in _ALONE:
                raise
            answer = None
        return method(ranker, **given) if answer is None else answer.value

    return in_owner


_HERE = ("agent", "store", "close", "enrol")
_ALSO = ("_enrol",)
# They do something sensible without the owner.
_ALONE = ("rank", "state")

_shared_devices: weakref.WeakSet[SharedDevice] = weakref.WeakSet()
# Of forked processes: collecting them would close what belongs to the process that made them.
_of_parents: list[object] = []


def _after_fork() -> None:
    for shared in list(_shared_devices):
        shared.become_copy()


os.register_at_fork(after_in_child=_after_fork)
