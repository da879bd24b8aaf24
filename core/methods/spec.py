"""`MethodSpec` defines a learning method: it holds everything that differs from one method to the next.

Each method's module ends in its spec, and `foltr.core.methods.registry` lists them. Device, federator, simulator and
command line ask the spec and never for a training's type, so a method is added in one module.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.rule_spec import MEAN, RuleSpec
from foltr.core.methods.aggregations import DeltaAggregation
from foltr.core.methods.base import Aggregation, DeviceContext, MethodDevice
from foltr.core.methods.bodies import BodySpec
from foltr.core.protocol.trainings import Activation, MethodTraining, RankerSpec

TrainingT = TypeVar("TrainingT", bound=MethodTraining)
RankerT = TypeVar("RankerT", bound=RankerSpec)
Weights = NDArray[np.float64]


class Lists(Enum):
    """Which lists a device shows while it explores."""

    DRAWN = auto()
    """Drawn around the order of the ranker's scores by the training's exploration; PDGD learns from them."""
    PERTURBED = auto()
    """The best ones of a perturbed ranker; they expire with the model that was perturbed."""
    LOGGED = auto()
    """Those of a logging policy, which is announced or else the newest model."""


@dataclass(frozen=True)
class OnlyRanker:
    """The one kind of ranker that a method learns, and why it learns no other."""

    kind: Literal["linear", "neural"]
    cause: str


LINEAR_ONLY = OnlyRanker("linear", "it is a method for linear rankers; choose ranker = linear")


@dataclass(frozen=True)
class PdgdSteps:
    """A method that learns by one PDGD step for each interaction, from the global model on.

    Devices take these steps one by one, and the simulator takes them for whole blocks of clients.

    Attributes:
        proximal: draws each step towards the global model, see `foltr.core.methods.fedprox`.
        n_shared: how many of the first weights are shared; a device keeps the others. None shares all.
        sent: makes the values to send from the learned weights (n_weights,), those that learning began with, and random
            numbers. None sends what was learned.
    """

    learning_rate: float
    proximal: float = 0.0
    n_shared: int | None = None
    sent: Callable[[Weights, Weights, np.random.Generator], Weights] | None = None


@dataclass(frozen=True, eq=False)
class RoundSetup:
    """What an aggregation may know of its round; see `foltr.core.methods.registry.make_aggregation`."""

    rule: RuleSpec = MEAN
    n_expected: int | None = None
    rng: np.random.Generator | None = None


def accepts(*_settings: object) -> None:
    """Refuse nothing."""


def no_values(_training: MethodTraining, _ranker: RankerSpec) -> int:
    """Return 0: the model has only the ranker's values."""
    return 0


def all_weights(_training: MethodTraining, _ranker: RankerSpec, dim: int) -> BodySpec:
    """Return the form of an update that is the difference of all values of the model."""
    return BodySpec("dense", dim, 0, dim)


def mean_by_interactions(_training: MethodTraining, body: BodySpec, setup: RoundSetup) -> Aggregation:
    """Return the aggregation that adds the updates' mean by interactions to the model (FPDGD, Eq. 10)."""
    return DeltaAggregation(
        body.dim,
        start=body.start,
        n_values=body.n_values,
        rule=setup.rule,
        n_expected=setup.n_expected,
        rng=setup.rng,
    )


@dataclass(frozen=True)
class MethodSpec(Generic[TrainingT, RankerT]):
    """Everything that differs from one method to the next.

    Attributes:
        name: in settings and tables.
        training: the message that announces its settings.
        device: makes its device part, see `foltr.core.methods.registry.make_device`.
        lists: which ones it shows.
        only_ranker: the one kind it learns; None learns any.
        activations: of the hidden units of the neural rankers that it learns; the first one is the default.
        check: raises SettingsError if its settings do not fit each other or the ranker.
        check_rule: raises SettingsError for an aggregation rule other than the plain mean that does not fit.
        needs_deadline: why rounds cannot be buffered; None if they can.
        n_auxiliary: how many values the model has beside the ranker's.
        body: the form of an update, given the model's number of values.
        not_weights: describes what an update holds instead of differences of weights; None if it holds these.
        aggregation: makes its federator part for one round.
        pdgd: how it learns, if it learns by PDGD steps alone; the simulator takes these in blocks.
        personal: a device has personal weights, so that its ranker is not the shared one.
        learns_again: a device can learn from lists that it kept, for another model than they were shown by, and send
            the result. If not, unlearning starts over from an earlier model.
        spent_when_sent: what it sends contains the device's noise: sent again with fresh noise, the same clicks would
            reveal more than the noise allows.
    """

    name: str
    training: type[TrainingT]
    device: Callable[[TrainingT, RankerT, NDArray[np.float32], int, DeviceContext], MethodDevice]
    lists: Lists = Lists.DRAWN
    only_ranker: OnlyRanker | None = None
    activations: tuple[Activation, ...] = ("sigmoid",)
    check: Callable[[TrainingT, RankerT], None] = accepts
    check_rule: Callable[[RuleSpec], None] = accepts
    needs_deadline: str | None = None
    n_auxiliary: Callable[[TrainingT, RankerT], int] = no_values
    body: Callable[[TrainingT, RankerT, int], BodySpec] = all_weights
    not_weights: str | None = None
    aggregation: Callable[[TrainingT, BodySpec, RoundSetup], Aggregation] = mean_by_interactions
    pdgd: Callable[[TrainingT, RankerT], PdgdSteps] | None = None
    personal: bool = False
    learns_again: bool = True
    spent_when_sent: bool = False

    @property
    def no_votes_because(self) -> str | None:
        """Why devices do not compare models by its lists and vote (`foltr.core.learning.comparison`); None if they
        do."""
        if self.lists is not Lists.DRAWN:
            return f"devices do not draw the lists of {self.name} by score, and by other lists models do not compare"
        if self.spent_when_sent:
            return f"{self.name} adds noise to what a device sends, and a vote beside it would have none"
        return None

    @property
    def no_evaluation_because(self) -> str | None:
        """Why devices do not report their lists' rewards; None if they do on request."""
        if self.spent_when_sent:
            return f"{self.name} adds noise to what a device sends, and an evaluation beside it would have none"
        return None
