"""The parts of a device, each made with the parts it needs."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

import numpy as np

from foltr.broker.link import MqttLink
from foltr.core.protocol.explorations import Exploration, NoExploration
from foltr.edge_client.audit_watch import AuditWatch
from foltr.edge_client.contribution import Contributor, Reports
from foltr.edge_client.evaluator import Evaluator
from foltr.edge_client.events import Observer, logging_errors_of
from foltr.edge_client.features import Features
from foltr.edge_client.federator_watch import FederatorWatch
from foltr.edge_client.forgetting import Forgetting
from foltr.edge_client.gating import DeviceGate
from foltr.edge_client.membership import Membership
from foltr.edge_client.messaging.outbox import ChunkSubscription, Outbox
from foltr.edge_client.messaging.transfer import ChunkedModel
from foltr.edge_client.models import Models
from foltr.edge_client.options import DeviceOptions, checked_exploration, checked_propensities
from foltr.edge_client.participation import Participation
from foltr.edge_client.recording import Later, Recorder
from foltr.edge_client.session import Session
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.sums.pinned_policy import PinnedPolicy
from foltr.edge_client.sums.secure_sums import SecureSums
from foltr.edge_client.training.loaded_kernels import are_loaded
from foltr.edge_client.training.relearning import Relearning
from foltr.edge_client.training.trainer import Trainer
from foltr.edge_client.trust import Trust
from foltr.edge_client.visits import Visits
from foltr.edge_client.votes.anchor import Anchor
from foltr.edge_client.votes.voter import Voter


class DeviceComponents:
    """The parts of one device, used by `foltr.edge_client.agent.Agent`.

    Args:
        say_hello: see `Forgetting`.
        later: see `Recorder`.

    Attributes:
        wake: set when there may be something to do.
    """

    def __init__(
        self,
        link: MqttLink,
        store: DeviceStore,
        options: DeviceOptions,
        say_hello: Callable[[], Awaitable[None]],
        later: Later | None,
        on_event: Observer | None,
    ) -> None:
        ranking, privacy, seed = options.ranking, options.privacy, options.experiment.seed
        self.federation, self.client_id = federation, client_id = options.federation, options.client_id
        self.link, self.store = link, store
        self.wake = asyncio.Event()
        self.emit = logging_errors_of(on_event)
        self._exploration = checked_exploration(ranking.exploration)
        self.gate = DeviceGate(store, client_id, seed) if ranking.gate else None
        self.trust = trust = Trust(options.credentials, store, link)
        # First: a newer policy than before clears the pending update.
        self.policy = PinnedPolicy(trust, store, client_id, privacy.privacy_limits, self.emit)
        self.features = Features(options.schema, trust)
        store.schema_hash = self.features.hash
        store.wait_for_clicks(privacy.click_window_s)
        self.session = session = Session(federation, client_id, trust, store)
        self.participation = participation = Participation(
            client_id,
            session.signed_pending_update(),
            random.Random(seed),  # noqa: S311
            self.policy.newest,
            self.features.hash,
            self.policy.objection,
            store.settled_round(),
        )
        # Not by the device's seed: a fleet that is simulated with one seed must not come in step.
        self.visits = Visits(federation, client_id, store, participation, random.Random())  # noqa: S311
        device_seed = store.device_seed() if seed is None else seed
        self.rng = np.random.default_rng(seed)
        self.trainer = Trainer(
            store,
            participation,
            self.rng,
            learner=options.experiment.learner,
            device_seed=device_seed,
            propensities=checked_propensities(ranking.propensities),
            gated=ranking.gate,
            are_loaded=partial(are_loaded, gated=ranking.gate),
        )
        self.relearning = Relearning(session, store, self.trainer, device_seed, privacy.unlearning_limits)
        self.evaluator = Evaluator(
            federation, client_id, store, participation, self.gate, is_enabled=privacy.evaluation
        )
        model_in_parts, anchor_in_parts = ChunkedModel(), ChunkedModel()
        anchor = Anchor(session, store, participation, anchor_in_parts)
        self.voter = Voter(store, participation, anchor, self.trainer.weights_under, client_id, enabled=privacy.votes)
        self.contributor = Contributor(
            session,
            store,
            participation,
            self.trainer,
            SecureSums(client_id, session.key, store, self.policy),
            Reports(self.voter, self.evaluator),
            options.experiment.alter_update,
            self.wake.set,
        )
        self.models = Models(session, store, participation, model_in_parts, self.contributor, self.emit)
        self.recorder = Recorder(store, self.contributor, later, self.gate, self.emit, self.wake.set)
        chunks = [
            ChunkSubscription(link, model_in_parts, session.topics.model_chunk),
            ChunkSubscription(link, anchor_in_parts, session.topics.anchor_chunk),
        ]
        enrolment = None if trust.credentials is None else trust.credentials.enrolment_bytes
        self.outbox = Outbox(link, session, participation, chunks, enrolment)
        self.forgetting = Forgetting(self.outbox, session, participation, store, self.emit, say_hello)
        self.membership = Membership(self.outbox, session, participation)
        self.watch = FederatorWatch(federation, client_id)
        self.audit = AuditWatch(federation, client_id, store, self.emit, remembers=session.key is not None)

    @property
    def forgotten(self) -> bool:
        """The federation has erased this client."""
        return self.forgetting.forgotten

    @property
    def is_making_update(self) -> bool:
        """An update is being altered, or waits for the answer to the join or for kernels."""
        return self.contributor.is_altering or self.contributor.waits_to_join or self.trainer.is_loading

    @property
    def schema_difference(self) -> str | None:
        """See `Device.schema_difference`."""
        other = self.participation.other_schema
        return None if other is None else self.features.difference(other.schema_hash)

    @property
    def exploration(self) -> Exploration | None:
        """How lists are drawn if a call does not say it; None as the federation says."""
        if self.forgotten or (self._exploration is None and self.participation.other_schema is not None):
            # Nothing is learned from the list, or not soon: the federation's exploration would disturb it for nothing.
            return NoExploration()
        return self._exploration

    def forget(self) -> None:
        """Delete the data of every part: the client was forgotten."""
        for part in (
            *(self.policy, self.participation, self.trainer, self.relearning, self.models, self.voter),
            *(self.audit, self.visits, self.store.recent),
        ):
            part.forget()
        if self.gate is not None:
            self.gate.forget()
