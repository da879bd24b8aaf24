"""A federator process: the actor, its link to the broker, and how they start and end together."""

import asyncio
import contextlib
import math
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from foltr.broker.address import BrokerAddress
from foltr.broker.buffer import IntakeLimits
from foltr.broker.link import InboundMessage, LastWill, MqttLink
from foltr.broker.trusted_cas import TrustedCas
from foltr.core.alive_file import NO_ALIVE_FILE, AliveFile
from foltr.core.errors import MessageError, SettingsError, UnavailableError, first_cause
from foltr.core.operator.credentials import FEDERATOR_USER
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.signing import EpochSequence, SigningKey
from foltr.core.protocol.states import OPEN_ROUND, TakesUpdates
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.actor import FederationActor
from foltr.federator.clock import Clock, SteadyClock
from foltr.federator.deciding.state import KeyReplacedError
from foltr.federator.group_watch import GroupWatch
from foltr.federator.leading.keeper import LeaseKeeper, new_holder
from foltr.federator.leading.standby import Standby
from foltr.federator.measures import FederatorMeasures
from foltr.federator.plan import FederationPlan
from foltr.federator.predecessor import Predecessor
from foltr.federator.publishing.announcements import Announcer, ReceiptSender
from foltr.federator.publishing.answer_numbers import AnswerNumbers
from foltr.federator.publishing.heartbeat import INTERVAL_S, Heartbeat
from foltr.federator.publishing.retained import RetainedTopics
from foltr.federator.resumption import create, require_fit
from foltr.federator.self_check import SelfCheck
from foltr.federator.store import FederationStore
from foltr.federator.summing.helper_statuses import HelperStatuses, helper_findings
from foltr.federator.transaction_metrics import TransactionMetrics
from foltr.federator.waiting import wait_for_broker
from foltr.federator.worker_sharing import WorkerSharing
from foltr.storage.database import Database, is_transient
from foltr.storage.leases import LEASE_S, Claimant, end_stale_sessions

log = structlog.get_logger(__name__)

_LAST_WORDS_S = 10.0
# One turn ends a round, or waits a minute for the database; longer means a fault.
_LONGEST_TURN_S = 300.0
_KEYS_EVERY_S, _KEYS_RARELY_S = 10.0, 600.0
# A standby that reaches no broker for so long leaves the lease to another.
_NO_BROKER_S = 10.0


