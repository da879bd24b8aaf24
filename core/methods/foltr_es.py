"""FOLtR-ES: devices show the lists of perturbed rankers and send their rewards; the federator climbs.

Kharitonov, "Federated Online Learning to Rank with Evolution Strategies" (WSDM 2019); thesis, Section 3.1.1, Eq. 3.4 to
3.6. A device draws the seed of a perturbation, shows the best lists under it (and, antithetic, under its negative every
other time), turns each reciprocal rank of the highest click into a randomised response, and sends the seed and the
means. The federator makes the perturbation again from the seed and takes a step of Adam.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.mean import RunningMean
from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.evolution_strategies import (
    AdamState,
    adam_ascent,
    es_direction,
    es_noise,
    randomised_response,
    reciprocal_rank_index,
    reciprocal_rank_values,
    round_noise_seed,
)
from foltr.core.learning.interaction import Interaction
from foltr.core.methods.base import (
    NO_MEMORY,
    Aggregation,
    DeviceContext,
    Memory,
    MethodDevice,
    NextModel,
    checked_scores,
)
from foltr.core.methods.bodies import BodySpec
from foltr.core.methods.spec import Lists, MethodSpec, RoundSetup
from foltr.core.protocol.trainings import EvolutionTraining, RankerSpec
from foltr.core.protocol.updates import EvolutionPair, UpdateBody

PLUS, MINUS = 1, -1


class EvolutionDevice:
    """One perturbation of the global model and its rewards."""

    def __init__(
        self,
        ranker: RankerSpec,
        base: NDArray[np.float32],
        version: int,
        training: EvolutionTraining,
        device_seed: int,
    ) -> None:
        self._ranker = ranker
        self._version = version
        self._training = training
        self._seed = round_noise_seed(device_seed, version)
        self._base = base.astype(np.float64)
        noise = es_noise(self._seed, len(base), training.noise_scale)
        self._perturbed = {PLUS: self._base + noise, MINUS: self._base - noise}
        self._metrics: dict[int, list[float]] = {PLUS: [], MINUS: []}
        n_minus = training.max_interactions // 2 if training.antithetic else 0
        self._wanted = {PLUS: training.max_interactions - n_minus, MINUS: n_minus}
        self._shown = {PLUS: 0, MINUS: 0}

    @property
    def weights(self) -> NDArray[np.float64]:
        return self._base

    def scores(self, features: NDArray[np.float32], *, exploring: bool) -> tuple[NDArray[np.float32], int]:
        if not exploring:
            return checked_scores(self._ranker, self._base, features), 0
        variant = self._next_variant()
        self._shown[variant] += 1
        return checked_scores(self._ranker, self._perturbed[variant], features), variant

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:
        if interaction.base_version != self._version or interaction.variant not in self._metrics:
            # Its reward belongs to another ranker.
            raise DataError("shown by another perturbation than this round's")
        if len(self._metrics[interaction.variant]) >= self._wanted[interaction.variant]:
            # It would replace one of the other sign, and the pair would never be complete.
            raise DataError("enough lists of this sign were learned")
        values = reciprocal_rank_values(self._training.serp_length)
        true = reciprocal_rank_index(interaction.clicks[: self._training.serp_length])
        sent = randomised_response(true, self._training.truth_probability, len(values), rng.random(2))
        self._metrics[interaction.variant].append(float(values[sent]))

    def body(self, rng: np.random.Generator) -> UpdateBody:  # noqa: ARG002 (drawn when learned)
        plus, minus = self._metrics[PLUS], self._metrics[MINUS]
        if not plus or (self._training.antithetic and not minus):
            raise DataError("a perturbation was not shown yet")
        return EvolutionPair(
            seed=self._seed,
            plus=sum(plus) / len(plus),
            minus=sum(minus) / len(minus) if self._training.antithetic else None,
        )

    def local_state(self) -> bytes | None:
        return None

    def _next_variant(self) -> int:
        """Return the sign with fewer lists: shown ones, as clicks may not come, or learned ones from before a
        restart."""
        n = {sign: max(self._shown[sign], len(self._metrics[sign])) for sign in (PLUS, MINUS)}
        return MINUS if self._training.antithetic and n[MINUS] < n[PLUS] else PLUS


class EvolutionAggregation:
    """The gradient estimate of Eq. 3.5 from seeds and metrics, and one step of Adam.

    Every device counts alike: a mean over more interactions is a better estimate of the same thing.
    """

    def __init__(self, n_weights: int, training: EvolutionTraining) -> None:
        self._training = training
        self._mean = RunningMean(n_weights)
        self._dim = n_weights

    def add(
        self,
        body: UpdateBody,
        n_interactions: int,  # noqa: ARG002
        staleness_weight: float = 1.0,
        client_id: str = "",  # noqa: ARG002 (a mean does not tell clients apart)
    ) -> None:
        # Antithetic or not, each is an estimate of the same gradient: a round may hold both after a change of settings.
        if not isinstance(body, EvolutionPair):
            raise DataError(f"an update of kind {body.kind}; FOLtR-ES needs a seed and its metrics")
        self._mean.add(
            es_direction(body.seed, self._dim, self._training.noise_scale, body.plus, body.minus), 1.0, staleness_weight
        )

    def finish(self, base: NDArray[np.float32], memory: Memory = NO_MEMORY) -> NextModel:
        state = memory.optimiser
        adam = AdamState.zeros(self._dim) if state is None else AdamState.from_bytes(state)
        if len(adam.first_moment) != self._dim:
            raise DataError(f"the optimiser's state is of {len(adam.first_moment)} weights, the model has {self._dim}")
        adam, step = adam_ascent(adam, self._mean.mean(), self._training.server_learning_rate)
        weights = (base.astype(np.float64) + step).astype(np.float32)
        return NextModel(weights, replace(memory, optimiser=adam.to_bytes()))


def _device(
    training: EvolutionTraining,
    ranker: RankerSpec,
    weights: NDArray[np.float32],
    version: int,
    context: DeviceContext,
) -> MethodDevice:
    return EvolutionDevice(ranker, weights, version, training, context.device_seed)


def _check(training: EvolutionTraining, _ranker: RankerSpec) -> None:
    n_values = training.serp_length + 1
    if training.antithetic and training.min_interactions < 2:
        raise SettingsError("foltr-es: antithetic perturbations need at least 2 interactions in an update")
    if training.truth_probability <= 1 / n_values:
        raise SettingsError(
            f"foltr-es: truth_probability: {training.truth_probability:g} says nothing of the metric; "
            f"it must be above 1/{n_values}"
        )


def _body(training: EvolutionTraining, _ranker: RankerSpec, dim: int) -> BodySpec:
    return BodySpec("evolution", dim, antithetic=training.antithetic)


def _aggregation(training: EvolutionTraining, body: BodySpec, _setup: RoundSetup) -> Aggregation:
    return EvolutionAggregation(body.dim, training)


FOLTR_ES = MethodSpec(
    name="foltr-es",
    training=EvolutionTraining,
    device=_device,
    lists=Lists.PERTURBED,
    # The published ranker has ReLU units; sigmoid units came first in this project, and stay available by name.
    activations=("relu", "sigmoid"),
    check=_check,
    body=_body,
    not_weights="seeds and metrics",
    aggregation=_aggregation,
    # A list's reward belongs to the perturbation it was shown under, and to no other.
    learns_again=False,
    spent_when_sent=True,
)
