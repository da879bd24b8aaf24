"""FPDGD with the noise of its paper: local weights are clipped and every device adds a share of Laplace noise.

Wang et al. (ICTIR 2021), Algorithm 3, Eq. 13, 15 and 16. It is here to reproduce the paper's figures. The epsilon
printed there is not guaranteed, and nothing is protected from a federator, which sees single updates.

Clipping and noise apply only to what is sent; the device continues with exact weights. Clicks of a refused update are
spent: sent again they would get fresh noise, and many refusals with "late" would let a federator average it out.
"""

import numpy as np

from foltr.core.aggregation.rule_spec import RuleSpec
from foltr.core.errors import SettingsError
from foltr.core.learning.laplace_shares import clip_weights, gamma_noise, largest_delta
from foltr.core.methods.fpdgd import device_of
from foltr.core.methods.spec import MethodSpec, PdgdSteps, Weights
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


FPDGD_PAPER = MethodSpec(
    name="fpdgd-paper",
    training=FpdgdPaperTraining,
    device=device_of(_steps),
    check=_check,
    check_rule=_check_rule,
    needs_deadline="a buffer shrinks updates that are out of date, and so their noise",
    pdgd=_steps,
    # It would add noise again, and spend epsilon for it.
    learns_again=False,
    spent_when_sent=True,
)
