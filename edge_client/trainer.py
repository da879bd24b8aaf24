"""Keeps the device's working copy of the newest model: what waits in the store, learned in order."""

from edge_client.store import DeviceStore, Interaction
from edge_client.training import Learner, LocalTraining
from foltr.errors import DataError
from foltr.logs import get_logger
from foltr.messages import ModelAnnouncement, PdgdTraining, unpack_vector

log = get_logger(__name__)


class Trainer:
    """Attributes:
    copy: the newest model with what waits learned into it; None before the first model.
    """

    def __init__(self, store: DeviceStore, learner: Learner) -> None:
        self._store = store
        self._learner = learner
        self._model: ModelAnnouncement | None = None
        self.copy: LocalTraining | None = None

    def begin(self, model: ModelAnnouncement) -> None:
        """Start over from ``model``; `fold_waiting` learns what waits."""
        self._model = model
        self.copy = LocalTraining(unpack_vector(model.weights), model.version, self._learner)

    def fold_waiting(self, settings: PdgdTraining, *, is_pending: bool) -> None:
        """Learn what waits on the device and the working copy has not; start over if an update took some.

        Args:
            is_pending: an update waits for its receipt. Its interactions are on their way; ranking goes on with
                what was learned from them.
        """
        if self.copy is None or self._model is None:
            return
        dim = self.copy.dim
        waiting = self._store.waiting_interactions(settings.max_interactions)
        unusable = [item.id for item in waiting if item.features.shape[1] != dim]
        if unusable:
            log.warning("interactions_discarded", n=len(unusable), cause="another number of features")
            self._store.discard_interactions(unusable)
            waiting = [item for item in waiting if item.features.shape[1] == dim]
        learned = self.copy.interaction_ids
        if learned != [item.id for item in waiting][: len(learned)]:
            if is_pending:
                return
            self.begin(self._model)
        for interaction in waiting[len(self.copy.interaction_ids) :]:
            self._learn(self.copy, interaction, settings)

    def take_new(self, interaction: Interaction, settings: PdgdTraining, *, in_order: bool, is_pending: bool) -> None:
        """Learn an interaction that was just stored.

        Args:
            in_order: no other had to make room for it.
        """
        if self.copy is None:
            return
        if not in_order or interaction.features.shape[1] != self.copy.dim:
            self.fold_waiting(settings, is_pending=is_pending)
        elif len(self.copy.interaction_ids) < settings.max_interactions:
            self._learn(self.copy, interaction, settings)

    def _learn(self, copy: LocalTraining, interaction: Interaction, settings: PdgdTraining) -> None:
        try:
            copy.learn(interaction, settings)
        except DataError as error:
            # One list that cannot be learned must not keep the others from it.
            log.warning("interaction_discarded", cause=str(error))
            self._store.discard_interactions([interaction.id])
