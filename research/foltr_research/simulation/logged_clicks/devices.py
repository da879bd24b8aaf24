"""A device in a replay: it shows its user lists, learns from the logged clicks, and makes updates.

It acts only when its user searches. Its interactions count as in the service (`foltr.edge_client`): each waits until an
update that covers it is accepted, and one update at a time is on its way. Methods are those of `foltr.core.methods`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.evaluation.metrics import reciprocal_rank
from foltr.core.learning.interaction import Interaction
from foltr.core.methods.base import DeviceContext, MethodDevice
from foltr.core.methods.lists import make_list
from foltr.core.methods.registry import Ranker, make_device, spec_of
from foltr.core.methods.spec import Lists
from foltr.core.numerics.streams import client_streams
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import UpdateBody
from foltr.federator.round import UpdateHeader
from foltr_research.simulation.logged_clicks.logs import LoggedQuery

MOST_WAITING = 1_000
"""Lists that a device keeps; of more it drops the oldest, like a device of the service (there 10,000 by default)."""


@dataclass(frozen=True, eq=False)
class GlobalModel:
    """A global model: (n_weights + n_auxiliary,) float32 values, its version, and the round that is open for it."""

    values: NDArray[np.float32]
    version: int
    round: int


@dataclass(frozen=True, eq=False)
class Update:
    """An update on its way, with what its device takes back if it does not count.

    Attributes:
        n_interactions: its weight in a mean.
        interactions: those it was learned from.
        state, state_before: what the method keeps on the device, with and without them.
    """

    header: UpdateHeader
    body: UpdateBody
    n_interactions: int
    interactions: Sequence[Interaction]
    state: bytes | None
    state_before: bytes | None


@dataclass(frozen=True)
class DeviceSettings:
    """The settings of all devices.

    Attributes:
        n_interactions: in an update.
        relearns: whether a device takes each new model at once and learns the waiting lists again, like a connected
            device of the service. If not, it stays with the model with which it began the update, as in FedBuff.
    """

    training: Training
    ranker: Ranker
    n_interactions: int
    relearns: bool
    seed: int


@dataclass
class _WorkingModel:
    """A copy of a global model that has learned the oldest lists that wait."""

    device: MethodDevice
    base: GlobalModel
    n_learned: int = 0


class ReplayedDevice:
    """One user's device. Between updates only its random stream and its method's state remain.

    Attributes:
        n_dropped: lists that count in no update because too many waited, or because they could not be learned again.
    """

    def __init__(self, settings: DeviceSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        streams = client_streams(settings.seed, name)
        self._rng, self._device_seed = streams.device, streams.device_seed
        self._state: bytes | None = None
        self._working: _WorkingModel | None = None
        self._waiting: list[Interaction] = []
        self._pending: Update | None = None
        self._is_on_its_way = False
        # A second update for the same round would only be refused.
        self._settled_round = 0
        self._counted_through = self._n_shown = self._n_made = 0
        self.n_dropped = 0

    def show(self, query: LoggedQuery, newest: GlobalModel) -> float:
        """Show a list and learn. Return the reciprocal rank of the logged click, 0 if the list does not have it.

        Raises:
            DataError: the list cannot be learned.
        """
        working = self._working
        is_behind = working is not None and self._pending is None and working.base.version < newest.version
        if working is None or (self._settings.relearns and is_behind):
            working = self._begin(newest)
        training, version = self._settings.training, working.base.version
        scores, variant = working.device.scores(query.features, exploring=True)
        shown = make_list(training, scores, min(training.serp_length, len(scores)), self._rng)
        clicks = query.relevance[shown.ranking] > 0
        seen = (query.features, shown.ranking, clicks, variant, version, shown.reversals, shown.log_probability)
        self._n_shown += 1
        self._waiting.append(Interaction(self._n_shown, *seen))
        self._learn(working)
        self._drop_oldest(working)
        return reciprocal_rank(clicks)

    def to_send(self, newest: GlobalModel) -> Update | None:
        """Return an update that is to be sent, for the first time or again; it then is on its way."""
        if self._is_on_its_way:
            return None
        working = self._working
        if self._pending is None and working is not None and newest.round != self._settled_round:
            self._pending = self._made(working, newest)
        self._is_on_its_way = self._pending is not None
        return self._pending

    def settle(self, update: Update, *, counts_in: int | None) -> None:
        """Take the answer to an update: the round that it counts in, or None: its lists wait for another one."""
        counts = counts_in is not None
        self._pending, self._is_on_its_way = None, False
        self._settled_round = update.header.round if counts_in is None else counts_in
        self._working = None  # at the next search it begins with the newest model
        if counts:
            self._counted_through, self._state = update.header.through, update.state
        if counts or self._is_spent_when_sent:
            covered = {interaction.id for interaction in update.interactions}
            self._waiting = [interaction for interaction in self._waiting if interaction.id not in covered]

    def send_later(self) -> None:
        """Keep an update that was not decided on, to send it again at the next search."""
        self._is_on_its_way = False

    def take_back(self, update: Update) -> None:
        """Take back the lists of an update that counts no longer: its round made no model."""
        self._counted_through, self._state = update.header.after, update.state_before
        self._working = None
        if not self._is_spent_when_sent:
            self._waiting[:0] = update.interactions

    @property
    def _is_spent_when_sent(self) -> bool:
        return spec_of(self._settings.training).spent_when_sent

    def _begin(self, newest: GlobalModel) -> _WorkingModel:
        """Make a working model of the newest one and learn what waits."""
        settings = self._settings
        context = DeviceContext(self._device_seed, self._state)
        device = make_device(settings.training, settings.ranker, newest.values, newest.version, context)
        self._working = _WorkingModel(device, newest)
        self._learn(self._working)
        return self._working

    def _learn(self, working: _WorkingModel) -> None:
        """Learn the oldest lists that wait, as many as an update has. While one is on its way, others wait."""
        while self._pending is None and working.n_learned < min(self._settings.n_interactions, len(self._waiting)):
            interaction = self._waiting[working.n_learned]
            try:
                working.device.learn(interaction, self._rng)
            except DataError:
                if spec_of(self._settings.training).lists is not Lists.PERTURBED:
                    raise
                # A list of another perturbation says nothing about this one's.
                del self._waiting[working.n_learned]
                self.n_dropped += 1
            else:
                working.n_learned += 1

    def _made(self, working: _WorkingModel, newest: GlobalModel) -> Update | None:
        """Return an update of what was learned; None if that is too little."""
        if working.n_learned < self._settings.n_interactions:
            return None
        interactions = tuple(self._waiting[: working.n_learned])
        # A round without a model leaves the base as it was, so the next round takes what was learned from it.
        base = newest if newest.version == working.base.version else working.base
        self._n_made += 1
        header = UpdateHeader(
            client_id=self._name,
            update_id=f"{self._name}-{self._n_made}",
            round=base.round,
            base_version=base.version,
            after=self._counted_through,
            through=interactions[-1].id,
        )
        body = working.device.body(self._rng)
        return Update(header, body, len(interactions), interactions, working.device.local_state(), self._state)

    def _drop_oldest(self, working: _WorkingModel) -> None:
        """Keep within `MOST_WAITING`. Lists that were learned come first, and stay."""
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[working.n_learned]
            self.n_dropped += 1
