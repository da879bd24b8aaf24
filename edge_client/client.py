"""The device SDK: rank, record clicks; training and sending happen behind it.

    async with EdgeClient("mqtt://127.0.0.1:1883", federation="mail", client_id="device-7") as client:
        serp = client.rank(features)
        client.record_clicks(serp, [0, 3])

The clicks stay in the device's store. What leaves the device is, once a round: the delta of the weights and
the number of interactions behind it.
"""

import asyncio
import random
import time
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import structlog

from broker.address import BrokerAddress
from broker.link import InboundMessage, LastWill, MqttLink
from edge_client.participation import Outgoing, Participation
from edge_client.store import DeviceStore, Interaction, PendingUpdate
from edge_client.training import Learner, LocalTraining, pdgd_learner
from foltr import __version__
from foltr.codec import decode, encode
from foltr.errors import DataError, MessageError, UnavailableError
from foltr.messages import (
    DenseDelta,
    DeviceReaction,
    Join,
    Leave,
    MembershipReceipt,
    Message,
    ModelAnnouncement,
    ModelUpdate,
    PdgdTraining,
    ReceiptCode,
    RoundAnnouncement,
    Status,
    UpdateReceipt,
    pack_vector,
    unpack_vector,
)
from foltr.rankers import rank_by_score, sample_plackett_luce, score
from foltr.topics import ClientTopic, Topics, check_name

log = structlog.get_logger(__name__)

_GOODBYE_S = 2.0


@dataclass(frozen=True, eq=False)
class Serp:
    """A result list as shown.

    Attributes:
        ranking: (shown,) int64, indices into the candidates given to `EdgeClient.rank`, best first.
        model_version: the global model behind it; None before the first one arrived.
    """

    serp_id: str
    ranking: npt.NDArray[np.int64]
    model_version: int | None
    features: npt.NDArray[np.float32]


