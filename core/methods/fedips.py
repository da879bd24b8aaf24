"""FedIPS: clicks on the lists of a logging policy, weighted by the inverse propensity of their position.

Li and Ouyang, "Federated Unbiased Learning to Rank" (2021): Algorithm 1, Eq. 4 and 7. Propensities are known, or
estimated on the device by the regression-EM of Wang et al. (WSDM 2018), whose relevance function is federated with the
ranker (Section 5). Without weights it is FedAvg, the paper's biased baseline. The federator moves the model by
``server_learning_rate`` times the plain mean of the updates.

Clicks below the last position with a propensity are not learned: those below ``serp_length``, and those below the last
position an application knows. Documents shown there stay candidates, like those that are not shown.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.ips import ips_step, position_propensities
from foltr.core.learning.regression_em import LOWEST_PROPENSITY, em_step, prior_counts, propensities_of
from foltr.core.methods.aggregations import DeltaAggregation
from foltr.core.methods.base import Aggregation, DeviceContext, MethodDevice, checked_scores, checked_weights
from foltr.core.methods.bodies import BodySpec
from foltr.core.methods.fpdgd import dense_delta
from foltr.core.methods.spec import LINEAR_ONLY, Lists, MethodSpec, RoundSetup
from foltr.core.protocol.fields import MAX_ABS_DELTA, unpack_vector
from foltr.core.protocol.trainings import FedAvgTraining, FedIpsTraining, LinearRankerSpec
from foltr.core.protocol.updates import UpdateBody

# The weight of the announced position bias against the device's own observations, in interactions.
_PRIOR_STRENGTH = 10.0
# A click moves a weight by learning_rate / propensity times at most the number of candidates, with features in [0, 1];
# an update must hold the movement of this many.
_CANDIDATES = 1000


class FedIpsDevice:
    """One step of hinge loss for each click, from the global model on."""

    def __init__(
        self,
        ranker: LinearRankerSpec,
        base: NDArray[np.float32],
        training: FedIpsTraining | FedAvgTraining,
        context: DeviceContext,
    ) -> None:
        self._ranker = ranker
        self._training = training
        self._base = base.astype(np.float64)
        self._ranker_weights = self._base[: ranker.n_weights]
        # Of the relevance function; empty unless propensities are estimated.
        self._relevance_weights = self._base[ranker.n_weights :]
        self._logging = unpack_vector(training.logging_policy) if training.logging_policy else base[: ranker.n_weights]
        self._known = context.propensities
        # Pseudo-counts of the estimate; None unless propensities are estimated.
        self._counts: NDArray[np.float64] | None = None
        self._relevance_rate = 0.0
        if isinstance(training, FedIpsTraining) and training.propensities == "estimated":
            self._counts = _restored_counts(training, context.local_state)
            self._relevance_rate = training.relevance_learning_rate

    @property
    def weights(self) -> NDArray[np.float64]:
        return self._ranker_weights

    def scores(
        self,
        features: NDArray[np.float32],
        *,
        exploring: bool,  # noqa: ARG002 (a logging policy explores nothing)
    ) -> tuple[NDArray[np.float32], int]:
        return checked_scores(self._ranker, self._logging, features), 0

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:  # noqa: ARG002
        training, features = self._training, interaction.features
        propensities = self._propensities(min(len(interaction.ranking), training.serp_length))
        k = len(propensities)
        ranking, clicks = interaction.ranking[:k], interaction.clicks[:k]
        counts, relevance_weights = self._counts, self._relevance_weights
        with np.errstate(over="ignore", invalid="ignore"):  # told as an error instead
            if counts is not None:
                counts, relevance_weights = em_step(
                    counts, relevance_weights, features, ranking, clicks, self._relevance_rate
                )
            stepped = ips_step(self._ranker_weights, features, ranking, clicks, propensities, training.learning_rate)
        n_weights = self._ranker.n_weights
        self._ranker_weights, self._relevance_weights = (
            checked_weights(stepped, self._base[:n_weights]),
            checked_weights(relevance_weights, self._base[n_weights:]),
        )
        self._counts = counts

    def body(self, rng: np.random.Generator) -> UpdateBody:  # noqa: ARG002 (nothing is drawn)
        return dense_delta(np.concatenate([self._ranker_weights, self._relevance_weights]), self._base)

    def local_state(self) -> bytes | None:
        return None if self._counts is None else self._counts.astype("<f8").tobytes()

    def _propensities(self, k: int) -> NDArray[np.float64]:
        """Return those of the first k positions, or of as many as the application knows."""
        if isinstance(self._training, FedAvgTraining):
            return np.ones(k)
        if self._counts is not None:
            return propensities_of(self._counts)[:k]
        if self._known is not None:
            return self._known[:k]
        return position_propensities(self._training.position_bias, k)


def first_counts(training: FedIpsTraining) -> NDArray[np.float64]:
    """Return (2, serp_length) pseudo-counts of a device that has seen nothing yet.

    Raises:
        SettingsError: ``position_bias`` makes no prior.
    """
    prior = position_propensities(training.position_bias, training.serp_length)
    return prior_counts(prior, _PRIOR_STRENGTH)


def _restored_counts(training: FedIpsTraining, local_state: bytes | None) -> NDArray[np.float64]:
    """Return (2, serp_length) pseudo-counts as stored, or those of a device that has seen nothing yet."""
    if local_state is not None and len(local_state) == 16 * training.serp_length:
        return np.frombuffer(local_state, "<f8").reshape(2, training.serp_length)
    return first_counts(training)


def _device(
    training: FedIpsTraining | FedAvgTraining,
    ranker: LinearRankerSpec,
    weights: NDArray[np.float32],
    _version: int,
    context: DeviceContext,
) -> MethodDevice:
    return FedIpsDevice(ranker, weights, training, context)


def _aggregation(training: FedIpsTraining | FedAvgTraining, body: BodySpec, setup: RoundSetup) -> Aggregation:
    return DeltaAggregation(
        body.dim,
        by_interactions=False,
        step=training.server_learning_rate,
        rule=setup.rule,
        n_expected=setup.n_expected,
        rng=setup.rng,
    )


def _n_auxiliary(training: FedIpsTraining, ranker: LinearRankerSpec) -> int:
    """Return how many weights and biases the relevance function of estimated propensities has."""
    return ranker.n_features + 1 if training.propensities == "estimated" else 0


def _check_fedips(training: FedIpsTraining, ranker: LinearRankerSpec) -> None:
    if training.propensities == "estimated":
        _check_prior(training)
        smallest = LOWEST_PROPENSITY
    else:
        smallest = float(position_propensities(training.position_bias, training.serp_length)[-1])
    most = MAX_ABS_DELTA / _CANDIDATES
    if training.learning_rate / smallest > most:
        raise SettingsError(
            f"fedips: learning_rate: {training.learning_rate:g} divided by the smallest propensity of a position, "
            f"{smallest:.3g}, is above {most:g}, and a click there would be more than an update holds; with this "
            f"position_bias and serp_length it is at most {most * smallest:.3g}"
        )
    _check_logging_policy("fedips", training.logging_policy, ranker.n_features)


def _check_prior(training: FedIpsTraining) -> None:
    if not training.position_bias:
        raise SettingsError("fedips: position_bias must be above 0 to estimate propensities, which start from it")
    try:
        first_counts(training)
    except SettingsError as error:
        raise SettingsError(
            f"fedips: position_bias: {training.position_bias:g} is too near 0 to estimate propensities, which "
            "start from it; from 1e-9 to 10"
        ) from error


def _check_fedavg(training: FedAvgTraining, ranker: LinearRankerSpec) -> None:
    _check_logging_policy("fedavg", training.logging_policy, ranker.n_features)


def _check_logging_policy(method: str, policy: bytes, n_features: int) -> None:
    if policy and len(policy) != 4 * n_features:
        raise SettingsError(f"{method}: logging_policy: {len(policy) / 4:g} weights; the ranker has {n_features}")
    # The largest score of features in [0, 1]; NaN also fails the comparison.
    if not np.abs(unpack_vector(policy).astype(np.float64)).sum() <= np.finfo(np.float32).max:
        raise SettingsError(
            f"{method}: logging_policy: its weights must be finite numbers, and small enough for finite float32 scores"
        )


FEDIPS = MethodSpec(
    name="fedips",
    training=FedIpsTraining,
    device=_device,
    lists=Lists.LOGGED,
    only_ranker=LINEAR_ONLY,
    check=_check_fedips,
    n_auxiliary=_n_auxiliary,
    aggregation=_aggregation,
)
FEDAVG = MethodSpec(
    name="fedavg",
    training=FedAvgTraining,
    device=_device,
    lists=Lists.LOGGED,
    only_ranker=LINEAR_ONLY,
    check=_check_fedavg,
    aggregation=_aggregation,
)
