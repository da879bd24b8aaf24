"""A shown list and its clicks are recorded once: held back for the guard, or stored and learned."""

import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edge_client.contribution import Contributor
from edge_client.models import Models
from edge_client.serps import Serp
from edge_client.store.store import DeviceStore
from edge_client.training.trainer import Trainer


class Recorder:
    """Records for one device.

    Args:
        on_model: called when a list that was held back lets a refused model be judged again.
    """

    def __init__(
        self,
        store: DeviceStore,
        models: Models,
        trainer: Trainer,
        contributor: Contributor,
        on_model: Callable[[], None],
    ) -> None:
        self._store = store
        self._models = models
        self._trainer = trainer
        self._contributor = contributor
        self._on_model = on_model
        # The store forgets a list once its update counts; the application may name it again.
        self._recorded: weakref.WeakSet[Serp] = weakref.WeakSet()

    def record(self, serp: Serp, clicks: npt.NDArray[np.bool_]) -> None:
        """Record a list with its clicks (shown,); on disk when it returns. Again, it changes nothing."""
        if serp in self._recorded:
            return
        guard = self._models.guard
        if guard is not None and guard.hold_back(serp, clicks):
            self._recorded.add(serp)
            if self._models.judge_again():
                self._on_model()
        else:
            self._learn(serp, clicks)

    def forget(self) -> None:
        """Remember no list any more."""
        self._recorded.clear()

    def _learn(self, serp: Serp, clicks: npt.NDArray[np.bool_]) -> None:
        n_dropped = self._store.n_dropped
        interaction = self._store.add_interaction(
            serp.serp_id, serp.features, serp.ranking, clicks, serp.variant, serp.model_version, serp.scores
        )
        self._recorded.add(serp)
        if interaction is not None:
            self._trainer.take_new(interaction, in_order=self._store.n_dropped == n_dropped)
            self._contributor.contribute()
