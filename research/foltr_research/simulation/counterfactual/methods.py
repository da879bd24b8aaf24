"""Methods that learn from a logging policy's lists without exploring: trust-ips, dr, safe-dr and prpo.

They differ in the rewards that a device makes of its clicks (`rewards`) and in what keeps the policy near the safe one
(`exposure`). A device takes one gradient step of the estimated utility for each list, and the federator adds the mean
of the changes.

The safe policy ranks by the logging policy's scores, or by the newest model's without a logging policy; users see its
best list. As long as the model is zeros, devices learn from the logging policy on, so the first model they make is that
one and what they have learned.

A policy draws rankings by scores that are divided by their scale: ``temperature`` times the standard deviation of the
safe scores over the query's candidates. A step is in these units, so rates do not depend on how large the logging
policy's weights are.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from foltr.core.learning.interaction import Interaction
from foltr.core.learning.ips import position_propensities
from foltr.core.learning.regression_em import relevance_probability
from foltr.core.methods.base import DeviceContext, MethodDevice, checked_scores, checked_weights
from foltr.core.methods.fpdgd import dense_delta
from foltr.core.methods.spec import LINEAR_ONLY, Lists, MethodSpec
from foltr.core.protocol.fields import Rate, unpack_vector
from foltr.core.protocol.trainings import LinearRankerSpec, MethodTraining
from foltr.core.protocol.updates import UpdateBody
from foltr_research.simulation.counterfactual.exposure import (
    exposure,
    penalised_rewards,
    proximal_rewards,
    rank_weights,
    risk_of_estimate,
    utility_gradient,
)
from foltr_research.simulation.counterfactual.rewards import (
    ClickBias,
    affine_rewards,
    doubly_robust_rewards,
    position_bias,
    relevance_step,
    trust_bias,
)

Floats = NDArray[np.float64]
_SAMPLES: Final = 64
"""Rankings drawn for one step. Many lists make an update, which averages over their draws too."""


class TrustIpsTraining(MethodTraining):
    """Inverse propensity scoring with the affine correction for trust bias; without trust bias plain IPS."""

    learning_rate: Rate = 0.3
    # Of the policy's scores, in standard deviations of the safe policy's.
    temperature: Annotated[float, Field(gt=0.0, le=100.0, allow_inf_nan=False)] = 0.3
    # What is assumed of users: they examine rank k with (1 / k) ** position_bias, unless it is known, and trust ranks.
    position_bias: Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)] = 1.0
    trust: bool = True
    # A rank's propensity counts as at least this.
    least_propensity: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    logging_policy: Annotated[bytes, Field(max_length=65_536)] = b""


class DoublyRobustTraining(TrustIpsTraining):
    """Doubly robust: the same, with a federated relevance regression."""

    # Up to 8 / (features + 1) is stable (`foltr.core.learning.regression_em.em_step`).
    relevance_learning_rate: Rate = 0.05


class SafeDoublyRobustTraining(DoublyRobustTraining):
    """Doubly robust, minus the risk that the estimate is wrong, which shrinks with the number of logged lists."""

    n_logged: Annotated[int, Field(ge=1, le=10**12)] = 10_000
    delta: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05


class PrpoTraining(DoublyRobustTraining):
    """PRPO: doubly robust, and nothing is gained by exposing a document less than clip or more than 1 / clip times."""

    clip: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8


TrainingT = TypeVar("TrainingT", bound=TrustIpsTraining)
Directed = Callable[[TrainingT, Floats, Floats, Floats, ClickBias], Floats]
"""Makes the rewards to follow of the estimated ones, from the exposures under the policy and the safe policy."""


class CounterfactualDevice(Generic[TrainingT]):
    """One step of policy gradient for each list, from the global model on.

    Args:
        base: (n_weights + n_auxiliary,) global weights.
        directed: what keeps the policy near the safe one; None: nothing does.
    """

    def __init__(
        self,
        ranker: LinearRankerSpec,
        base: NDArray[np.float32],
        training: TrainingT,
        context: DeviceContext,
        directed: Directed[TrainingT] | None,
    ) -> None:
        self._ranker = ranker
        self._training = training
        self._base = base.astype(np.float64)
        of_ranker = base[: ranker.n_weights]
        self._safe = unpack_vector(training.logging_policy) if training.logging_policy else of_ranker
        self._weights = (of_ranker if of_ranker.any() else self._safe).astype(np.float64)
        # Of the regression; empty for a method without one.
        self._relevance_weights = self._base[ranker.n_weights :]
        self._known = context.propensities
        self._directed = directed

    @property
    def weights(self) -> Floats:
        return self._weights

    def scores(
        self,
        features: NDArray[np.float32],
        *,
        exploring: bool,  # noqa: ARG002 (a logging policy explores nothing)
    ) -> tuple[NDArray[np.float32], int]:
        return checked_scores(self._ranker, self._safe, features), 0

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:
        features = interaction.features
        bias = self._bias(min(len(interaction.ranking), self._training.serp_length))
        k = len(bias.alpha)
        ranking, clicks = interaction.ranking[:k], interaction.clicks[:k]
        least, relevance_weights = self._training.least_propensity, self._relevance_weights
        with np.errstate(over="ignore", invalid="ignore"):  # reported as an error instead
            if isinstance(self._training, DoublyRobustTraining):
                relevance = relevance_probability(relevance_weights, features)
                rewards = doubly_robust_rewards(relevance, ranking, clicks, bias, least)
                relevance_weights = relevance_step(
                    relevance_weights, features, ranking, clicks, bias, self._training.relevance_learning_rate
                )
            else:
                rewards = affine_rewards(len(features), ranking, clicks, bias, least)
            stepped = self._step(features, rewards, bias, rng)
        n_weights = self._ranker.n_weights
        self._weights, self._relevance_weights = (
            checked_weights(stepped, self._base[:n_weights]),
            checked_weights(relevance_weights, self._base[n_weights:]),
        )

    def body(self, rng: np.random.Generator) -> UpdateBody:  # noqa: ARG002 (nothing is drawn)
        return dense_delta(np.concatenate([self._weights, self._relevance_weights]), self._base)

    def local_state(self) -> bytes | None:
        return None

    def _bias(self, k: int) -> ClickBias:
        """Return the assumed bias of the first k ranks, or of as many as the application knows."""
        examination = position_propensities(self._training.position_bias, k) if self._known is None else self._known[:k]
        return trust_bias(examination) if self._training.trust else position_bias(examination)

    def _step(
        self, features: NDArray[np.float32], rewards: Floats, bias: ClickBias, rng: np.random.Generator
    ) -> Floats:
        """Return (n_weights,) the ranker's weights after a step along the estimated utility of one query."""
        safe_scores = checked_scores(self._ranker, self._safe, features).astype(np.float64)
        # Equal scores have no order to keep.
        scale = self._training.temperature * (float(safe_scores.std()) or 1.0)
        scores = checked_scores(self._ranker, self._weights, features).astype(np.float64) / scale
        weights = rank_weights(min(self._training.serp_length, len(features)))
        noise = rng.gumbel(size=(_SAMPLES, len(features)))
        if self._directed is not None:
            exposed, safe = exposure(scores, weights, noise), exposure(safe_scores / scale, weights, noise)
            rewards = self._directed(self._training, rewards, exposed, safe, bias)
        gradient = utility_gradient(scores, rewards, weights, noise)
        return self._weights + self._training.learning_rate * scale * (gradient @ features)


