"""A device ranks and records clicks; training and sending happen behind it.

    async with EdgeClient(credentials="device-7.json") as client:
        serp = client.rank(features)
        client.record_clicks(serp, [0, 3])

The clicks stay in the device's store, and so does what a method learns for this device alone. What leaves it, once a
round, is one body (see `foltr.protocol.updates`) and how many interactions are behind it. By the announced method,
it is

- FPDGD, FedProx, FPDGD with personal weights: the delta of the shared weights (`DenseDelta`);
- FPDGD with its paper's noise: the same, of clipped weights and with noise added;
- FedPer: the delta of the hidden layer (`PartDelta`), not of this device's output weights;
- FOLtR-ES: the seed of a perturbation and the mean of randomised responses under it (`EvolutionPair`);
- FedIPS, FedAvg: the delta of the ranker's weights (`DenseDelta`); where propensities are estimated, that of the
  relevance function too. Propensities, estimated or given, stay here.

With it goes a vote on the newest model, one of -1, 0 and 1 (`edge_client.votes.voter`), where the federation has an
anchor. Under its operator's policy a device sends differences of weights behind masks (`MaskedVector`), and nothing
else (`edge_client.sums`).

When another client is to be unlearned, a device under no policy sends the same once more, of interactions that it has
kept (`edge_client.training.relearning`). `EdgeClient.forget_me` asks for this one's own erasure.
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt

from edge_client.agent import Agent
from edge_client.contribution import Alteration
from edge_client.events import AuditLogCut, Observer
from edge_client.forgetting import ForgetResult
from edge_client.guard.held_back import RefusedModel
from edge_client.hindrances import Hindrance
from edge_client.options import (
    DeviceOptions,
    agreed_name,
    broker_address,
    checked_exploration,
    checked_guard,
    checked_keep_interactions,
    checked_propensities,
    checked_seed,
    declared_schema,
)
from edge_client.runtime import SERP_LENGTH, Runtime
from edge_client.serps import Serp
from edge_client.store.store import KEPT_INTERACTIONS, DeviceStore
from edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits
from edge_client.training.unlearning_limits import USUAL_LIMITS, UnlearningLimits
from edge_client.training.working_model import Learner
from foltr.erasure.states import ForgetState
from foltr.errors import UsageError
from foltr.learning.comparison import Comparison
from foltr.learning.gate import Gate
from foltr.operator.credentials import Credentials, read_credentials
from foltr.operator.wish_file import wish_file
from foltr.protocol.announcements import RoundAnnouncement
from foltr.protocol.explorations import Exploration
from foltr.protocol.schemas import FeatureSchema

__all__ = ["EdgeClient", "ForgetResult", "Serp"]


class EdgeClient:
    """One device of a federation.

    Args:
        broker: ``mqtt[s]://[user:password@]host[:port]``; by default the one in ``credentials``.
        federation, client_id: who this is; by default as ``credentials`` say.
        credentials: what ``foltr device enrol`` wrote for this device: everything it sends is signed, and only what
            the federator signed is believed. Without them nothing is signed, and only a federator that takes
            anyone (``--allow-unsigned``) will listen.
        store: the device's own SQLite file, opened when the client is entered; by default
            ``{federation}-{client_id}.sqlite`` in the working directory. ``":memory:"`` for a device that need not
            survive a restart.
        exploration: how lists are drawn around the best order the device knows, by name (``"none"``, ``"swaps:0.1"``;
            `foltr.protocol.explorations`); None: as the federation says. Of ``"none"`` no method learns that draws its
            lists, and FOLtR-ES shows no perturbed ranker's.
        max_interactions: how many interactions may wait on the device; beyond it the oldest are dropped.
        keep_interactions: how many of those that count are kept on the device, to learn from them again when another
            client is to be unlearned, or when they count no more because their round was abandoned; the oldest go.
            Never sent. 0 keeps none: then this device cannot help the federation to forget others.
        seed: of everything the device draws; None takes fresh entropy, and what must be drawn the same after a
            restart comes from the store.
        learner: how one interaction changes the weights; None, except in tests: by the announced method.
        propensities: (k,) in (0, 1], how likely this user examines each position, where the application knows it
            and the method (FedIPS) asks. Never sent.
        guard: of the lists with clicks, the share that is held back to judge new models by, above 0 and at most 0.5: a
            model that explains them far worse than the one in use is refused (`edge_client.guard.guard`). They are not
            learned from and never sent, which is the price: with 0.1, a tenth of the clicks. None: every model that
            the federation announces is used.
        gate: lists come from the model only once the user's clicks say that it is better than the application's own
            order, and as long as they do not say that it is worse (`foltr.learning.gate`). False, for experiments as in
            the papers, shows the model's lists from the first model on.
        votes: with an update goes whether the newest model explains this user's clicks worse than an older one that
            the federation names, better, or neither: one of -1, 0 and 1 (`edge_client.votes.voter`). No clicks are
            held back for it. False compares nothing and sends none.
        evaluation: with an update goes how many of its lists were clicked, and how far up, there and in the
            application's own order, each as a mean (`edge_client.evaluator`), if the federation asks. False tells
            nothing.
        schema: of the application's features, or its JSON file (docs/features.md): `rank` scales them by it. Where the
            federation's is another one nothing is learned and lists are in the order given; see `schema_difference`.
            None: the application scales its features itself, as the federation's devices agreed to.
        unlearning_limits: how much steps of unlearning jobs may ask of this device, as each answer shows something of
            its user's clicks: how many a day, how many of one click, and of how few clicks at a time.
        privacy_limits: the highest epsilon and delta of a policy of secure sums, and the fewest clients of a sum. Under
            a policy beyond them this device takes no part; see `hindrance`.
        alter_update: for experiments on attacks, see `Alteration`; None sends what was learned.
        give_up_after_s: how long the broker may be away before `wait_connected` and `next_round` fail for
            good; None: for ever. Ranking and recording go on all the same.
        on_event: told what happens (`edge_client.events`), in the event loop; it must not block, and what it raises is
            in the log.
    """

    def __init__(
        self,
        broker: str | None = None,
        *,
        federation: str | None = None,
        client_id: str | None = None,
        credentials: str | Path | Credentials | None = None,
        store: str | Path | None = None,
        exploration: Exploration | str | None = None,
        max_interactions: int = 10_000,
        keep_interactions: int = KEPT_INTERACTIONS,
        seed: int | None = None,
        learner: Learner | None = None,
        propensities: npt.ArrayLike | None = None,
        guard: float | None = None,
        gate: bool = True,
        votes: bool = True,
        evaluation: bool = True,
        schema: FeatureSchema | str | Path | None = None,
        unlearning_limits: UnlearningLimits = USUAL_LIMITS,
        privacy_limits: PrivacyLimits = USUAL_PRIVACY,
        alter_update: Alteration | None = None,
        give_up_after_s: float | None = None,
        on_event: Observer | None = None,
    ) -> None:
        beside = wish_file(Path(credentials)) if isinstance(credentials, str | Path) else None
        if isinstance(credentials, str | Path):
            credentials = read_credentials(Path(credentials), "device")
        named = (None, None) if credentials is None else (credentials.federation, credentials.name)
        self.federation = agreed_name("federation", federation, named[0])
        self.client_id = agreed_name("client_id", client_id, named[1])
        self._store_path = store if store is not None else f"{self.federation}-{self.client_id}.sqlite"
        self._max_interactions = max_interactions
        self._keep_interactions = checked_keep_interactions(keep_interactions)
        options = DeviceOptions(
            self.federation,
            self.client_id,
            broker_address(broker, credentials),
            credentials,
            exploration=checked_exploration(exploration),
            seed=checked_seed(seed),
            learner=learner,
            propensities=checked_propensities(propensities),
            guard=checked_guard(guard, exploration),
            gate=gate,
            votes=votes,
            evaluation=evaluation,
            schema=declared_schema(schema),
            alter_update=alter_update,
            give_up_after_s=give_up_after_s,
            unlearning_limits=unlearning_limits,
            wish_file=beside,
            privacy_limits=privacy_limits,
        )
        self._runtime = Runtime(options, on_event)
        self._store: DeviceStore | None = None

    # --- what an application calls --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._store is not None:
            raise UsageError(f"client {self.client_id} was entered before; construct another EdgeClient")
        # Not before: a client that is never entered keeps no store from others.
        self._store = DeviceStore(
            self._store_path,
            client_id=self.client_id,
            federation=self.federation,
            max_interactions=self._max_interactions,
            max_kept=self._keep_interactions,
        )
        try:
            self._runtime.open(self._store)
            await self._runtime.start()
        except BaseException:
            self._store.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._runtime.stop()
        finally:
            if self._store is not None:
                self._store.close()

    def __enter__(self) -> NoReturn:
        raise UsageError(
            "EdgeClient: use `async with EdgeClient(...)` in an event loop; without one, `with SearchRanker(...)`"
        )

    def __exit__(self, *_: object) -> None:
        """Exit nothing, since nothing is entered so."""

    @property
    def _agent(self) -> Agent:
        return self._runtime.agent

    @property
    def model_version(self) -> int | None:
        """The global model in use; None before the first one arrived."""
        working_model = self._agent.trainer.working_model
        return None if working_model is None else working_model.base_version

    @property
    def serp_length(self) -> int:
        """The number of documents the federation asks to show; 10 before it does."""
        round_ = self._agent.participation.round
        return SERP_LENGTH if round_ is None else round_.training.serp_length

    @property
    def n_waiting(self) -> int:
        """Interactions on the device that are in no update yet."""
        return self._agent.store.n_waiting()

    @property
    def counted_through(self) -> int | None:
        """The last of this device's interactions that counts, as the federation said last; None before it did.

        Under a policy it is the last of its participations.
        """
        return self._agent.store.mark()

    @property
    def n_updates_counted(self) -> int:
        """Distinct updates that the federation said count, since this client was made."""
        return self._agent.contributor.n_counted

    @property
    def receipts(self) -> dict[str, int]:
        """How often each code of an update's receipt came, since this client was made."""
        return self._agent.inbox.receipts

    @property
    def quarantined(self) -> bool:
        """The federator's operator has excluded this client's updates; what its user clicks waits on the device."""
        return self._agent.contributor.quarantined

    @property
    def federator_online(self) -> bool | None:
        """Whether the federation's federator is there, by its heartbeat; None while nothing says so.

        It is heard at once that it stopped or died, and after three beats that did not come that it hangs.
        """
        return self._runtime.federator_online

    @property
    def hindrance(self) -> Hindrance | None:
        """What keeps this device from taking part, and what to do about it; None where nothing is known to.

        The broker may be away, refuse the login, or have let another process take this one's session over; the
        federator may be away, or not take this client in, or learn from other features. Ranking and recording go on
        all the same.
        """
        return self._runtime.hindrance

    @property
    def next_visit_at(self) -> datetime | None:
        """When this device comes by again, where its federation asks that it does not stay connected; else None.

        None also during a visit, and where it comes only if it is called, having left. An application may end until
        then: the moment is in the store, and the next start keeps it.
        """
        return self._agent.visits.resting_until

    @property
    def newest_audit_entry(self) -> int | None:
        """The number of the newest entry of the federation's log of erasures that was heard of; None before one."""
        return self._agent.audit.newest

    @property
    def audit_log_cut(self) -> AuditLogCut | None:
        """What this device has heard that speaks against the federation's log of erasures; None where nothing does.

        The log was cut, or restored from a backup: its operator can say which (docs/erasure.md). It is kept, also over
        restarts, where what the federator says is signed.
        """
        return self._agent.audit.cut

    @property
    def has_joined(self) -> bool:
        """Whether the federation has taken this client in, since it was made."""
        return self._agent.membership.has_joined

    @property
    def schema_difference(self) -> str | None:
        """How the federation's features differ from the application's, in words; None while nothing speaks for it.

        As long as they do, clicks wait on the device, lists are in the order given, and nothing is sent.
        """
        return self._agent.schema_difference

    @property
    def gate(self) -> Gate:
        """Whether lists come from the model, what that was decided by, and what each source's lists brought.

        A copy, of this device's own numbers; without a gate one that has seen nothing.
        """
        return Gate() if self._agent.gate is None else self._agent.gate.gate

    @property
    def comparison(self) -> Comparison:
        """What this device knows of the newest model against the federation's anchor; what its vote is made of."""
        return self._agent.voter.comparison

    @property
    def n_held_back(self) -> int:
        """Lists that the guard held back since this client was made, and that are not learned from."""
        guard = self._agent.models.guard
        return 0 if guard is None else guard.n_held_back

    @property
    def refused_models(self) -> tuple[RefusedModel, ...]:
        """The models that this device's guard refused, also before a restart; the lowest version first.

        With them those that were withdrawn since it has a guard, which say so.
        """
        guard = self._agent.models.guard
        return () if guard is None else guard.refused_models

    @property
    def forgotten(self) -> bool:
        """The federation has erased this client, as `forget_me` or the operator asked, and so has the device.

        It keeps nothing any more: `rank` shows the documents in the order they are given, `record_clicks` stores
        nothing, and nothing is sent. The name is not used again: whoever wants to come back enrols under another.
        """
        return self._agent.forgotten

    @property
    def forget_state(self) -> ForgetState | None:
        """How far the wish to be forgotten is, also of an earlier run; None without one, and without an erasure."""
        return self._agent.forgetting.state

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """A copy of the (n_weights,) by which this device ranks, with what it has learned; None before a model."""
        return self._agent.weights

    def scores(self, features: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return (documents,) scores by those weights, which `rank` orders by; zeros before a model.

        Raises:
            DataError: as `rank` does.
        """
        return self._agent.scores(features)

    def rank(
        self,
        features: npt.ArrayLike,
        k: int | None = None,
        *,
        base: npt.ArrayLike | None = None,
        exploration: Exploration | str | None = None,
    ) -> Serp:
        """Rank candidate documents. Without candidates the list is empty, and recording it is nothing.

        The order is the model's. Where there is no model, or one of another number of features, it is the application's
        own; whatever a federation announces, there is a list to show.

        Args:
            features: (documents, features), finite: as the application computes them where the client was given their
                schema, else normalised as the federation's devices agreed to.
            k: how many to show; by default `serp_length`.
            base: (documents,) the application's own scores, higher is better; None: the documents are given in its
                order, best first. Of documents that the model scores alike it decides, too.
            exploration: of this list; by default as the client was made with.

        Raises:
            DataError: not a finite matrix, or not of the schema's number of features; or not as many numbers in
                ``base``.
            SettingsError: there is no such exploration.
        """
        return self._agent.rank(features, self.serp_length if k is None else k, base, checked_exploration(exploration))

    def record_clicks(self, serp: Serp, clicked: Iterable[int]) -> None:
        """Record the user's clicks on a shown list: integers, positions from 0, best first; none is a record too.

        On disk when it returns. Recording the same list twice changes nothing.

        Raises:
            DataError: what was given are no positions of the list.
        """
        self._runtime.check_thread()
        self._agent.record_clicks(serp, clicked)

    async def wait_connected(self, timeout_s: float = 30.0) -> None:
        """Wait for the broker; UnavailableError after ``timeout_s``. Never needed: ranking works without."""
        await self._runtime.wait_connected(timeout_s)

    async def next_round(self, after: int = 0, timeout_s: float = 60.0) -> RoundAnnouncement:
        """Wait for the newest open round above ``after``, with its model at hand, or the news that there is no more.

        Returns:
            a round with ``open=False`` where ``after`` was the federation's last one and is closed.

        Raises:
            UnavailableError: no such round within ``timeout_s``, with what was in the way; or the broker was given up,
                or this client was forgotten, or the federator does not take it in.
        """
        return await self._runtime.next_round(after, timeout_s)

    async def wait_settled(self, timeout_s: float = 60.0) -> bool:
        """Wait up to ``timeout_s``; return whether the pending update (if any) got its receipt."""
        return await self._runtime.wait_settled(timeout_s)

    async def leave(self, timeout_s: float = 10.0) -> bool:
        """Leave the federation: send nothing more from this client, and clear the retained status.

        What waits in the store stays there. A new client on the same store joins again.

        Returns:
            whether the federator confirmed it within ``timeout_s``. If not, the broker holds the message for a
            federator that is away. A client that asked to be forgotten sends nothing: False.

        Raises:
            UnavailableError: the broker did not take it; nothing was changed.
        """
        return await self._runtime.leave(timeout_s)

    async def forget_me(self, timeout_s: float = 60.0) -> ForgetResult:
        """Ask the federation to erase this client, and to unlearn what it contributed; then the device forgets too.

        The signed wish is on the disk before it is sent. From here on nothing else is sent, by this client or a later
        one on the same store, which sends it again until there is a receipt. Once the erasure is stored, `forgotten`
        is true; to unlearn what is in the model may outlast this process. Asking again, also for the receipt, is fine.

        Returns:
            how far it is (`forget_state`); ``forgotten`` with the receipt, which ``foltr erasure verify`` checks.

        Raises:
            DataError: the wish cannot be stored; nothing was changed.
            FoltrError: the federator refused it, say because this client has never joined; it goes on as before.
        """
        return await self._runtime.forget_me(timeout_s)