class EdgeClient:
    """One device of a federation.

    Args:
        broker: ``mqtt://[user:password@]host[:port]``.
        store: the device's own SQLite file; by default ``{federation}-{client_id}.sqlite`` in the working
            directory. ``":memory:"`` for a device that need not survive a restart.
        explore: show samples of the ranker's Plackett-Luce distribution, which is what PDGD learns from;
            False shows the best-scored documents.
        max_interactions: how many interactions may wait on the device; beyond it the oldest are dropped.
        seed: of the sampled rankings; None takes fresh entropy.
        learner: how one interaction changes the weights; PDGD unless a test says otherwise.
        give_up_after_s: how long the broker may be away before `wait_connected` and `next_round` fail for
            good; None: for ever. Ranking and recording go on all the same.
    """

    def __init__(
        self,
        broker: str,
        *,
        federation: str,
        client_id: str,
        store: str | Path | None = None,
        explore: bool = True,
        max_interactions: int = 10_000,
        seed: int | None = None,
        learner: Learner = pdgd_learner,
        give_up_after_s: float | None = None,
    ) -> None:
        self.client_id = check_name("client_id", client_id)
        self.federation = check_name("federation", federation)
        self._address = BrokerAddress.parse(broker)
        self._topics = Topics(federation)
        self._explore = explore
        self._learner = learner
        self._rng = np.random.default_rng(seed)
        self._store = DeviceStore(
            store if store is not None else f"{federation}-{client_id}.sqlite",
            client_id=client_id,
            federation=federation,
            max_interactions=max_interactions,
        )
        self._participation = Participation(self._store.pending_update(), random.Random(seed))  # noqa: S311
        self._training: LocalTraining | None = None
        self._wake = asyncio.Event()
        self._news = asyncio.Condition()
        self._agent: asyncio.Task[None] | None = None
        self._link = MqttLink(
            self._address,
            client_id=f"foltr:{federation}:{client_id}",  # no name holds a colon, so no two share an id
            subscriptions=(
                self._topics.model,
                self._topics.round,
                self._topics.client(client_id, ClientTopic.INBOX),
            ),
            on_message=self._received,
            on_connected=self._connected,
            last_will=LastWill(self._topics.client(client_id, ClientTopic.STATUS), encode(self._status(online=False))),
            # The retained topics hold all a returning device needs, and what it missed it asks for by
            # resending; a broker should not queue every round for every device that is switched off.
            persistent=False,
            give_up_after_s=give_up_after_s,
            on_failed=self._wake.set,
        )
        # How often each receipt code came, and how many distinct updates are known to count.
        self.receipts: dict[str, int] = {}
        self.n_updates_counted = 0
        self._recorded: weakref.WeakSet[Serp] = weakref.WeakSet()
        self._restore_model()

    # --- what an application calls --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._link.__aenter__()
        self._agent = asyncio.create_task(self._run_agent(), name=f"agent-{self.client_id}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._agent is not None:
            self._agent.cancel()
            await asyncio.gather(self._agent, return_exceptions=True)
        try:
            if self._link.connected and not self._participation.left:
                async with asyncio.timeout(_GOODBYE_S):
                    await self._publish(ClientTopic.STATUS, self._status(online=False), retain=True)
        except (UnavailableError, TimeoutError):
            log.debug("goodbye_not_sent", client_id=self.client_id)
        finally:
            await self._link.__aexit__()
            self._store.close()

    @property
    def model_version(self) -> int | None:
        """The global model in use; None before the first one arrived."""
        return None if self._training is None else self._training.base_version

    @property
    def n_waiting(self) -> int:
        """Interactions on the device that are in no update yet."""
        return self._store.n_waiting()

    def rank(self, features: npt.ArrayLike, k: int | None = None) -> Serp:
        """Rank candidate documents.

        Args:
            features: (documents, features), finite, normalised as the federation's devices agreed to.
            k: how many to show; by default what the federation announces (10 before it does).

        Raises:
            DataError: not a non-empty finite matrix, or not of the ranker's number of features, or so large that
                scores are not finite.
        """
        matrix = _as_features(features)
        wanted = self._training_settings.serp_length if k is None else k
        if wanted < 1:
            raise DataError(f"k: {wanted} documents to show; at least 1 is needed")
        shown = min(wanted, len(matrix))
        if self._training is None:
            scores = np.zeros(len(matrix), np.float32)
        elif matrix.shape[1] != self._training.dim:
            raise DataError(
                f"features: {matrix.shape[1]} columns, but the federation's ranker has {self._training.dim}"
            )
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # told as an error instead
                scores = score(self._training.weights, matrix)
            if not np.isfinite(scores).all():
                raise DataError("features: too large, the scores are not finite; normalise them to [0, 1]")
        ranking = sample_plackett_luce(scores, shown, self._rng) if self._explore else rank_by_score(scores, shown)
        return Serp(uuid.uuid4().hex, ranking, self.model_version, matrix)

    def record_clicks(self, serp: Serp, clicked: Sequence[int]) -> None:
        """Record the user's clicks on a shown list: positions from 0, best first; none is a record too.

        On disk when it returns. Recording the same list twice changes nothing.

        Raises:
            DataError: a position outside the list.
        """
        clicks = np.zeros(len(serp.ranking), np.bool_)
        for position in clicked:
            if not 0 <= position < len(clicks):
                raise DataError(f"clicked: position {position} is outside the list (0 to {len(clicks) - 1})")
            clicks[position] = True
        if serp in self._recorded:  # the store forgets a list once its update counts
            return
        n_dropped = self._store.n_dropped
        interaction = self._store.add_interaction(serp.serp_id, serp.features, serp.ranking, clicks)
        self._recorded.add(serp)
        training = self._training
        if interaction is None or training is None:
            return
        if self._store.n_dropped > n_dropped or len(serp.features[0]) != training.dim:
            self._fold_waiting()
        elif len(training.interaction_ids) < self._training_settings.max_interactions:
            self._learn(training, interaction)
            self._contribute()

    async def wait_connected(self, timeout_s: float = 30.0) -> None:
        """Wait for the broker; UnavailableError after ``timeout_s``. Never needed: ranking works without."""
        await self._link.wait_connected(timeout_s)

    async def next_round(self, after: int = 0, timeout_s: float = 60.0) -> RoundAnnouncement:
        """The newest open round above ``after``, with its model at hand, or the news that there is no more.

        Returns:
            a round with ``open=False`` where ``after`` was the federation's last one and is closed.

        Raises:
            UnavailableError: no such round within ``timeout_s``, or the broker was given up.
        """

        def ready() -> bool:
            if self._link.failure is not None:
                raise self._link.failure
            round_, model = self._participation.round, self._participation.model
            if round_ is None or model is None:
                return False
            if not round_.open:
                # A closed round that was there before us says nothing about what is to come.
                return 0 < after <= round_.round
            return round_.round > after and model.version == round_.base_version

        try:
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait_for(ready)
        except TimeoutError as error:
            raise UnavailableError(
                f"client {self.client_id}: no round after {after} within {timeout_s:g} s. "
                f"Is a federator of {self.federation!r} running (`foltr federator run`)?"
            ) from error
        round_ = self._participation.round
        if round_ is None:
            raise RuntimeError("a round was announced and is gone")
        return round_

    async def wait_settled(self, timeout_s: float = 60.0) -> bool:
        """Whether, within ``timeout_s``, the pending update (if any) got its receipt."""
        try:
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait_for(lambda: self._participation.pending is None)
        except TimeoutError:
            return False
        return True

    async def leave(self) -> None:
        """Leave the federation: send nothing more from this client, and clear the retained status.

        What waits in the store stays there. A new client on the same store joins again.

        Raises:
            UnavailableError: the broker did not take it; nothing was changed.
        """
        message = Leave(federation=self.federation, client_id=self.client_id)
        await self._link.publish(self._topics.client(self.client_id, ClientTopic.LEAVE), encode(message))
        self._participation.left = True
        await self._link.publish(self._topics.client(self.client_id, ClientTopic.STATUS), b"", retain=True)

    # --- what the network brings ----------------------------------------------------------------------------

    async def _connected(self) -> None:
        if self._participation.left:
            return
        self._participation.connected(time.monotonic())
        await self._publish(ClientTopic.STATUS, self._status(online=True), retain=True)
        self._wake.set()

    def _received(self, message: InboundMessage) -> None:
        try:
            if message.topic == self._topics.model:
                self._take_model(decode(message.payload, ModelAnnouncement), message.payload)
            elif message.topic == self._topics.round:
                self._take_round(decode(message.payload, RoundAnnouncement))
            else:
                self._take_receipt(message.payload)
        except MessageError as error:
            log.warning("message_not_understood", topic=message.topic, cause=str(error))
        finally:
            self._wake.set()

    def _take_round(self, round_: RoundAnnouncement) -> None:
        if round_.federation == self.federation:
            self._participation.announced_round(round_, time.monotonic())
            self._fold_waiting()
            self._contribute()

    def _take_model(self, model: ModelAnnouncement, payload: bytes) -> None:
        if model.federation == self.federation and self._participation.announced_model(model):
            try:
                self._store.put_model(payload)
            except DataError as error:
                log.warning("model_not_stored", cause=str(error))  # it serves until the next start
            self._start_training(model)
            self._contribute()

    def _take_receipt(self, payload: bytes) -> None:
        try:
            receipt = decode(payload, UpdateReceipt)
        except MessageError:
            self._take_membership_receipt(decode(payload, MembershipReceipt))
            return
        if (receipt.federation, receipt.client_id) != (self.federation, self.client_id):
            return
        self.receipts[receipt.code] = self.receipts.get(receipt.code, 0) + 1
        pending = self._participation.pending
        reaction = self._participation.update_receipt(receipt, time.monotonic())
        if pending is None or self._participation.pending is not None:
            return
        try:
            self._store.remove_update(pending.update_id, keep_interactions=reaction is DeviceReaction.RETRAIN)
        except DataError as error:
            # Pending on disk, so pending here too: sent again, it is answered again.
            log.error("receipt_not_stored", cause=str(error))  # noqa: TRY400
            self._participation.still_pending(pending, time.monotonic())
            return
        if reaction is DeviceReaction.FORGET_UPDATE:
            self.n_updates_counted += 1
        elif reaction is DeviceReaction.DISCARD:
            log.error("update_refused", client_id=self.client_id, code=receipt.code, detail=receipt.detail)
        self._fold_waiting()
        self._contribute()

    def _take_membership_receipt(self, receipt: MembershipReceipt) -> None:
        if receipt.code not in (ReceiptCode.JOINED, ReceiptCode.LEFT):
            log.error("join_refused", client_id=self.client_id, code=receipt.code, detail=receipt.detail)
        self._participation.membership_receipt(receipt, time.monotonic())

    # --- training -------------------------------------------------------------------------------------------

    @property
    def _training_settings(self) -> PdgdTraining:
        round_ = self._participation.round
        return PdgdTraining() if round_ is None else round_.training

    def _restore_model(self) -> None:
        stored = self._store.model()
        if stored is None:
            return
        try:
            model = decode(stored, ModelAnnouncement)
        except MessageError as error:
            log.warning("stored_model_not_understood", client_id=self.client_id, cause=str(error))
            return
        self._participation.announced_model(model)
        self._start_training(model)

    def _start_training(self, model: ModelAnnouncement) -> None:
        self._training = LocalTraining(unpack_vector(model.weights), model.version, self._learner)
        self._fold_waiting()

    def _fold_waiting(self) -> None:
        """Learn what waits on the device and the working copy has not; start over if an update took some."""
        training, model = self._training, self._participation.model
        if training is None or model is None:
            return
        waiting = self._store.waiting_interactions(self._training_settings.max_interactions)
        unusable = [item.id for item in waiting if item.features.shape[1] != training.dim]
        if unusable:
            log.warning("interactions_discarded", n=len(unusable), cause="another number of features")
            self._store.discard_interactions(unusable)
            waiting = [item for item in waiting if item.features.shape[1] == training.dim]
        learned = training.interaction_ids
        if learned != [item.id for item in waiting][: len(learned)]:
            if self._participation.pending is not None:
                return  # its interactions are on their way; ranking goes on with what was learned from them
            training = LocalTraining(unpack_vector(model.weights), model.version, self._learner)
            self._training = training
        for interaction in waiting[len(training.interaction_ids) :]:
            self._learn(training, interaction)

    def _learn(self, training: LocalTraining, interaction: Interaction) -> None:
        try:
            training.learn(interaction, self._training_settings)
        except DataError as error:
            # One list that cannot be learned must not keep the others from it.
            log.warning("interaction_discarded", cause=str(error))
            self._store.discard_interactions([interaction.id])

    def _contribute(self) -> None:
        """Make an update if a round is open and enough was learned."""
        training, round_ = self._training, self._participation.round
        if training is None or round_ is None or not self._participation.may_contribute():
            return
        ids = training.interaction_ids
        if training.base_version != round_.base_version or len(ids) < round_.training.min_interactions:
            return
        update = ModelUpdate(
            federation=self.federation,
            client_id=self.client_id,
            update_id=uuid.uuid4().hex,
            round=round_.round,
            base_version=round_.base_version,
            n_interactions=len(ids),
            body=DenseDelta(dim=training.dim, values=pack_vector(training.delta())),
        )
        pending = PendingUpdate(update.update_id, update.round, encode(update))
        try:
            self._store.put_update(pending, ids)
        except DataError as error:
            log.error("update_not_stored", cause=str(error))  # noqa: TRY400 (tried again at the next occasion)
            return
        self._participation.contribute(pending, time.monotonic())
        self._wake.set()

    # --- the agent ------------------------------------------------------------------------------------------

    async def _run_agent(self) -> None:
        """Send what is due, until cancelled; an unreachable broker only makes it later."""
        while True:
            self._wake.clear()
            if self._link.connected:
                await self._send_due()
            async with self._news:
                self._news.notify_all()
            pause = self._participation.next_due_at() - time.monotonic() if self._link.connected else 60.0
            try:
                async with asyncio.timeout(max(0.0, min(pause, 60.0))):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send_due(self) -> None:
        for outgoing in self._participation.due(time.monotonic()):
            pending = self._participation.pending
            try:
                if outgoing is Outgoing.JOIN:
                    join = Join(federation=self.federation, client_id=self.client_id, sdk_version=__version__)
                    await self._publish(ClientTopic.JOIN, join)
                elif pending is not None:
                    topic = self._topics.client(self.client_id, ClientTopic.UPDATES)
                    await self._link.publish(topic, pending.payload)
            except UnavailableError as error:
                log.debug("will_send_again", what=str(outgoing), cause=str(error))

    async def _publish(self, topic: ClientTopic, message: Message, *, retain: bool = False) -> None:
        await self._link.publish(self._topics.client(self.client_id, topic), encode(message), retain=retain)

    def _status(self, *, online: bool) -> Status:
        return Status(federation=self.federation, client_id=self.client_id, online=online)


def _as_features(features: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """A float32 copy (the application may reuse its buffer before the clicks come), or DataError."""
    try:
        exact = np.asarray(features)
        if exact.dtype != np.float32:
            exact = exact.astype(np.float64, casting="same_kind" if exact.dtype.kind == "c" else "unsafe")
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"features: expected numbers, (documents, features): {error}") from error
    if exact.ndim != 2 or 0 in exact.shape:
        raise DataError(f"features: expected a non-empty matrix (documents, features), got shape {exact.shape}")
    if not np.abs(exact).max() <= np.finfo(np.float32).max:  # written so that NaN fails it too
        raise DataError("features: expected finite numbers that fit float32")
    return np.array(exact, dtype=np.float32, order="C")
