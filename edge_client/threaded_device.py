"""A device for an application without an event loop: many threads rank and record, one of its own does the rest.

What a caller waits for is the store, which every click is written to before `record` returns; never the network, and
never what is learned. Ranking takes a snapshot of the working model and no lock. All is computed by plain functions, as
on a device without numba: nobody waits until machine code is loaded, and what is computed does not depend on that.

It begins with a store and nothing else. With credentials it is a client of a federation, now or later; what was
recorded before is then that client's.
"""

import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from edge_client.agent import Agent
from edge_client.device_state import DeviceState, state_of
from edge_client.events import Observer
from edge_client.features import Features
from edge_client.forgetting import ForgetResult
from edge_client.gating import judgement_in_store
from edge_client.hindrances import Hindrance
from edge_client.loop_thread import LoopThread
from edge_client.options import DeviceOptions
from edge_client.recording import store_list
from edge_client.runtime import SERP_LENGTH, Runtime
from edge_client.serps import Serp, as_features, clicks_on, make_serp, read_candidates
from edge_client.store.store import DeviceStore
from foltr.erasure.states import ForgetState
from foltr.errors import UsageError
from foltr.learning.gate import Gate
from foltr.logs import get_logger
from foltr.numerics.compiled import plain_functions
from foltr.protocol.explorations import Exploration, NoExploration
from foltr.protocol.schemas import FeatureSchema

log = get_logger(__name__)

T = TypeVar("T")

# To say goodbye, and to end what is being learned.
_CLOSE_S = 10.0


