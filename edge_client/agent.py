"""A device's agent takes what the network brings, decides what the device does about it, and sends what is due.

It is all of a device but the connection and the store's file, which it is given, and the loop that gives it turns.
`edge_client.client.EdgeClient` runs it behind an application.
"""

import asyncio
import random
import threading
import time
from collections.abc import Iterable
from functools import partial

import numpy as np
import numpy.typing as npt

from broker.link import InboundMessage, LastWill, MqttLink
from edge_client.audit_watch import AuditWatch
from edge_client.contribution import Alteration, Contributor
from edge_client.evaluator import Evaluator
from edge_client.events import Forgotten, Observer, quiet
from edge_client.features import Features
from edge_client.federator_watch import FederatorWatch
from edge_client.forgetting import ENROL_AGAIN, Forgetting
from edge_client.gating import DeviceGate
from edge_client.guard.guard import Guard
from edge_client.inbox import Inbox
from edge_client.membership import Membership
from edge_client.messaging.chunk_subscription import ChunkSubscription
from edge_client.messaging.outbox import Outbox
from edge_client.messaging.session import Session
from edge_client.messaging.transfer import ModelInParts
from edge_client.models import Models
from edge_client.participation import Participation
from edge_client.recording import Later, Recorder
from edge_client.serps import Serp, as_features, check_width, clicks_on, make_serp, read_candidates
from edge_client.store.store import DeviceStore
from edge_client.sums.pinned_policy import PinnedPolicy
from edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits
from edge_client.sums.secure_sums import SecureSums
from edge_client.training.loaded_kernels import are_loaded
from edge_client.training.relearning import Relearning
from edge_client.training.trainer import Trainer
from edge_client.training.unlearning_limits import USUAL_LIMITS, UnlearningLimits
from edge_client.training.working_model import Learner, WorkingModel
from edge_client.visits import Visits
from edge_client.votes.anchor import Anchor
from edge_client.votes.voter import Voter
from foltr.errors import MessageError, UnavailableError
from foltr.logs import get_logger
from foltr.operator.credentials import Credentials
from foltr.protocol.explorations import Exploration, NoExploration
from foltr.protocol.schemas import FeatureSchema
from foltr.protocol.topics import ClientTopic

log = get_logger(__name__)

# How long a device that is ready to learn does not know of it.
_LOOK_FOR_KERNELS_S = 0.01


