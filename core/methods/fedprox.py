"""FedProx: FPDGD whose steps are drawn towards the global model.

Li et al., "Federated Optimization in Heterogeneous Networks" (MLSys 2020), in the thesis' form (Section 4.3.3): a step
is w + learning_rate * (gradient - mu * (w - base)). With mu = 0 it is FPDGD.
"""

from foltr.core.errors import SettingsError
from foltr.core.methods.fpdgd import device_of
from foltr.core.methods.spec import MethodSpec, PdgdSteps
from foltr.core.protocol.trainings import FedProxTraining, RankerSpec

# Room for the rounding of a product such as 0.1 * 10, which is meant to be exactly 1.
_ROUNDING = 1e-9


def _steps(training: FedProxTraining, _ranker: RankerSpec) -> PdgdSteps:
    return PdgdSteps(training.learning_rate, proximal=training.mu)


def _check(training: FedProxTraining, _ranker: RankerSpec) -> None:
    if training.learning_rate * training.mu > 1.0 + _ROUNDING:
        raise SettingsError(
            f"fedprox: mu: learning_rate * mu is {training.learning_rate * training.mu:g}, and the pull would "
            f"overshoot the global model; with this learning_rate mu is at most {1.0 / training.learning_rate:g}"
        )


FEDPROX = MethodSpec(name="fedprox", training=FedProxTraining, device=device_of(_steps), check=_check, pdgd=_steps)