def _penalised(
    training: SafeDoublyRobustTraining, rewards: Floats, exposed: Floats, safe: Floats, bias: ClickBias
) -> Floats:
    most_trusted = float((bias.beta / bias.alpha).max())
    risk = risk_of_estimate(most_trusted, float(safe.sum()), training.n_logged, training.delta)
    return penalised_rewards(rewards, exposed, safe, risk)


def _proximal(training: PrpoTraining, rewards: Floats, exposed: Floats, safe: Floats, _bias: ClickBias) -> Floats:
    return proximal_rewards(rewards, exposed, safe, training.clip)


def _device(
    training: TrustIpsTraining,
    ranker: LinearRankerSpec,
    weights: NDArray[np.float32],
    _version: int,
    context: DeviceContext,
    *,
    directed: Directed[Any] | None,
) -> MethodDevice:
    return CounterfactualDevice(ranker, weights, training, context, directed)


def _n_auxiliary(training: TrustIpsTraining, ranker: LinearRankerSpec) -> int:
    """Return how many weights and biases the relevance regression has, if there is one."""
    return ranker.n_features + 1 if isinstance(training, DoublyRobustTraining) else 0


def _spec(
    name: str, training: type[TrainingT], directed: Directed[TrainingT] | None = None
) -> MethodSpec[TrainingT, LinearRankerSpec]:
    return MethodSpec(
        name=name,
        training=training,
        device=partial(_device, directed=directed),
        lists=Lists.LOGGED,
        only_ranker=LINEAR_ONLY,
        n_auxiliary=_n_auxiliary,
    )


TRUST_IPS = _spec(name="trust-ips", training=TrustIpsTraining)
DR = _spec(name="dr", training=DoublyRobustTraining)
SAFE_DR = _spec(name="safe-dr", training=SafeDoublyRobustTraining, directed=_penalised)
PRPO = _spec(name="prpo", training=PrpoTraining, directed=_proximal)