class Agent:
    """Acts for one device, turn by turn.

    Args:
        link: what it publishes by. Whoever makes the link has it call `begin_session` before each connection,
            `begin_connection` once it is up, and `receive` for every message.
        exploration, seed, learner, propensities, guard, gate, votes, evaluation, schema, alter_update,
            unlearning_limits, privacy_limits: as
            `EdgeClient` says, and checked.
        later: see `Recorder`; with it, any thread may rank and record.
        on_event: told what happens.

    Attributes:
        wake: set when there may be something to do in a `turn`.
    """

    def __init__(
        self,
        link: MqttLink,
        store: DeviceStore,
        federation: str,
        client_id: str,
        credentials: Credentials | None = None,
        *,
        exploration: Exploration | None = None,
        seed: int | None = None,
        learner: Learner | None = None,
        propensities: npt.NDArray[np.float64] | None = None,
        guard: float | None = None,
        gate: bool = True,
        votes: bool = True,
        evaluation: bool = True,
        schema: FeatureSchema | None = None,
        alter_update: Alteration | None = None,
        unlearning_limits: UnlearningLimits = USUAL_LIMITS,
        privacy_limits: PrivacyLimits = USUAL_PRIVACY,
        later: Later | None = None,
        on_event: Observer | None = None,
    ) -> None:
        self.federation, self.client_id = federation, client_id
        self.wake = asyncio.Event()
        self._link, self.store = link, store
        self._exploration = exploration
        self.gate = DeviceGate(store, client_id, seed) if gate else None
        self._later = later
        self._tell = quiet(on_event)
        # An erasure and a click do not meet: nothing is stored of a client once it is forgotten.
        self._recording = threading.RLock()
        self._rng = np.random.default_rng(seed)
        # First: with a newer policy than before nothing is pending any more.
        self.policy = PinnedPolicy(credentials, store, client_id, privacy_limits, self._tell)
        self.features = Features(schema, credentials)
        store.schema_hash = self.features.hash
        self.session = Session(federation, client_id, credentials, store)
        pending = self.session.signed_pending_update()
        self.participation = Participation(
            client_id,
            pending,
            random.Random(seed),  # noqa: S311
            self.policy.newest,
            self.features.hash,
            self.policy.bar,
        )
        # Not by the device's seed: a fleet that is simulated with one seed must not come in step.
        self.visits = Visits(federation, client_id, store, self.participation, random.Random())  # noqa: S311
        self._is_shown = False  # as online, until it says otherwise or the broker finds it gone
        device_seed = store.device_seed() if seed is None else seed
        self.trainer = Trainer(
            store,
            self.participation,
            self._rng,
            learner=learner,
            device_seed=device_seed,
            propensities=propensities,
            are_loaded=partial(are_loaded, gated=gate),
        )
        self.relearning = Relearning(self.session, store, self.trainer, device_seed, unlearning_limits)
        self.evaluator = Evaluator(federation, client_id, store, self.participation, enabled=evaluation)
        self._connect_parts(
            alter_update,
            votes,
            None if guard is None else Guard(guard, store, client_id, seed),
            None if credentials is None else credentials.enrolment_bytes,
        )
        if self.forgotten:
            self._drop_everything()
            log.warning("forgotten", client_id=client_id, federation=federation, hint=ENROL_AGAIN)
        else:
            self.voter.restore()
            self.models.restore()
            self.audit.restore()

    def _connect_parts(
        self, alteration: Alteration | None, votes: bool, guard: Guard | None, enrolment: bytes | None
    ) -> None:
        """Make the parts that contribute, record, send and receive, each with those it needs."""
        session, store, participation, trainer = self.session, self.store, self.participation, self.trainer
        model_in_parts, anchor_in_parts = ModelInParts(), ModelInParts()
        chunks = [
            ChunkSubscription(self._link, model_in_parts, session.topics.model_chunk),
            ChunkSubscription(self._link, anchor_in_parts, session.topics.anchor_chunk),
        ]
        anchor = Anchor(session, store, participation, anchor_in_parts)
        self.voter = Voter(store, participation, anchor, trainer.weights_under, self.client_id, enabled=votes)
        sums = SecureSums(self.client_id, session.key, store, self.policy)
        self.contributor = Contributor(
            session, store, participation, trainer, sums, self.voter, self.evaluator, alteration, self.wake.set
        )
        self.models = Models(
            session, store, participation, model_in_parts, trainer, self.contributor, guard, self.voter, self._tell
        )
        self.recorder = Recorder(
            store,
            self.models,
            trainer,
            self.contributor,
            self.voter,
            self.evaluator,
            self.wake.set,
            self._later,
            self.gate,
            self._tell,
        )
        self.outbox = Outbox(self._link, session, participation, chunks, enrolment)
        self.forgetting = Forgetting(self.outbox, session, participation, store, self._tell, self._say_hello)
        self.membership = Membership(self.outbox, session, participation)
        self.watch = FederatorWatch(self.federation, self.client_id)
        self.audit = AuditWatch(self.federation, self.client_id, store, self._tell, remembers=session.key is not None)
        self.inbox = Inbox(
            session,
            self.outbox,
            participation,
            self.policy,
            self.features,
            self.membership,
            self.forgetting,
            self.models,
            self.voter,
            self.evaluator,
            trainer,
            self.contributor,
            self.relearning,
            self.watch,
            self.audit,
            self.visits,
            on_erased=self._be_forgotten,
            on_event=self._tell,
        )

    def believe(self, credentials: Credentials) -> None:
        """Believe the operator by these credentials from now on: its enrolment key has a successor."""
        for part in (self.session, self.policy, self.features):
            part.believe(credentials)

    @property
    def forgotten(self) -> bool:
        """The federation has erased this client."""
        return self.forgetting.forgotten

    @property
    def is_settled(self) -> bool:
        """No update waits for its receipt, nor for being sent at all, nor for kernels to be made by."""
        is_being_made = self.contributor.is_altering or self.contributor.waits_to_join or self.trainer.is_loading
        return self.participation.pending is None and not is_being_made

    @property
    def visit_over_at(self) -> float:
        """When to disconnect if nothing arrives before, in monotonic seconds; infinity for who stays connected."""
        if self.visits.period_s is None:
            return float("inf")  # it stays connected; asked twice in each turn
        if self.forgetting.waiting or self.forgetting.is_clearing:
            return float("inf")  # the answer is not retained, and who was forgotten comes no more
        is_heard = self.participation.joined or self.participation.left or self.membership.refusal is not None
        waits_for_nothing = self.is_settled and self.relearning.due is None and not self.outbox.is_fetching
        return self.visits.over_at(is_done=is_heard and waits_for_nothing)

    async def leave(self, timeout_s: float) -> bool:
        """Leave as `EdgeClient.leave` says."""
        if self.forgetting.state is not None:
            return False  # it says nothing but its wish
        return await self.membership.leave(timeout_s)

    async def end_visit(self, *, was_there: bool) -> None:
        """Go until the next visit.

        Args:
            was_there: the broker retains that this device is connected, which it said before it knew of the pace.
        """
        if was_there and self._link.connected:
            try:
                await self.outbox.clear(ClientTopic.STATUS)
            except UnavailableError as error:
                log.debug("retained_not_cleared", what=str(ClientTopic.STATUS), cause=str(error))
        self.visits.end_visit()
        self.participation.rests = True

    # --- what the application does --------------------------------------------------------------------------

    def rank(
        self,
        features: npt.ArrayLike,
        k: int,
        base: npt.ArrayLike | None = None,
        exploration: Exploration | None = None,
    ) -> Serp:
        """Rank candidate documents as `EdgeClient.rank` says."""
        chosen = self.exploration if exploration is None or self.forgotten else exploration
        with self.trainer.form():
            candidates = read_candidates(self.features.scaled(features), base)
            self.features.look_at(candidates.features, candidates.span)
            return make_serp(candidates, k, self._snapshot(), self._rng, exploration=chosen, gate=self.gate)

    @property
    def exploration(self) -> Exploration | None:
        """How lists are drawn where a call does not say it; None as the federation says."""
        if self.forgotten or (self._exploration is None and self.participation.other_schema is not None):
            # Nothing is learned from it, or not soon: what the federation asks for disturbs nobody's order.
            return NoExploration()
        return self._exploration

    def record_clicks(self, serp: Serp, clicked: Iterable[int]) -> None:
        """Record clicks as `EdgeClient.record_clicks` says."""
        clicks = clicks_on(serp, clicked)
        with self._recording:
            if not self.forgotten:
                self.recorder.record(serp, clicks)

    @property
    def schema_difference(self) -> str | None:
        """Return as `EdgeClient.schema_difference` says."""
        other = self.participation.other_schema
        return None if other is None else self.features.difference(other.schema_hash)

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """Return as `EdgeClient.weights` says."""
        working_model = self._snapshot()
        return None if working_model is None else working_model.weights.copy()

    def scores(self, features: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return as `EdgeClient.scores` says."""
        matrix, working_model = as_features(self.features.scaled(features)), self._snapshot()
        if working_model is None:
            return np.zeros(len(matrix), np.float32)
        check_width(matrix, working_model.n_features)
        with self.trainer.form():
            return working_model.scores(matrix)

    def _snapshot(self) -> WorkingModel | None:
        working_model = self.trainer.working_model
        if working_model is None or self._later is None:
            return working_model  # what ranks and what learns are one thread
        return working_model.snapshot()

    # --- what the network brings ----------------------------------------------------------------------------

    def begin_session(self) -> LastWill | None:
        """Begin the session of the next connection, and return what the broker publishes if that one is lost.

        That is nothing for a visit: nobody asks who is connected.
        """
        self.watch.begin_connection()  # before it: what is retained may come before `begin_connection` is called
        self.participation.is_fresh = False
        self.visits.begin_session()
        will = self.session.begin()
        self._is_shown = self.visits.period_s is None or self.forgotten
        return will if self._is_shown else None

    async def begin_connection(self) -> None:
        """Say hello over a new connection."""
        self.visits.note_reached(time.monotonic())
        self.outbox.begin_connection()
        self.forgetting.begin_connection(time.monotonic())
        await self._say_hello()

    async def _say_hello(self) -> None:
        if not self.participation.left:
            self.participation.begin_connection(time.monotonic())
        if not self.participation.left and self.visits.period_s is None and self._link.connected:
            await self.outbox.publish(ClientTopic.STATUS, self.session.status(online=True), retain=True)
        self.wake.set()

    def receive(self, message: InboundMessage) -> None:
        """Take a message; one that is not from the federator, or cannot be read, is said in the log."""
        self.visits.hear(time.monotonic())
        try:
            self.inbox.take(message)
        except MessageError as error:
            log.warning("message_refused", topic=message.topic, client_id=self.client_id, cause=str(error))
        finally:
            self.wake.set()

    def _be_forgotten(self) -> None:
        """Erase on the device what the federation has erased of this client."""
        is_news = not self.forgotten
        if is_news:
            log.warning("forgotten", client_id=self.client_id, federation=self.federation, hint=ENROL_AGAIN)
        with self._recording:
            self.forgetting.forget()
            self._drop_everything()
        if is_news:
            self._tell(Forgotten())

    def _drop_everything(self) -> None:
        self.policy.forget()
        self.participation.forget()
        self.trainer.forget()
        self.relearning.forget()
        self.models.forget()
        self.voter.forget()
        self.audit.forget()
        self.visits.forget()
        self.recorder.forget()
        if self.gate is not None:
            self.gate.forget()

    # --- what it does of itself -----------------------------------------------------------------------------

    async def turn(self) -> None:
        """Learn what waited for kernels, and send what is due; an unreachable broker only makes it later."""
        self._learn_what_waited()
        if self._link.connected:
            self.visits.look()
            self.watch.look(time.monotonic())
            await self.forgetting.send_due(time.monotonic())
            await self.outbox.send_due()
            await self.outbox.send_relearned(self.relearning)
        await self.forgetting.finish(connected=self._link.connected)

    def _learn_what_waited(self) -> None:
        try:
            if self.trainer.look():
                self.contributor.contribute()
        except Exception:
            # The device's turns are all that sends: they go on, and what waits is learned with the next model.
            log.exception("waiting_clicks_not_learned", client_id=self.client_id)

    def next_due_at(self) -> float:
        """Return when the next `turn` will have something to send, if nothing happens before; monotonic seconds."""
        due_at = float("inf")
        if self._link.connected:
            due_at = min(self.outbox.next_due_at(), self.forgetting.next_due_at())
        return min(due_at, time.monotonic() + _LOOK_FOR_KERNELS_S) if self.trainer.is_loading else due_at

    async def say_goodbye(self) -> None:
        """Tell the federation that this device goes offline. Raises UnavailableError as `Outbox.publish` does."""
        is_member = not self.participation.left
        if (is_member and self.visits.period_s is None) or self.forgetting.waiting:
            await self.outbox.publish(ClientTopic.STATUS, self.session.status(online=False), retain=True)
        elif is_member and self._is_shown and not self.forgotten:
            # It heard of the pace in its first visit, and goes before that is over: nobody else would take back that
            # it is online.
            await self.outbox.clear(ClientTopic.STATUS)
        await self.forgetting.finish(connected=True)
