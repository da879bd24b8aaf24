"""FedPer: devices share the hidden layer and keep the output weights to themselves.

Arivazhagan et al., "Federated Learning with Personalization Layers" (2019), as the thesis uses it (Section 4.3.3). The
personal weights start as announced and are trained locally; they never leave the device. A linear ranker has no
hidden layer to share.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.methods.fpdgd import FpdgdDevice
from foltr.protocol.fields import pack_vector
from foltr.protocol.trainings import NeuralRankerSpec
from foltr.protocol.updates import PartDelta, UpdateBody


class FedPerDevice(FpdgdDevice):
    """FPDGD on the global hidden layer with this device's own output weights."""

    def __init__(
        self,
        ranker: NeuralRankerSpec,
        base: NDArray[np.float32],
        learning_rate: float,
        local_state: bytes | None,
    ) -> None:
        n_shared = ranker.n_base_weights
        if local_state is not None and len(local_state) == 8 * ranker.hidden:
            base = base.astype(np.float64)
            base[n_shared:] = np.frombuffer(local_state, "<f8")
        super().__init__(ranker, base, learning_rate)
        self._n_shared = n_shared

    def body(self, rng: np.random.Generator) -> UpdateBody:  # noqa: ARG002 (nothing is drawn)
        shared = slice(0, self._n_shared)
        delta = (self._weights[shared] - self._base[shared]).astype(np.float32)
        return PartDelta(dim=len(self._base), start=0, values=pack_vector(delta))

    def local_state(self) -> bytes | None:
        return self._weights[self._n_shared :].astype("<f8").tobytes()