class ThreadedDevice:
    """One device of one process. Every method may be called by any thread.

    Attributes:
        features: of the application.
        agent: None as long as it is no client of a federation.
    """

    def __init__(
        self,
        store: str | Path,
        max_interactions: int,
        max_kept: int,
        on_event: Observer | None,
        schema: FeatureSchema | None,
        exploration: Exploration | None,
        seed: int | None,
        gate: bool,
    ) -> None:
        self.features = Features(schema, None)
        self._exploration, self._rng = exploration, np.random.default_rng(seed)
        self._store = DeviceStore(
            store, client_id=None, federation=None, max_interactions=max_interactions, max_kept=max_kept
        )
        self._store.schema_hash = self.features.hash
        self._has_gate = gate
        self._on_event = on_event
        self._pid = os.getpid()
        self._life = threading.RLock()
        self._closed = False
        self._runtime: Runtime | None = None
        self._thread: LoopThread | None = None
        self.agent: Agent | None = None

    # --- its life -------------------------------------------------------------------------------------------

    def enrol(self, options: DeviceOptions) -> None:
        """Be a client of a federation from here on, and connect in the background.

        Raises:
            SettingsError: the store is another client's, or the broker's address holds what cannot be used.
            UsageError: it is a client already, or closed.
        """
        with self._life:
            self.check_open()
            if self._runtime is not None:
                client = self._runtime.options
                raise UsageError(f"it is enrolled already, as {client.client_id} of {client.federation!r}")
            runtime = Runtime(options, self._on_event)
            self._store.take_over((options.federation, options.client_id))
            runtime.open(self._store, self._soon)
            runtime.agent.features.remarks = self.features.remarks  # they were said
            self._thread = LoopThread(f"foltr-{options.client_id}")
            # Before it starts: an observer may look.
            self._runtime, self.agent = runtime, runtime.agent
            self._thread.call(runtime.start())

    def close(self) -> None:
        """Say goodbye, and close the store. What is left to send is sent at the next start."""
        if self.is_forked:
            return  # first: a lock may have been held when the process was forked, by a thread that is not here
        with self._life:
            if self._closed:
                return
            self._closed = True
        thread = self._thread
        if thread is None or not (thread.end(self._end(), _CLOSE_S) or thread.is_current):
            self._store.close()

    async def _end(self) -> None:
        try:
            if self._runtime is not None:
                await self._runtime.stop()
        finally:
            self._store.close()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that made the device: it has neither thread nor store."""
        return os.getpid() != self._pid

    def check_open(self) -> None:
        """Raise UsageError where nothing can be recorded or sent any more."""
        if self._closed:
            raise UsageError("it is closed: construct another one on the same store")
        self._store.check_open()

    @property
    def hindrance(self) -> Hindrance | None:
        """Return as `EdgeClient.hindrance` says; None as long as it is no client."""
        return None if self._runtime is None or self._closed or self.is_forked else self._runtime.hindrance

    @property
    def next_visit_at(self) -> datetime | None:
        """Return as `EdgeClient.next_visit_at` says; None as long as it is no client."""
        return None if self.agent is None or self._closed or self.is_forked else self.agent.visits.resting_until

    def state(self, n_features: int | None) -> DeviceState:
        """Return what it is doing.

        Args:
            n_features: how many the application said that it has; None where it did not.
        """
        agent, runtime = self.agent, self._runtime
        if self._closed or self.is_forked:
            return DeviceState("closed")
        if agent is None or runtime is None:
            return DeviceState("not enrolled", remarks=("clicks wait in the store", *self.features.remarks))
        return state_of(agent, runtime.hindrance, n_features)

    # --- lists and clicks -----------------------------------------------------------------------------------

    @property
    def serp_length(self) -> int:
        """Return how many documents the federation asks to show."""
        round_ = None if self.agent is None else self.agent.participation.round
        return SERP_LENGTH if round_ is None else round_.training.serp_length

    def rank(
        self, features: npt.ArrayLike, k: int, base: npt.ArrayLike | None, exploration: Exploration | None
    ) -> Serp:
        """Make a list; in the application's order where there is no device any more, since search goes on.

        Before it is a client its lists are drawn around that order: they are learned from once it is one.
        """
        agent, is_over = self.agent, self._closed or self.is_forked
        with plain_functions():
            if agent is not None and not is_over:
                return agent.rank(features, k, base, exploration)
            chosen = NoExploration() if is_over else exploration or self._exploration
            candidates = read_candidates(self.features.scaled(features), base)
            self.features.look_at(candidates.features, candidates.span)
            return make_serp(candidates, k, None, self._rng, exploration=chosen)

    @property
    def gate(self) -> Gate:
        """Return as `EdgeClient.gate` says; as long as it is no client, what the lists so far brought."""
        if self.agent is not None:
            return Gate() if self.agent.gate is None else self.agent.gate.gate
        return self._store.gate() if self._has_gate and not (self._closed or self.is_forked) else Gate()

    def scores(self, features: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return as `EdgeClient.scores` says."""
        with plain_functions():
            if self.agent is None:
                return np.zeros(len(as_features(self.features.scaled(features))), np.float32)
            return self.agent.scores(features)

    def record(self, serp: Serp, clicked: Iterable[int]) -> None:
        """Record clicks; on disk when it returns."""
        self.check_open()
        agent = self.agent
        if agent is None:
            agent = self._record_alone(serp, clicked)
        if agent is not None:
            with plain_functions():  # a guard judges
                agent.record_clicks(serp, clicked)

    def _record_alone(self, serp: Serp, clicked: Iterable[int]) -> Agent | None:
        """Record clicks where it is no client; where it has become one meanwhile, return the agent that is to do it."""
        clicks = clicks_on(serp, clicked)
        with self._life:  # or a gate would be written here that the agent has read already
            if self.agent is None:
                store_list(self._store, serp, clicks, judgement_in_store(serp, clicks) if self._has_gate else None)
            return self.agent

    def _soon(self, work: Callable[[], None]) -> None:
        def done() -> None:
            try:
                work()
            except Exception:
                log.exception("clicks_not_learned")  # they are stored: with the next ones, or at the next start

        if self._thread is not None:
            self._thread.soon(done)

    # --- what is asked of the store and the federation --------------------------------------------------------

    def n_waiting(self) -> int:
        return self._store.n_waiting()

    def mark(self) -> int | None:
        return self._store.mark()

    def call(self, what: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        """Run something of the client's in its own thread, and wait for it.

        Raises:
            UsageError: it is no client of a federation, or closed, or this is its own thread.
        """
        self.check_open()
        if self._runtime is None or self._thread is None:
            raise UsageError("it is not enrolled: give credentials, or call enrol")
        return self._thread.call(what(self._runtime))

    def forget_me(self, timeout_s: float) -> ForgetResult:
        """Forget as `SearchRanker.forget_me` says."""
        if self._runtime is not None or self._store.owner is not None:
            return self.call(lambda runtime: runtime.forget_me(timeout_s))
        self.check_open()
        self._store.forget()
        return ForgetResult(ForgetState.FORGOTTEN)
