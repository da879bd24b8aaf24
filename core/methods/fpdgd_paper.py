"""FPDGD with the noise of its paper: local weights are clipped and every device adds a share of Laplace noise.

Wang et al. (ICTIR 2021), Algorithm 3, Eq. 13, 15 and 16. It is here to reproduce the paper's figures. The epsilon
printed there is not what is guaranteed: `foltr.core.learning.laplace_shares` computes both, and nothing is protected
from whoever sees single updates, as the federator does.

What is sent is clipped and noised; the device itself goes on with exact weights. Clicks of a refused update are spent:
sent again they would come with fresh noise, and enough answers of "late" would average it out.
"""

from typing import Any

import numpy as np

from foltr.core.aggregation.rule_spec import RuleSpec
from foltr.core.errors import SettingsError
from foltr.core.learning.laplace_shares import actual_epsilon, clip_weights, gamma_noise, largest_delta
from foltr.core.methods.fpdgd import device_of
from foltr.core.methods.spec import Exposure, MethodSpec, PdgdSteps, Weights
from foltr.core.protocol.fields import MAX_ABS_DELTA
from foltr.core.protocol.trainings import FpdgdPaperTraining, RankerSpec


def _steps(training: FpdgdPaperTraining, _ranker: RankerSpec) -> PdgdSteps:
    def noised(weights: Weights, _start: Weights, rng: np.random.Generator) -> Weights:
        noise = gamma_noise(training.n_clients, training.sensitivity, training.epsilon, len(weights), rng)
        return clip_weights(weights, training.sensitivity) + noise

    return PdgdSteps(training.learning_rate, sent=noised)


def _check(training: FpdgdPaperTraining, _ranker: RankerSpec) -> None:
    largest = largest_delta(training.sensitivity, training.epsilon)
    if largest > MAX_ABS_DELTA:
        raise SettingsError(
            f"fpdgd-paper: sensitivity, epsilon: their noise could make a weight of an update {largest:.3g}, and "
            f"one holds {MAX_ABS_DELTA:g}; sensitivity * (1 + 80 / epsilon) is at most that"
        )


def _check_rule(rule: RuleSpec) -> None:
    raise SettingsError(
        f"aggregation: the noise of fpdgd-paper protects clients only in the sum of all of them, and {rule.text} "
        "would take single updates; choose aggregation = mean, or method fpdgd"
    )


def _privacy(training: FpdgdPaperTraining, exposure: Exposure) -> dict[str, Any]:
    figures = actual_epsilon(
        training.sensitivity,
        training.epsilon,
        exposure.n_weights,
        training.n_clients,
        min(exposure.participants, training.n_clients),
        exposure.rounds,
    ).to_dict()
    return figures if exposure.fewest == exposure.most else _without_epsilon(figures, training.epsilon)


def _without_epsilon(figures: dict[str, float | int | str | None], claimed: float) -> dict[str, Any]:
    """Return the report of a sum that is weighted by unequal numbers of interactions, to which no figure applies."""
    kept = {name: None if name.startswith("epsilon_") else value for name, value in figures.items()}
    kept["summary"] = (
        f"claimed: epsilon {claimed:g} a round. Actual: none is given, because clients differ in their interactions: "
        "the noise is weighted with each update, so its sum is not Laplace and protects those with many the least."
    )
    return kept


FPDGD_PAPER = MethodSpec(
    name="fpdgd-paper",
    training=FpdgdPaperTraining,
    device=device_of(_steps),
    check=_check,
    check_rule=_check_rule,
    needs_deadline="a buffer shrinks updates that are out of date, and so their noise",
    pdgd=_steps,
    # It would add noise once more, and spend epsilon for it.
    learns_again=False,
    spent_when_sent=True,
    privacy=_privacy,
)