class FederatorService:
    """Runs one federation until it is stopped or its last round has ended.

    Args:
        key: signs everything the federator sends; None signs nothing.
        give_up_after_s: how long the broker may be away before `run` raises UnavailableError; None: for ever.
        beat_every_s: how often it announces that it is online.
        alive_file: touched with each beat, unless one turn has delayed messages and rounds for minutes.
        shares: whether ingest workers take updates (`foltr.federator.worker_sharing`).
        standby: wait until the federation's lease is free; else take over from the present leader.

    Attributes:
        measures: counted from the beginning; `read_measures` updates those of the present state.
    """

    def __init__(
        self,
        plan: FederationPlan,
        db: Database,
        address: BrokerAddress,
        *,
        key: SigningKey | None = None,
        give_up_after_s: float | None = None,
        intake_limits: IntakeLimits | None = None,
        beat_every_s: float = INTERVAL_S,
        alive_file: AliveFile = NO_ALIVE_FILE,
        shares: bool = False,
        standby: bool = False,
    ) -> None:
        if shares and plan.secure is not None:
            raise SettingsError("role: the updates of secure sums go to the federator itself; start it with --role all")
        topics = Topics(plan.federation)
        self._plan, self._db, self._key = plan, db, key
        self._federation = plan.federation
        self._holder = db.process or new_holder()
        self._standby = Standby(db, plan.federation, self._holder, alive_file) if standby else None
        self._lease: LeaseKeeper | None = None
        self._sequence = EpochSequence()
        self._predecessor = Predecessor(topics, key)
        signer = Signer(key, self._sequence)
        link = partial(
            MqttLink,
            address,
            client_id=f"foltr-federator:{plan.federation}",
            on_message=self._receive,
            # The broker holds updates while the federator is down.
            persistent=True,
            give_up_after_s=give_up_after_s,
        )
        # The first one subscribes to nothing, or retained messages would come twice.
        self._new_first_link = partial(link, subscriptions=())
        self._first_link = self._new_first_link()
        self._link = link(
            subscriptions=_subscriptions(plan, topics, shares=shares),
            before_connecting=self._confirm_lease,
            on_connected=self._on_connected,
            last_will=self._last_will,
        )
        self._topics, self._comes_by = topics, plan.pace is not None
        self._unsubscribing: asyncio.Task[None] | None = None
        self._authorities = TrustedCas(self._link, plan.enrolment_key, plan.federation)
        self._stopped, self._has_started = asyncio.Event(), False
        numbers = AnswerNumbers() if shares else None
        self._receipts = ReceiptSender(self._link, topics, signer, numbers)
        self._retained = RetainedTopics(self._link, signer)
        self.measures = FederatorMeasures(plan.federation)
        self._clock = SteadyClock()
        takes_updates = TakesUpdates.LEADER if shares else TakesUpdates.WRITER
        claimant = Claimant(self._holder, takes_over=not standby)
        clock = self._clock
        self._store = FederationStore(
            db, plan.federation, claimant, takes_updates, plan.database_patience_s, TransactionMetrics(self.measures)
        )
        sharing = None
        if numbers is not None:
            asks = plan.asks_for_evaluation
            sharing = WorkerSharing(self._store, clock, self._receipts, numbers, evaluation=asks)
        self._shares = shares
        self._actor = FederationActor(
            plan,
            self._store,
            self._receipts,
            clock,
            intake_limits,
            retained=self._retained,
            key=key,
            requests=self._receipts,
            sharing=sharing,
        )
        self._helper_statuses = HelperStatuses(topics, lambda: self._actor.state.policy if self._has_started else None)
        self._group_watch = None
        if sharing is not None:
            self._group_watch = GroupWatch(topics, self._link, sharing, self._actor.batches.note_undelivered)
        self._announcer = Announcer(self._link, topics, signer, self._actor.batches.model_published)
        self._check = SelfCheck(
            self._holder,
            lambda: self._link if self._has_started else self._first_link,
            _folders(db),
            ahead_s=lambda: 0.0 if self._lease is None else self._lease.ahead_s,
            undelivered=lambda: None if self._group_watch is None else self._group_watch.unanswered,
            helpers=lambda: helper_findings(self._helper_statuses.offline, self._actor.awaited_helpers),
        )
        self._alive_file = alive_file
        self._heartbeat = Heartbeat(
            self._link, topics, key, clock, self._store.require_writer, beat_every_s, on_beat=self._note_beat
        )

    async def run(self, on_started: Callable[[], None] | None = None) -> None:
        """Serve. Raises UnavailableError, WriterFencedError or SettingsError when it cannot go on."""
        try:
            await self._end_stale_sessions()
            # Before this process connects as the federator: another one may lead, and must not notice.
            await require_fit(self._store, self._plan, self._key, self._clock.now())
            if self._shares and self._db.keys is not None:
                self._db.keys.make_folder()
            if self._standby is not None:
                await create(self._store, self._plan, self._clock.now())
            while not self._stopped.is_set():
                if self._standby is not None and not await self._standby.wait_for_lease(self._stopped):
                    return
                keeper = LeaseKeeper(self._db, self._federation, self._holder, self._is_healthy, self._check)
                self._lease = keeper
                async with keeper:
                    if await self._lead(keeper, on_started):
                        return
                await self._pause()
        except BaseExceptionGroup as group_error:
            # One task's failure cancels the others; raise its own error.
            raise first_cause(group_error) from group_error

    async def _lead(self, keeper: LeaseKeeper, on_started: Callable[[], None] | None) -> bool:
        """Claim the federation and serve it to the end; False if nothing was claimed."""
        try:
            if not await self._claim(keeper):
                return False
            await self._serve(keeper, on_started)
        except (Exception, BaseExceptionGroup) as error:
            cause = first_cause(error) if isinstance(error, BaseExceptionGroup) else error
            # Before giving up the lease: afterwards another process may rightly have it.
            told = await keeper.cause_of(cause)
            if told is error:
                raise
            raise told from error
        return True

    async def _end_stale_sessions(self) -> None:
        """End a hanging leader's transactions: otherwise this one's first transaction would wait for them."""
        try:
            await end_stale_sessions(self._db, self._federation)
        except Exception as error:
            if not is_transient(error):
                raise

    async def _claim(self, keeper: LeaseKeeper) -> bool:
        """Claim the federation; False if `stop` came first, or if a standby reaches no broker."""
        self._first_link = self._new_first_link()
        async with self._first_link:
            # Claiming stops another federator, so only once a broker is available.
            if not await wait_for_broker(
                self._first_link, self._stopped, math.inf if self._standby is None else _NO_BROKER_S
            ):
                return False
            await self._predecessor.listen(self._first_link)
            self._clock.read()
            former = self._predecessor
            await self._actor.start(former.epoch, former.audit_head, self._holder, former.round)
        keeper.note_claimed()
        return True

    async def _serve(self, keeper: LeaseKeeper, on_started: Callable[[], None] | None) -> None:
        self._has_started = True
        self._sequence.begin(self._actor.epoch)
        self._heartbeat.begin(self._actor.epoch)
        # Connect again: the broker takes a last will at connection, and this one is signed under the claim.
        async with self._link, self._heartbeat, asyncio.TaskGroup() as group:
            await wait_for_broker(self._link, self._stopped)
            self._actor.attach(self._announcer)
            tasks = [
                group.create_task(keeper.wait_lost()),
                group.create_task(self._heartbeat.run()),
                group.create_task(self._announcer.run()),
                group.create_task(self._receipts.run()),
                group.create_task(self._retained.run()),
                group.create_task(self._link.wait_failed()),
                group.create_task(self._look_for_keys()),
                group.create_task(self._check.watch_certificate()),
            ]
            if self._group_watch is not None:
                tasks.append(group.create_task(self._group_watch.run()))
            if on_started is not None:
                on_started()
            await self._actor.run()
            await self._publish_offline_status()
            await self._actor.close()
            for task in tasks:
                task.cancel()
            if self._actor.is_replaced:
                raise KeyReplacedError(self._federation)

    async def _pause(self) -> None:
        if not self._stopped.is_set():
            pause_s = random.uniform(1, 2) * LEASE_S  # noqa: S311 (spreads standbys, no secret)
            log.warning("lease_released", broker=str(self._link.address), pause_s=round(pause_s, 1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopped.wait()

    async def _look_for_keys(self) -> None:
        """Find the clients without a data key, now and then: at start, and until they are forgotten again."""
        while True:
            with suppress(UnavailableError):
                self._check.keyless = await self._store.clients_without_key()
            await asyncio.sleep(_KEYS_EVERY_S if self._check.keyless else _KEYS_RARELY_S)

    async def _confirm_lease(self) -> None:
        """Check that no other federator leads: connecting would disconnect the one that serves in this session."""
        if self._lease is not None:
            await self._lease.confirm()

    def _is_healthy(self) -> bool:
        return self._actor.turning_for_s < _LONGEST_TURN_S

    async def _publish_offline_status(self) -> None:
        """Make sure that the broker has the newest model and all receipts are sent.

        Raises:
            UnavailableError: the last round has ended and its model could not be published.
        """
        published = await self._announcer.wait_settled(_LAST_WORDS_S)
        if published:
            await self._receipts.wait_sent(_LAST_WORDS_S)
            await self._retained.wait_settled(_LAST_WORDS_S)
            await self._actor.batches.commit_deferred()
        elif self._actor.finished:
            raise UnavailableError(
                f"MQTT broker {self._link.address}: the last round is stored but not announced. "
                "Start the federator again once the broker is back: it announces it"
            )

    def stop(self) -> None:
        self._stopped.set()
        self._actor.stop()

    def read_measures(self) -> FederatorMeasures:
        """Return the measures, up to date; in the event loop."""
        self.measures.leads.set(float(self._has_started and self._lease is not None and self._lease.leads))
        stands_by = self._standby is not None and self._standby.waits
        is_connected = self._link.connected or self._first_link.connected
        self.measures.broker_up.set(None if stands_by else float(is_connected))
        if self._group_watch is not None:
            self.measures.swallowed.set(self._group_watch.unanswered)
        if self._has_started:
            read_actor(self.measures, self._actor, self._clock)
        return self.measures

    def _receive(self, message: InboundMessage) -> None:
        if message.topic == self._topics.authorities:
            self._take_authorities(message.payload)
        elif self._group_watch is not None and message.topic == self._group_watch.answers_on:
            self._group_watch.receive(message)
        elif message.topic in self._predecessor.topics:
            self._predecessor.receive(message)
        elif self._topics.is_helper_status(message.topic):
            self._helper_statuses.receive(message.payload)
        else:
            if self._topics.is_helpers(message.topic):
                self._helper_statuses.receive_answer(message.payload)
            self.measures.note_message(message.topic)
            self._actor.receive(message)

    def _take_authorities(self, payload: bytes) -> None:
        """Trust the broker by the operator's authorities until this process ends; the next one uses its credentials."""
        try:
            self._authorities.accept(payload)
        except MessageError as error:
            log.warning("trusted_cas_refused", cause=str(error))

    def _note_beat(self) -> None:
        if self._is_healthy():
            self._alive_file.touch()

    def _last_will(self) -> LastWill | None:
        return self._heartbeat.last_will()

    async def _on_connected(self) -> None:
        log.info("broker_connected", broker=str(self._link.address))
        if self._shares:
            # The broker remembers the subscription of a federator without workers.
            await self._link.unsubscribe([self._topics.client("+", ClientTopic.UPDATES)])
        self._announcer.announce_again()
        self._retained.put_again()
        self._heartbeat.beat_now()
        if self._comes_by:
            self._unsubscribing = asyncio.create_task(self._hear_no_status())

    async def _hear_no_status(self) -> None:
        """End the subscription of a former federator whose devices stayed connected: the broker keeps it.

        Not every broker answers if the subscription does not exist.
        """
        with suppress(UnavailableError):
            await self._link.unsubscribe([self._topics.statuses])


def _folders(db: Database) -> list[Path]:
    """Return the folders that the process writes to: of the data keys, and of the database if it is a file."""
    keys = [] if db.keys is None else [db.keys.folder]
    return keys if db.dialect != "sqlite" else [Path(db.engine.url.database or "").absolute().parent, *keys]


def _subscriptions(plan: FederationPlan, topics: Topics, *, shares: bool) -> tuple[str, ...]:
    passed_over = set[str]()
    if shares:
        passed_over.add(topics.client("+", ClientTopic.UPDATES))
    if plan.pace is not None:
        # No device is online, and every device's status would arrive at each connection.
        passed_over.add(topics.statuses)
    from_clients = [topic for topic in topics.from_all_clients() if topic not in passed_over]
    if shares:
        from_clients.append(topics.probe_answer(FEDERATOR_USER))
    usual = (*from_clients, topics.roster, topics.roster_chunks, topics.operator, topics.authorities)
    of_helpers = (topics.helper_answers("+"), topics.helper_status("+"))
    return usual if plan.secure is None else (*usual, topics.policy, *of_helpers)


def read_actor(measures: FederatorMeasures, actor: FederationActor, clock: Clock) -> None:
    """Measure the present state of a started actor. In the event loop: nothing changes meanwhile."""
    measures.turning.set(actor.turning_for_s)
    measures.waiting.set(len(actor.intake))
    counts = actor.state.members.count()
    measures.clients.set(counts.n_members, "member")
    measures.clients.set(counts.n_online, "online")
    measures.clients.set(counts.n_quarantined, "quarantined")
    measures.model_version.set(actor.rounds.model.version)
    current = actor.state.round
    for state in OPEN_ROUND:
        measures.round_state.set(None if current is None else float(current.state is state), state)
    measures.round_number.set(None if current is None else current.number)
    measures.round_opened.set(None if current is None else current.opened_at)
    measures.round_updates.set(None if current is None else len(current.contributions))
    measures.round_quorum.set(None if current is None else current.policy.min_clients)
    overdue = 0.0 if current is None or math.isinf(current.closes_at) else clock.now() - current.closes_at
    measures.round_overdue.set(None if current is None else max(0.0, overdue))
