"""The working model of a device: a copy of the global model that ranks lists and learns from their clicks.

The announced method's device part (`foltr.core.methods`) does both. It needs the settings in a round's announcement;
without one, or if it cannot be used, the unchanged global model ranks.
"""

import copy
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.interaction import Interaction
from foltr.core.methods.base import DeviceContext, MethodDevice, checked_scores, checked_weights
from foltr.core.methods.fpdgd import dense_delta
from foltr.core.methods.registry import Ranker, make_device, n_auxiliary, spec_of
from foltr.core.methods.spec import Lists
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.explorations import SAFE, Exploration, NoExploration
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import UpdateBody


class Ranks(Protocol):
    """A `MethodDevice` and the bare model both rank."""

    @property
    def weights(self) -> NDArray[np.float64]: ...

    def scores(self, features: NDArray[np.float32], *, exploring: bool) -> tuple[NDArray[np.float32], int]: ...


class Learner(Protocol):
    """Takes a step from one interaction, in place of a method, e.g. in a test that counts."""

    def __call__(
        self, weights: NDArray[np.float64], interaction: Interaction, training: Training
    ) -> NDArray[np.float64]:
        """Return the weights (d,) after the step; ``weights`` itself does not change."""


@dataclass
class WorkingModel:
    """A working copy of a global model on this device.

    Attributes:
        announcement: the global model.
        training: as announced with the newest round; None before one was seen.
        device: what learns; None if ``training`` is None or cannot be used.
        interaction_ids: what was learned, in order.
    """

    announcement: ModelAnnouncement
    training: Training | None
    device: MethodDevice | None
    interaction_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._bare = BareModel(self.announcement.ranker, unpack_vector(self.announcement.weights))

    @property
    def ranker(self) -> Ranks:
        return self._bare if self.device is None else self.device

    @property
    def weights(self) -> NDArray[np.float64]:
        """(n_weights,) of the ranker, including what was learned."""
        return self.ranker.weights

    @property
    def base_version(self) -> int:
        return self.announcement.version

    @property
    def n_features(self) -> int:
        return self.announcement.ranker.n_features

    @property
    def draws_lists(self) -> bool:
        """Whether lists are drawn around the order of `Ranks.scores`; else the method makes its own lists."""
        return self.training is None or spec_of(self.training).lists is Lists.DRAWN

    @property
    def exploration(self) -> Exploration:
        """How the federation wants lists to be drawn; safely before that is known."""
        if self.training is None:
            return SAFE
        return self.training.exploration if self.draws_lists else NoExploration()

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores (documents,) by the weights; DataError if one is not finite."""
        return checked_scores(self.announcement.ranker, self.weights, features)

    def snapshot(self) -> "WorkingModel":
        """Return a snapshot that ranks like this model does now, even while another thread learns.

        A device part never changes an array that it ranks by in place (`Device.learn`), so a shallow copy is enough.
        """
        snapshot = copy.copy(self)
        snapshot.device = copy.copy(self.device)
        return snapshot

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:
        """Learn one interaction; DataError if it cannot be learned, and then nothing is changed."""
        if self.device is None:
            raise RuntimeError("nothing is learned before a method is known")
        if interaction.features.shape[1] != self.n_features:
            raise DataError(f"{interaction.features.shape[1]} features; the federation's ranker has {self.n_features}")
        self.device.learn(interaction, rng)
        self.interaction_ids.append(interaction.id)


class BareModel:
    """The unchanged global model: it ranks and does not learn."""

    def __init__(self, ranker: Ranker, weights: NDArray[np.float32]) -> None:
        self._ranker = ranker
        self._weights = weights[: ranker.n_weights]

    @property
    def weights(self) -> NDArray[np.float64]:
        return self._weights.astype(np.float64)

    def scores(
        self,
        features: NDArray[np.float32],
        *,
        exploring: bool,  # noqa: ARG002 (lists are drawn around the one ranker there is)
    ) -> tuple[NDArray[np.float32], int]:
        """Return the scores; see `Device.scores`."""
        return checked_scores(self._ranker, self._weights, features), 0


class LearnerDevice:
    """A `MethodDevice` whose steps are a `Learner`'s, with any announced method."""

    def __init__(self, learner: Learner, ranker: Ranker, base: NDArray[np.float32], training: Training) -> None:
        self._learner = learner
        self._ranker = ranker
        self._training = training
        self._base = base.astype(np.float64)
        self._learned = self._base

    @property
    def weights(self) -> NDArray[np.float64]:
        return self._learned[: self._ranker.n_weights]

    def scores(
        self,
        features: NDArray[np.float32],
        *,
        exploring: bool,  # noqa: ARG002
    ) -> tuple[NDArray[np.float32], int]:
        return checked_scores(self._ranker, self.weights, features), 0

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:  # noqa: ARG002 (nothing is drawn)
        with np.errstate(over="ignore", invalid="ignore"):  # an error says it instead
            stepped = self._learner(self._learned, interaction, self._training)
        self._learned = checked_weights(stepped)

    def body(self, rng: np.random.Generator) -> UpdateBody:  # noqa: ARG002
        return dense_delta(self._learned, self._base)

    def local_state(self) -> bytes | None:
        return None


def device_for(model: ModelAnnouncement, training: Training, context: DeviceContext) -> MethodDevice:
    """Make the announced method's device part; SettingsError if the announcements do not fit together."""
    expected = n_auxiliary(training, model.ranker)
    if model.n_auxiliary != expected:
        raise SettingsError(
            f"the model has {model.n_auxiliary} values beside the ranker's, and the announced method {expected}"
        )
    return make_device(training, model.ranker, unpack_vector(model.weights), model.version, context)


def mark_state(state: bytes | None, training: Training) -> bytes | None:
    """Put the method in front of its local state for storage, since another method would misread it."""
    return None if state is None else _mark(training) + state


def unmark_state(kept: bytes | None, training: Training) -> bytes | None:
    """Undo `mark_state`; None if the state is another method's."""
    mark = _mark(training)
    return kept.removeprefix(mark) if kept is not None and kept.startswith(mark) else None


def _mark(training: Training) -> bytes:
    return training.kind.encode() + b"\n"
