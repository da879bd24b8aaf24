"""A device runs in one event loop: its connection, its agent, and the task that gives the agent its turns."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from broker.believed import BelievedAuthorities
from broker.link import InboundMessage, LastWill, MqttLink
from edge_client.agent import Agent
from edge_client.events import Connected, Observer, Resting, quiet
from edge_client.forgetting import ENROL_AGAIN, ForgetResult
from edge_client.hindrances import Hindrance, hindrance_of, is_lasting
from edge_client.messaging.outbox import is_set_within
from edge_client.news import News
from edge_client.options import DeviceOptions
from edge_client.recording import Later
from edge_client.store.store import DeviceStore
from foltr.erasure.states import ForgetState
from foltr.errors import DataError, FoltrError, MessageError, UnavailableError, UsageError
from foltr.logs import get_logger
from foltr.operator.credentials import Credentials
from foltr.operator.wish_file import drop_wish, is_kept
from foltr.protocol.announcements import RoundAnnouncement
from foltr.protocol.topics import ClientTopic, Topics
from foltr.protocol.trainings import PdgdTraining

log = get_logger(__name__)

SERP_LENGTH = PdgdTraining().serp_length
"""How many documents are shown as long as no federation has said it."""
_GOODBYE_S = 2.0
_LONGEST_PAUSE_S = 60.0


class Runtime:
    """Runs one device.

    Args:
        on_event: told what happens, in the thread of the event loop.

    Raises:
        SettingsError: the address holds certificates that cannot be used; nothing was opened yet.
    """

    def __init__(self, options: DeviceOptions, on_event: Observer | None = None) -> None:
        self.options = options
        self._tell = quiet(on_event)
        self._link = self._make_link(options)
        self._agent: Agent | None = None
        self._authorities: BelievedAuthorities | None = None
        self._credentials = options.credentials
        self._turns: asyncio.Task[None] | None = None
        self._visiting: asyncio.Task[None] | None = None
        self._called, self._is_connection_told = asyncio.Event(), False
        self._last_hindrance: Hindrance | None = None  # as the last visit ended
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._news = News()

    def _make_link(self, options: DeviceOptions) -> MqttLink:
        topics = Topics(options.federation)
        return MqttLink(
            options.address,
            # No name holds a colon, so no two share an id.
            client_id=f"foltr:{options.federation}:{options.client_id}",
            subscriptions=(
                # The first ones first: whose keys the others are signed with, and what may be sent, depends on them.
                *(topics.operator_key, topics.federator_key, topics.policy, topics.schema, topics.authorities),
                # And the anchor, and whether evaluations are asked for, before the round, by which they count.
                *((topics.anchor,) if options.votes else ()),
                *((topics.evaluation,) if options.evaluation else ()),
                # So is how often to come by.
                *(topics.pace, topics.model, topics.round, topics.unlearning_round),
                *(topics.federator_status, topics.audit_head),
                topics.client(options.client_id, ClientTopic.INBOX),
            ),
            on_message=self._receive,
            on_connected=self._begin_connection,
            last_will=self._begin_session,
            # The retained topics hold all a returning device needs, and what it missed it asks for by
            # resending; a broker should not queue every round for every device that is switched off.
            persistent=False,
            give_up_after_s=options.give_up_after_s,
            on_failed=self._wake,
        )

    # --- its life -------------------------------------------------------------------------------------------

    def open(self, store: DeviceStore, later: Later | None = None) -> None:
        """Make the agent on an open store. It ranks and records from here on; it is not connected yet.

        Args:
            later: see `Recorder`.
        """
        options = self.options
        credentials = self._credentials = self._with_stored_succession(store)
        if self._is_asked_beside and not store.forgotten and store.forget_state() is None:
            store.put_forget_state(ForgetState.ASKED)
        operator = None if credentials is None else credentials.operator_keys
        kept = None if store.forgotten else store.authorities()
        self._authorities = BelievedAuthorities(self._link, operator, options.federation, kept)
        self._agent = Agent(
            self._link,
            store,
            options.federation,
            options.client_id,
            credentials,
            exploration=options.exploration,
            seed=options.seed,
            learner=options.learner,
            propensities=options.propensities,
            guard=options.guard,
            gate=options.gate,
            votes=options.votes,
            evaluation=options.evaluation,
            schema=options.schema,
            alter_update=options.alter_update,
            unlearning_limits=options.unlearning_limits,
            privacy_limits=options.privacy_limits,
            later=later,
            on_event=self._tell,
        )

    @property
    def _is_asked_beside(self) -> bool:
        """Whether `foltr erasure request --credentials` has asked, perhaps while this device was off."""
        options = self.options
        beside, own = options.wish_file, options.credentials
        return beside is not None and own is not None and is_kept(beside, own)

    async def start(self) -> None:
        """Connect, and give the agent its turns, in the loop that this is called in."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        visits = self.agent.visits
        visits.begin_overdue()
        if visits.rest_s() <= 0.0 or visits.period_s is None or self.agent.forgetting.waiting:
            await self._begin_visit()
        else:
            visits.is_resting = self.agent.participation.rests = True
        self._turns = asyncio.create_task(self._give_turns(), name=f"agent-{self.options.client_id}")
        self._visiting = asyncio.create_task(self._visit(), name=f"visits-{self.options.client_id}")

    async def stop(self) -> None:
        """Say goodbye and disconnect."""
        if self._turns is None:
            return
        tasks = [task for task in (self._turns, self._visiting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self.agent.contributor.close()
            if self._link.connected:
                async with asyncio.timeout(_GOODBYE_S):
                    await self.agent.say_goodbye()
        except (UnavailableError, TimeoutError):
            log.debug("goodbye_not_sent", client_id=self.options.client_id)
        finally:
            await self._link.__aexit__()

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            raise UsageError(
                f"client {self.options.client_id} was not entered yet: `async with EdgeClient(...) as client:`"
            )
        return self._agent

    @property
    def connected(self) -> bool:
        return self._link.connected

    @property
    def federator_online(self) -> bool | None:
        """Return as `EdgeClient.federator_online` says."""
        return self.agent.watch.online(time.monotonic()) if self.connected else None

    @property
    def hindrance(self) -> Hindrance | None:
        """Return as `EdgeClient.hindrance` says."""
        if self.agent.visits.period_s is not None and not self.connected and not self.agent.forgotten:
            return self._last_hindrance  # between two visits, or at the beginning of one
        return hindrance_of(self._link, self.agent, time.monotonic())

    @property
    def was_started(self) -> bool:
        return self._loop is not None

    def check_thread(self) -> None:
        """Raise UsageError in any thread but the event loop's."""
        if self.was_started and threading.get_ident() != self._thread:
            raise UsageError(
                f"client {self.options.client_id} is of another thread: an EdgeClient belongs to the event loop that "
                "entered it. Call it there, or use a SearchRanker, which all threads may"
            )

    # --- its visits, where it does not stay connected ---------------------------------------------------------

    async def _begin_visit(self) -> None:
        self.agent.visits.begin_visit(time.monotonic())
        await self._link.__aenter__()

    async def _visit(self) -> None:
        """Come by as often as the federation asks, until cancelled; who is to stay connected does so for ever."""
        agent, visits = self.agent, self.agent.visits
        while True:
            if visits.is_resting:
                await self._rest()
                await self._begin_visit()
            # Without a last will it cannot stay: nobody would hear that the connection was lost.
            is_shown = visits.period_s is None
            await self._news.wait_until(partial(self._is_visit_over, is_shown))
            if self._link.failure is not None:
                return  # it was given up for good
            if visits.period_s is None:
                await self._link.rest()
                await self._begin_visit()
                continue
            self._last_hindrance = hindrance_of(self._link, agent, time.monotonic())
            await agent.end_visit(was_there=is_shown)
            await self._link.rest()
            self._tell(Resting(visits.resting_until))

    def _is_visit_over(self, is_shown: bool) -> bool:
        is_to_stay = self.agent.visits.period_s is None
        return (is_to_stay and not is_shown) or time.monotonic() >= self.agent.visit_over_at

    async def _rest(self) -> None:
        """Return when the next visit is due, or somebody calls for it."""
        visits = self.agent.visits
        # By the clock, and not by one long pause: a machine that slept knows better when it wakes up.
        while not visits.is_called and (rest_s := visits.rest_s()) > 0.0:
            await is_set_within(self._called, min(rest_s, _LONGEST_PAUSE_S))
            self._called.clear()

    @asynccontextmanager
    async def _staying(self, timeout_s: float) -> AsyncIterator[None]:
        """Be connected for as long as this lasts, also where the next visit is far away.

        Raises:
            UnavailableError: it had to connect first, and could not.
        """
        visits = self.agent.visits
        visits.stay()
        try:
            if visits.is_resting:
                self._called.set()
                # The connection of the visit before may be about to end.
                if not await self._true_within(lambda: self._link.connected and not visits.is_resting, timeout_s):
                    await self._link.wait_connected(0.0)
            yield
        finally:
            visits.let_go()
            self._wake()

    # --- what is waited for ---------------------------------------------------------------------------------

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait as `EdgeClient.wait_connected` says."""
        self._check_loop()
        if not self.agent.visits.is_resting:
            await self._link.wait_connected(timeout_s)

    async def next_round(self, after: int, timeout_s: float) -> RoundAnnouncement:
        """Wait as `EdgeClient.next_round` says."""
        self._check_loop()
        agent, federation, client_id = self.agent, self.options.federation, self.options.client_id

        def ready() -> bool:
            if agent.forgotten:
                raise UnavailableError(f"client {client_id} of {federation!r} was forgotten: {ENROL_AGAIN}")
            if agent.membership.refusal is not None and self.hindrance is not None:
                raise UnavailableError(f"client {client_id} of {federation!r}: {self.hindrance.in_words}")
            if self._link.failure is not None:
                raise self._link.failure
            round_ = agent.participation.round
            if round_ is None or (round_.open and round_.round <= after):
                return False  # as after most turns
            at_hand = agent.models.at_hand()
            if not at_hand:
                return False
            if not round_.open:
                # A last round that was there before us says nothing about what is to come.
                return round_.last and 0 < after <= round_.round
            return round_.base_version in at_hand and not agent.trainer.is_loading

        if not await self._true_within(ready, timeout_s):
            there = f"the federator of {federation!r} is there; what it waits for says, where it runs, foltr rounds why"
            cause = there if self.hindrance is None else self.hindrance.in_words
            if agent.trainer.is_loading:
                cause = "numba compiles what it learns by, which takes many seconds once after an install or upgrade"
            raise UnavailableError(f"client {client_id}: no round after {after} within {timeout_s:g} s: {cause}")
        round_ = agent.participation.round
        if round_ is None:
            raise RuntimeError("a round was announced and is gone")
        return round_

    async def wait_settled(self, timeout_s: float) -> bool:
        """Wait as `EdgeClient.wait_settled` says."""
        self._check_loop()
        agent = self.agent
        # Who is not taken in waits in vain, and who asked to be forgotten, too.
        await self._true_within(
            lambda: agent.is_settled or is_lasting(agent.membership.refusal) or agent.forgetting.waiting, timeout_s
        )
        return agent.is_settled

    async def leave(self, timeout_s: float) -> bool:
        """Leave as `EdgeClient.leave` says."""
        self._check_loop()
        async with self._staying(timeout_s):
            return await self.agent.leave(timeout_s)

    async def forget_me(self, timeout_s: float) -> ForgetResult:
        """Ask as `EdgeClient.forget_me` says."""
        self._check_loop()
        forgetting = self.agent.forgetting
        forgetting.begin()
        try:
            async with self._staying(timeout_s):
                return await forgetting.ask(timeout_s)
        except UnavailableError:
            return forgetting.result  # no broker: the wish is kept
        except FoltrError:
            if forgetting.state is None and self._is_asked_beside and self.options.wish_file is not None:
                drop_wish(self.options.wish_file)  # it was refused
            raise
        finally:
            self._wake()

    def _check_loop(self) -> None:
        _ = self.agent
        if self.was_started and asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                f"client {self.options.client_id} is of another event loop: an EdgeClient belongs to the one that "
                "entered it. Call it there, or use a SearchRanker, which needs none"
            )

    async def _true_within(self, ready: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait_until(ready)
        except TimeoutError:
            return False
        return True

    # --- what runs behind it: the link is made before the agent, and connects when there is one ---------------

    async def _begin_connection(self) -> None:
        await self.agent.begin_connection()
        self._tell_connected()

    def _begin_session(self) -> LastWill | None:
        self._is_connection_told = False
        return self.agent.begin_session()

    def _tell_connected(self) -> None:
        """Tell of a connection once, before all that comes over it."""
        if self._link.connected and not self._is_connection_told:
            self._is_connection_told = True
            self._tell(Connected())

    def _receive(self, message: InboundMessage) -> None:
        agent, topic = self.agent, message.topic
        if not self._is_connection_told:
            self._tell_connected()
        if topic == agent.session.topics.authorities:
            self._take_authorities(message.payload)
        elif topic == agent.session.topics.operator_key:
            self._take_succession(message.payload)
        else:
            agent.receive(message)

    def _with_stored_succession(self, store: DeviceStore) -> Credentials | None:
        """The credentials, believing the enrolment key that followed from theirs, as far as the store knows."""
        stored = None if store.forgotten else store.succession()
        if stored is None or self.options.credentials is None:
            return self.options.credentials
        try:
            return self.options.credentials.with_succession(stored)
        except MessageError:
            return self.options.credentials  # written since, or by another operator

    def _take_succession(self, payload: bytes) -> None:
        """Believe the operator's newest enrolment key, and what former ones have signed only where that says so."""
        agent, known = self.agent, self._credentials
        if known is None or agent.forgotten or not payload:
            return
        try:
            newer = known.with_succession(payload)
            if newer.succession == known.succession:
                return
            agent.store.put_succession(payload)
        except (MessageError, DataError) as error:
            log.warning("succession_not_taken", client_id=self.options.client_id, cause=str(error))
            return
        self._credentials = newer
        agent.believe(newer)
        if self._authorities is not None:
            self._authorities.operator = newer.operator_keys
        log.info("enrolment_key_rotated", client_id=self.options.client_id)

    def _take_authorities(self, payload: bytes) -> None:
        """Know the broker as the operator says from the next connection on, and remember it."""
        agent = self.agent
        try:
            kept = None if self._authorities is None or agent.forgotten else self._authorities.take(payload)
            if kept is not None:
                agent.store.put_authorities(kept)
        except (MessageError, DataError) as error:
            # The broker has it for the next start, too.
            log.warning("authorities_not_taken", client_id=self.options.client_id, cause=str(error))

    def _wake(self) -> None:
        self.agent.wake.set()

    async def _give_turns(self) -> None:
        """Give the agent its turns, until cancelled."""
        agent, loop = self.agent, asyncio.get_running_loop()
        alarm: asyncio.TimerHandle | None = None

        def ring() -> None:
            nonlocal alarm
            alarm = None
            agent.wake.set()

        try:
            while True:
                agent.wake.clear()
                await agent.turn()
                self._news.look()
                pause = min(min(agent.next_due_at(), self._look_at()) - time.monotonic(), _LONGEST_PAUSE_S)
                # One that rings too early costs a turn without anything to do, once; to set it anew in each turn costs
                # more than all else that such a turn does.
                if alarm is None or loop.time() + pause < alarm.when():
                    if alarm is not None:
                        alarm.cancel()
                    alarm = loop.call_later(pause, ring)
                await agent.wake.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    def _look_at(self) -> float:
        """When to look whether the visit is over; while it rests `_rest` does."""
        return float("inf") if self.agent.visits.is_resting else self.agent.visit_over_at
