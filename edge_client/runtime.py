"""A device runs in one event loop: its connection, its agent, and its visits if it does not stay connected."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, LastWill, MqttLink
from foltr.core.erasure.states import ForgetState
from foltr.core.errors import FoltrError, UnavailableError, UsageError
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import Credentials
from foltr.core.operator.erasure_request_file import delete_request, is_saved
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.edge_client.agent import Agent
from foltr.edge_client.blockers import is_lasting
from foltr.edge_client.device import Device
from foltr.edge_client.device_state import Settled, settled_by_now
from foltr.edge_client.events import Connected, Observer, Resting, logging_errors_of
from foltr.edge_client.forgetting import ENROL_AGAIN, ForgetResult
from foltr.edge_client.messaging.outbox import is_set_within
from foltr.edge_client.options import DeviceOptions
from foltr.edge_client.recording import Later
from foltr.edge_client.store.recent_lists import SAVED_WITHIN_S
from foltr.edge_client.store.store import DeviceStore

log = get_logger(__name__)

_GOODBYE_S = 2.0
_LONGEST_PAUSE_S = 60.0


class Runtime(Device):
    """Runs one device.

    Args:
        give_up_after_s: see `Connection`.
        request_file: the file in which `foltr erasure request --credentials` keeps this client's wish; None without a
            credentials file.
        on_event: called in the thread of the event loop.

    Raises:
        SettingsError: the address holds certificates that cannot be used; nothing was opened yet.
    """

    def __init__(
        self,
        options: DeviceOptions,
        address: BrokerAddress,
        give_up_after_s: float | None,
        request_file: Path | None,
        on_event: Observer | None,
    ) -> None:
        self.federation, self.client_id = options.federation, options.client_id
        self._options = options
        self._request_file = request_file
        self._emit = logging_errors_of(on_event)
        topics = Topics(options.federation)
        self._link = MqttLink(
            address,
            # No name holds a colon, so no two share an id.
            client_id=f"foltr:{self.federation}:{self.client_id}",
            subscriptions=(
                # First the keys that verify the other messages, and what limits sending.
                *(topics.operator_key, topics.federator_key, topics.policy, topics.schema, topics.authorities),
                # Before the round that they count with: the anchor, evaluations, and how often to connect.
                *((topics.anchor,) if options.privacy.votes else ()),
                *((topics.evaluation,) if options.privacy.evaluation else ()),
                *(topics.pace, topics.model, topics.round, topics.unlearning_round),
                *(topics.federator_status, topics.audit_head),
                topics.client(self.client_id, ClientTopic.INBOX),
            ),
            on_message=self._receive,
            on_connected=self._begin_connection,
            last_will=self._begin_session,
            # The retained topics hold all that a returning device needs, and it asks for what it missed by resending. A
            # broker should not queue every round for every device that is switched off.
            persistent=False,
            give_up_after_s=give_up_after_s,
            on_failed=self._wake,
        )
        self._agent: Agent | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._called, self._is_connection_told = asyncio.Event(), False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def open(self, store: DeviceStore, later: Later | None = None) -> None:
        """Make the agent on an open store. It ranks and records from here on; it is not connected yet.

        Args:
            later: see `Recorder`.
        """
        if self._has_request_file and not store.forgotten and store.forget_state() is None:
            store.put_forget_state(ForgetState.ASKED)
        self._agent = Agent(self._link, store, self._options, later, self._emit)

    @property
    def _has_request_file(self) -> bool:
        """Whether `foltr erasure request --credentials` has asked, perhaps while this device was off."""
        beside, own = self._request_file, self._options.credentials
        return beside is not None and own is not None and is_saved(beside, own)

    async def start(self) -> None:
        """Connect and start the agent's turns, in the current loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        if self.store.recent.schedule is None:
            self.store.recent.schedule = self._save_later
        visits = self.agent.visits
        visits.begin_overdue()
        if visits.rest_s() <= 0.0 or visits.period_s is None or self.agent.forgetting.waiting:
            await self._begin_visit()
        else:
            visits.is_resting = self.agent.participation.rests = True
        self._tasks = [
            asyncio.create_task(self.agent.run(), name=f"agent-{self.client_id}"),
            asyncio.create_task(self._visit(), name=f"visits-{self.client_id}"),
        ]

    async def stop(self) -> None:
        """Say goodbye and disconnect."""
        if not self._tasks:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.agent.contributor.close()
            if self._link.connected:
                async with asyncio.timeout(_GOODBYE_S):
                    await self.agent.say_goodbye()
        except (UnavailableError, TimeoutError):
            log.debug("goodbye_not_sent", client_id=self.client_id)
        finally:
            await self._link.__aexit__()

    def __repr__(self) -> str:
        if self._agent is None:
            return f"<{type(self).__name__}: {self.client_id} of {self.federation!r}, not entered>"
        return super().__repr__()

    @property
    def agent(self) -> Agent:
        """The agent of this device. Raises UsageError before it is entered."""
        if self._agent is None:
            raise UsageError(f"client {self.client_id} was not entered yet: `async with EdgeClient(...) as client:`")
        return self._agent

    @property
    def credentials(self) -> Credentials | None:
        """The credentials that it was made with."""
        return self._options.credentials

    @property
    def store(self) -> DeviceStore:
        """The device's SQLite file. Raises UsageError before it is entered."""
        return self.agent.store

    def _save_later(self, save: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.call_later, SAVED_WITHIN_S, save)

    def check_thread(self) -> None:
        """Raise UsageError in any thread but the event loop's."""
        if self._loop is not None and threading.get_ident() != self._thread:
            raise UsageError(
                f"client {self.client_id} belongs to another thread: an EdgeClient belongs to the event loop that "
                "entered it. Call it there, or use a SearchRanker, which all threads may use"
            )

    def _check_loop(self) -> None:
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                f"client {self.client_id} belongs to another event loop: an EdgeClient belongs to the one that "
                "entered it. Call it there, or use a SearchRanker, which needs none"
            )

    # --- what is waited for ---------------------------------------------------------------------------------

    async def wait_connected(self, timeout_s: float = 30.0) -> None:
        """Wait for the broker; UnavailableError after ``timeout_s``. Optional: ranking works without."""
        self._check_loop()
        if not self.agent.visits.is_resting:
            await self._link.wait_connected(timeout_s)

    async def next_round(self, after: int = 0, timeout_s: float = 60.0) -> RoundAnnouncement:
        """Wait until the newest open round is above ``after`` and its model is here, or the last round is over.

        If rounds went back from ``after`` to lower numbers, because the federator's database was restored, the newest
        one is above it all the same.

        Returns:
            a round with ``open=False`` if ``after`` was the federation's last one and is closed.

        Raises:
            UnavailableError: no such round within ``timeout_s``, with the obstacle; or the broker was given up, or this
                client was forgotten, or the federator refuses it.
        """
        self._check_loop()
        agent, federation, client_id = self.agent, self.federation, self.client_id

        def ready() -> bool:
            if agent.forgotten:
                raise UnavailableError(f"client {client_id} of {federation!r} was forgotten: {ENROL_AGAIN}")
            if agent.membership.refusal is not None and self.blocker is not None:
                raise UnavailableError(f"client {client_id} of {federation!r}: {self.blocker.message}")
            if self._link.failure is not None:
                raise self._link.failure
            round_ = agent.participation.round
            if round_ is None:
                return False
            went_back = round_.round < after <= agent.participation.gone_back_from
            if round_.open and round_.round <= after and not went_back:
                return False  # as after most turns
            model = agent.participation.model
            if model is None:
                return False
            if not round_.open:
                # A last round from before our time says nothing about what is to come.
                return round_.last and (0 < after <= round_.round or went_back)
            return round_.base_version == model.version and not agent.trainer.is_loading

        if not await self._true_within(ready, timeout_s):
            there = (
                f"the federator of {federation!r} is running; foltr rounds why, on its machine, says what the "
                "round waits for"
            )
            cause = there if self.blocker is None else self.blocker.message
            if agent.trainer.is_loading:
                cause = "numba compiles the learner, which takes many seconds once after an install or upgrade"
            raise UnavailableError(f"client {client_id}: no round after {after} within {timeout_s:g} s: {cause}")
        round_ = agent.participation.round
        if round_ is None:
            raise RuntimeError("a round was announced and is gone")
        return round_

    async def wait_settled(self, timeout_s: float = 60.0) -> Settled:
        """Wait up to ``timeout_s`` until the lists that the federation takes now are in updates with receipts.

        Returns:
            true if nothing waits; its text says what does, and for what.
        """
        self._check_loop()
        agent = self.agent

        def ready() -> bool:
            in_vain = is_lasting(agent.membership.refusal) or agent.forgetting.waiting or agent.participation.left
            if in_vain or self._link.failure is not None:
                return True
            return agent.is_settled and (agent.participation.is_informed or not self.n_waiting)

        await self._true_within(ready, timeout_s)
        return settled_by_now(agent, self.blocker)

    async def leave(self, timeout_s: float = 10.0) -> bool:
        """Leave the federation: send nothing more from this client, and clear the retained status.

        What waits in the store stays there. A new client on the same store joins again.

        Returns:
            whether the federator confirmed it within ``timeout_s``. If not, the broker holds the message for a
            federator that is away. A client that asked to be forgotten sends nothing: False.

        Raises:
            UnavailableError: the broker did not take it; nothing was changed.
        """
        self._check_loop()
        async with self._staying(timeout_s):
            return await self.agent.leave(timeout_s)

    async def forget_me(self, timeout_s: float = 60.0) -> ForgetResult:
        """Ask the federation to erase this client, and to unlearn what it contributed; then the device forgets too.

        The signed wish is on disk before it is sent. From here on this client, or a later one on the same store, sends
        nothing else, and repeats the wish until a receipt arrives. Once the erasure is stored, `forgotten` is true;
        unlearning from the model may outlast this process. You may ask again, also for the receipt.

        Returns:
            the progress (`forget_state`); ``forgotten`` with the receipt, which ``foltr erasure verify`` checks.

        Raises:
            DataError: the wish cannot be stored; nothing was changed.
            FoltrError: the federator refused it, e.g. because this client has never joined; it goes on as before.
        """
        self._check_loop()
        forgetting = self.agent.forgetting
        forgetting.begin()
        try:
            async with self._staying(timeout_s):
                return await forgetting.ask(timeout_s)
        except UnavailableError:
            return forgetting.result  # no broker: the wish is kept
        except FoltrError:
            if forgetting.state is None and self._has_request_file and self._request_file is not None:
                delete_request(self._request_file)  # it was refused
            raise
        finally:
            self._wake()

    async def _true_within(self, ready: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self.agent.notifier.wait_until(ready)
        except TimeoutError:
            return False
        return True

    # --- its visits, if it does not stay connected ------------------------------------------------------------

    async def _begin_visit(self) -> None:
        self.agent.visits.begin_visit(time.monotonic())
        await self._link.__aenter__()

    async def _visit(self) -> None:
        """Connect as often as the federation asks, until cancelled; a device that should stay connected does."""
        agent, visits = self.agent, self.agent.visits
        while True:
            if visits.is_resting:
                await self._rest()
                await self._begin_visit()
            # Without a last will it cannot stay: nobody would notice a lost connection.
            is_shown = visits.period_s is None
            await agent.notifier.wait_until(partial(self._is_visit_over, is_shown))
            if self._link.failure is not None:
                return  # the link gave up for good
            if visits.period_s is None:
                await self._link.disconnect()
                await self._begin_visit()
                continue
            await agent.end_visit(was_there=is_shown)
            await self._link.disconnect()
            self._emit(Resting(visits.resting_until))

    def _is_visit_over(self, is_shown: bool) -> bool:
        is_to_stay = self.agent.visits.period_s is None
        return (is_to_stay and not is_shown) or time.monotonic() >= self.agent.visit_over_at

    async def _rest(self) -> None:
        """Wait until the next visit is due, or a caller needs the connection."""
        visits = self.agent.visits
        # By the clock, not by one long pause: a machine that slept then notices the time when it wakes up.
        while not visits.n_callers and (rest_s := visits.rest_s()) > 0.0:
            await is_set_within(self._called, min(rest_s, _LONGEST_PAUSE_S))
            self._called.clear()

    @asynccontextmanager
    async def _staying(self, timeout_s: float) -> AsyncIterator[None]:
        """Stay connected for the body, even if the next visit is far away.

        Raises:
            UnavailableError: it had to connect first, and could not.
        """
        visits = self.agent.visits
        visits.n_callers += 1
        try:
            if visits.is_resting:
                self._called.set()
                # The connection of the visit before may be about to end.
                if not await self._true_within(lambda: self._link.connected and not visits.is_resting, timeout_s):
                    await self._link.wait_connected(0.0)
            yield
        finally:
            visits.n_callers -= 1
            self._wake()

    async def _begin_connection(self) -> None:
        await self.agent.begin_connection()
        self._tell_connected()

    def _begin_session(self) -> LastWill | None:
        self._is_connection_told = False
        return self.agent.begin_session()

    def _tell_connected(self) -> None:
        """Report a connection once, before everything that arrives over it."""
        if self._link.connected and not self._is_connection_told:
            self._is_connection_told = True
            self._emit(Connected())

    def _receive(self, message: InboundMessage) -> None:
        self._tell_connected()
        self.agent.receive(message)

    def _wake(self) -> None:
        self.agent.wake.set()
