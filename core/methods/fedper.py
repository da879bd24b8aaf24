"""FedPer: devices share the hidden layer and keep the output weights to themselves.

Arivazhagan et al., "Federated Learning with Personalization Layers" (2019), in the thesis' form (Section 4.3.3). The
personal weights start as announced and are trained locally; they never leave the device. Linear rankers have no hidden
layer.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.methods.base import DeviceContext, MethodDevice
from foltr.core.methods.bodies import BodySpec
from foltr.core.methods.fpdgd import FpdgdDevice
from foltr.core.methods.spec import MethodSpec, OnlyRanker, PdgdSteps
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.trainings import FedPerTraining, NeuralRankerSpec
from foltr.core.protocol.updates import PartDelta, UpdateBody


class FedPerDevice(FpdgdDevice):
    """FPDGD on the global hidden layer with this device's output weights."""

    def __init__(
        self,
        ranker: NeuralRankerSpec,
        base: NDArray[np.float32],
        steps: PdgdSteps,
        local_state: bytes | None,
    ) -> None:
        n_shared = ranker.n_base_weights
        if local_state is not None and len(local_state) == 8 * ranker.hidden:
            base = base.astype(np.float64)
            base[n_shared:] = np.frombuffer(local_state, "<f8")
        super().__init__(ranker, base, steps)
        self._n_shared = n_shared

    def body(self, rng: np.random.Generator) -> UpdateBody:  # noqa: ARG002 (nothing is drawn)
        shared = slice(0, self._n_shared)
        delta = (self._weights[shared] - self._base[shared]).astype(np.float32)
        return PartDelta(dim=len(self._base), start=0, values=pack_vector(delta))

    def local_state(self) -> bytes | None:
        return self._weights[self._n_shared :].astype("<f8").tobytes()


def _steps(training: FedPerTraining, ranker: NeuralRankerSpec) -> PdgdSteps:
    return PdgdSteps(training.learning_rate, n_shared=ranker.n_base_weights)


def _device(
    training: FedPerTraining,
    ranker: NeuralRankerSpec,
    weights: NDArray[np.float32],
    _version: int,
    context: DeviceContext,
) -> MethodDevice:
    return FedPerDevice(ranker, weights, _steps(training, ranker), context.local_state)


def _body(_training: FedPerTraining, ranker: NeuralRankerSpec, dim: int) -> BodySpec:
    return BodySpec("part", dim, 0, ranker.n_base_weights)


FEDPER = MethodSpec(
    name="fedper",
    training=FedPerTraining,
    device=_device,
    only_ranker=OnlyRanker(
        "neural",
        "a linear ranker has no hidden layer to share; choose ranker = neural, or method fpdgd-personal",
    ),
    body=_body,
    pdgd=_steps,
    personal=True,
)
