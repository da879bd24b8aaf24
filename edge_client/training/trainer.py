"""A device's trainer keeps its working model: the newest model, with the waiting interactions learned in order.

A working model follows from the announced one, the method's local state and the interactions, so it can be rebuilt.
Each interaction must enter the local state once, like a counted update; so the state follows the watermark. It is
stored beside the pending update, and a working model that is made while the update waits for its receipt begins with
it. If the update does not count, or no longer counts, its interactions are learned again, from the state before.

While kernels are loading (`foltr.edge_client.training.loaded_kernels`) nothing is learned, and plain functions make
lists (`form`).
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.interaction import Interaction
from foltr.core.logs import get_logger
from foltr.core.methods.base import DeviceContext, MethodDevice
from foltr.core.methods.registry import spec_of
from foltr.core.methods.spec import Lists
from foltr.core.numerics.compiled import plain_functions
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import UpdateBody
from foltr.edge_client.participation import Participation
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.training.working_model import (
    BareModel,
    Learner,
    LearnerDevice,
    WorkingModel,
    device_for,
    mark_state,
    unmark_state,
)

log = get_logger(__name__)


class UpdateSources(NamedTuple):
    """What an update was made of.

    Attributes:
        local_state: what its method keeps on the device.
        spent_when_sent: its interactions are never learned again, even if it does not count.
    """

    interaction_ids: tuple[int, ...]
    local_state: bytes | None
    spent_when_sent: bool


def _at_first_call(_working_model: WorkingModel) -> bool:
    """Claim that kernels are loaded: each then loads at its first call."""
    return True


class Trainer:
    """Learns by the method that the federation announces.

    Args:
        learner: learns instead of the method; None except in tests.
        device_seed, propensities: see `DeviceContext`.
        rng: for a method's draws when it learns or sends.
        gated: whether a gate decides which lists come from the model; without one all do, and none is imitated.
        are_loaded: whether a model's kernels are loaded; if not, `learn_when_loaded` asks again.

    Attributes:
        working_model: the newest model with the waiting interactions learned into it; None before the first model, and
            while the federation's features differ from those of the device's application.
        misfit: why clicks wait although there is a model: how many features either has; None if they fit.
    """

    def __init__(
        self,
        store: DeviceStore,
        participation: Participation,
        rng: np.random.Generator,
        *,
        learner: Learner | None,
        device_seed: int,
        propensities: NDArray[np.float64] | None,
        gated: bool = True,
        are_loaded: Callable[[WorkingModel], bool] = _at_first_call,
    ) -> None:
        self._store = store
        self._participation = participation
        self._rng = rng
        self._learner = learner
        self._device_seed = device_seed
        self._propensities = propensities
        self._gated = gated
        self._are_loaded, self._is_loading = are_loaded, False
        self._logged_cause = ""
        self.misfit: str | None = None
        self.working_model: WorkingModel | None = None

    @property
    def is_loading(self) -> bool:
        """Whether the working model's kernels are still loading; recorded lists wait meanwhile."""
        return self.working_model is not None and self._is_loading

    def learn_when_loaded(self) -> bool:
        """Learn what waited for kernels if they are loaded now; return whether they are."""
        working_model = self.working_model
        if working_model is None or not self._is_loading or not self._are_loaded(working_model):
            return False
        self._is_loading = False
        self.catch_up()
        return True

    def form(self) -> contextlib.AbstractContextManager[None]:
        """Return how to compute what somebody waits for: by plain functions until the kernels are loaded."""
        working_model = self.working_model
        if working_model is None or working_model.device is None or self._is_loading:
            return plain_functions()
        return contextlib.nullcontext()

    def catch_up(self) -> None:
        """Learn the waiting interactions, from the newest model by the newest announced settings."""
        model, training = self._participation.model, self._participation.training
        if model is None:
            return
        if self._participation.other_schema is not None:
            self.working_model = None  # it ranks other features, from which it can learn nothing
            return
        working_model = self.working_model
        if working_model is None or working_model.announcement is not model:
            working_model = self._begin(model, training)
        elif working_model.training is not training:
            # Nearly every round has the same settings; testing for identity is faster than comparing field by field.
            if working_model.training == training:
                working_model.training = training
            else:
                working_model = self._begin(model, training)
        if training is None or working_model.device is None or self._is_loading:
            return
        all_learned = False
        while not all_learned:  # discarding some made room for others
            waiting = self._store.waiting_ids(training.max_interactions)
            n_learned = len(working_model.interaction_ids)
            if working_model.interaction_ids != waiting[:n_learned]:
                if self._participation.pending is not None:
                    # Its interactions are on their way; ranking continues with what was learned from them.
                    return
                working_model, n_learned = self._begin(model, training), 0
            if n_learned == len(waiting):
                return
            newest = working_model.interaction_ids[-1] if n_learned else 0
            new = self._store.waiting_interactions(len(waiting) - n_learned, above=newest)
            all_learned = self._learn(working_model, new)

    def learn_new(self, interaction: Interaction, *, in_order: bool) -> None:
        """Learn an interaction that was just stored, unless it waits for more clicks.

        Args:
            in_order: no other interaction made room for it.
        """
        working_model = self.working_model
        if working_model is None or working_model.training is None or working_model.device is None or self._is_loading:
            return
        if not in_order or self.misfit is not None or self._store.click_window.length_s:
            self.catch_up()
        elif len(working_model.interaction_ids) < working_model.training.max_interactions:
            self._learn(working_model, [interaction])

    def start_over(self) -> None:
        """Begin again, with what counts now: an update does not count after all."""
        working_model = self.working_model
        if working_model is not None:
            self._begin(working_model.announcement, working_model.training)

    @property
    def has_enough(self) -> bool:
        """Whether enough interactions were learned for an update."""
        model = self.working_model
        if model is None or model.training is None or model.device is None:
            return False
        return len(model.interaction_ids) >= model.training.min_interactions

    def body(self) -> UpdateBody | None:
        """Return the body of what was learned; None if that is too little yet."""
        working_model = self.working_model
        if working_model is None or working_model.device is None or not self.has_enough:
            return None
        try:
            return working_model.device.body(self._rng)
        except DataError as error:
            log.debug("update_not_ready", cause=str(error))
            return None

    def weights_under(self, model: ModelAnnouncement) -> NDArray[np.float64]:
        """Return (n_weights,) of the ranker this device would begin with if ``model`` were the newest."""
        training = self._participation.training
        device = None if training is None else self.device_under(model, training)
        bare = BareModel(model.ranker, unpack_vector(model.weights))
        return bare.weights if device is None else device.weights

    def learned(self) -> UpdateSources:
        """Return what is stored with an update from the working model."""
        working_model = self.working_model
        if working_model is None or working_model.training is None or working_model.device is None:
            return UpdateSources((), None, spent_when_sent=False)
        return UpdateSources(
            tuple(working_model.interaction_ids),
            mark_state(working_model.device.local_state(), working_model.training),
            spent_when_sent=spec_of(working_model.training).spent_when_sent,
        )

    def forget(self) -> None:
        """Drop everything learned."""
        self.working_model, self.misfit = None, None

    def _begin(self, model: ModelAnnouncement, training: Training | None) -> WorkingModel:
        device = None if training is None else self.device_under(model, training)
        self.working_model = WorkingModel(model, training, device)
        is_methods_own = device is not None and self._learner is None
        self._is_loading = is_methods_own and not self._are_loaded(self.working_model)
        return self.working_model

    def device_under(
        self, model: ModelAnnouncement, training: Training, *, shows_base: bool = True
    ) -> MethodDevice | None:
        """Make a device part that has learned nothing yet; None, with a log line, if the method cannot be used.

        Args:
            shows_base: as in `DeviceContext`, for a device with a gate.
        """
        if self._learner is not None:
            return LearnerDevice(self._learner, model.ranker, unpack_vector(model.weights), training)
        kept = unmark_state(self._store.local_state(), training)
        try:
            context = DeviceContext(self._device_seed, kept, self._propensities, shows_base=shows_base and self._gated)
            device = device_for(model, training, context)
        except SettingsError as error:
            if str(error) != self._logged_cause:  # once, not with every model
                self._logged_cause = str(error)
                log.error("method_unsupported", cause=str(error))  # noqa: TRY400
            return None
        self._logged_cause = ""
        return device

    def _up_to_misfits(self, working_model: WorkingModel, interactions: list[Interaction]) -> list[Interaction]:
        """Return those before the first whose number of features is neither the ranker's nor the application's.

        The newest list shows the application's number. While that differs from the federation's, clicks wait: either
        side may be corrected. Once they agree, older lists of another number are useless, and discarded.
        """
        fits = [interaction.features.shape[1] == working_model.n_features for interaction in interactions]
        before, self.misfit = self.misfit, None
        if all(fits) or self._store.newest_waiting_width() == working_model.n_features:
            return interactions
        width = interactions[fits.index(False)].features.shape[1]
        self.misfit = f"this application has {width} features, and the federation {working_model.n_features}"
        if before is None:
            log.warning("feature_count_mismatch", cause=self.misfit)
        return interactions[: fits.index(False)]

    def _learn(self, working_model: WorkingModel, interactions: list[Interaction]) -> bool:
        """Learn these, and discard those that cannot be learned, so that they do not block the others.

        Under a policy such a list is skipped and counts as learned: taking part must not depend on its lists.

        Returns:
            whether nothing was discarded.
        """
        under_policy = self._participation.policy is not None
        if not under_policy:
            interactions = self._up_to_misfits(working_model, interactions)
        refused: dict[str, list[int]] = {}
        for interaction in interactions:
            try:
                working_model.learn(interaction, self._rng)
            except DataError as error:
                refused.setdefault(str(error), []).append(interaction.id)
                if under_policy:
                    working_model.interaction_ids.append(interaction.id)
        if not refused:
            return True
        # Lists of a perturbed model expire with it; with others something is wrong.
        expected = working_model.training is not None and spec_of(working_model.training).lists is Lists.PERTURBED
        say = log.debug if expected else log.warning
        what = "interactions_passed_over" if under_policy else "interactions_discarded"
        for cause, ids in refused.items():
            say(what, n=len(ids), cause=cause)
        if under_policy:
            return True
        try:
            self._store.discard_interactions([i for ids in refused.values() for i in ids])
        except DataError as error:
            log.warning("interactions_not_discarded", cause=str(error))  # refused again at the next occasion
            return True
        return False
