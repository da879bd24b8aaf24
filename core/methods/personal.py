"""A shared linear ranker and, on each device, personal weights that count as far as its user's clicks support them.

For users who prefer different documents for the same query (thesis, Section 4.3: neither FedProx nor FedPer copes, and
FedPer needs a hidden layer). A device ranks by score = (w + s v) . x: w is the federation's, v and s never leave.

- Within a round the device learns by PDGD (FPDGD, Algorithm 1) from w + s v on, and like FPDGD sends the difference u.
- The next global model shows how the federation moved, m = w' - w. The part of u that m explains is not personal: the
  rest, r = u - b m with the least-squares b = u.m / m.m kept within [0, 1], is added to v. A user who disagrees with
  the federation has b = 0 and keeps all of u. The fit does not depend on the number of other clients, on how much each
  of them did, or on missed models.
- s is the positive-part James-Stein factor of that sum, s = max(0, 1 - c Q / |v|^2), Q being the sum of |r|^2. If the
  rests were noise, |v|^2 would be about Q, so s is 0 and the device ranks like all others; if they agree, |v|^2 grows
  with the square of their number and Q only with their number. So personal weights shrink as the evidence for them does
  (empirical Bayes: James and Stein 1961; Efron and Morris 1973).

Splitting a model into a shared and a personal part is Arivazhagan et al. (2019), the additive split of one linear layer
among others Agarwal et al. (2020), "Federated residual learning".
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.methods.base import DeviceContext, MethodDevice, checked_weights
from foltr.core.methods.fpdgd import FpdgdDevice
from foltr.core.methods.spec import LINEAR_ONLY, MethodSpec, PdgdSteps
from foltr.core.protocol.trainings import LinearRankerSpec, PersonalTraining

DOUBT = 1.5
"""c above: how many times the expected noise must be exceeded. At 1, James and Stein's value for many dimensions, about
half of the users without personal taste would seem a little personal by chance, and rank worse."""


@dataclass(frozen=True, eq=False)
class PersonalState:
    """A device's state.

    Attributes:
        base: (d,) float64, the global model that ``pending`` was learned from.
        pending: (d,) what was learned from ``base`` on, until the next model shows how much of it is personal.
        direction: (d,) v, the sum of the rests, times the ratio of the personal and the shared learning rate.
        noise: Q, the sum of the squared norms of the terms of ``direction``.
    """

    base: NDArray[np.float64]
    pending: NDArray[np.float64]
    direction: NDArray[np.float64]
    noise: float

    @property
    def share(self) -> float:
        """Return s, from 0 to 1."""
        length = float(self.direction @ self.direction)
        return max(0.0, 1.0 - DOUBT * self.noise / length) if length > 0.0 else 0.0

    def after(self, learned: NDArray[np.float64]) -> "PersonalState":
        """Return the state with what was learned from ``base`` on."""
        return replace(self, pending=self.pending + learned)

    def to_bytes(self) -> bytes:
        """Return the state as 8 * (3 d + 1) bytes."""
        return np.concatenate([self.base, self.pending, self.direction, [self.noise]]).astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, dim: int) -> "PersonalState | None":
        """Return what `to_bytes` made for a model of ``dim`` weights; None for anything else."""
        if len(data) != 8 * (3 * dim + 1):
            return None
        values = np.frombuffer(data, "<f8")
        if not np.isfinite(values).all():
            return None
        return cls(values[:dim], values[dim : 2 * dim], values[2 * dim : 3 * dim], float(values[-1]))


def personal_start(
    state: PersonalState | None, base: NDArray[np.floating], training: PersonalTraining
) -> tuple[PersonalState, NDArray[np.float64]]:
    """Return what a device keeps and ranks by once it has a global model.

    Args:
        state: what it kept; None for a device that has learned nothing.
        base: (d,) the global model.

    Returns:
        the state, settled as far as this model allows, and (d,) float64 weights to start from.
    """
    weights = base.astype(np.float64)
    if state is None:
        return PersonalState(weights, np.zeros(len(weights)), np.zeros(len(weights)), 0.0), weights
    state = _settled(state, weights, training.personal_learning_rate / training.learning_rate)
    return state, weights + state.share * state.direction


def _settled(state: PersonalState, base: NDArray[np.float64], rate: float) -> PersonalState:
    """Return the state with ``pending`` divided between federation and user, if ``base`` is not its own model."""
    moved = base - state.base
    distance = float(moved @ moved)
    if distance == 0.0:
        return state
    explained = min(max(float(state.pending @ moved) / distance, 0.0), 1.0)
    rest = rate * (state.pending - explained * moved)
    return PersonalState(base, np.zeros(len(base)), state.direction + rest, state.noise + float(rest @ rest))


class PersonalDevice(FpdgdDevice):
    """FPDGD from the sum of the global weights and this device's own."""

    def __init__(
        self,
        ranker: LinearRankerSpec,
        base: NDArray[np.float32],
        training: PersonalTraining,
        local_state: bytes | None,
    ) -> None:
        kept = None if local_state is None else PersonalState.from_bytes(local_state, len(base))
        self._state, start = personal_start(kept, base, training)
        super().__init__(ranker, checked_weights(start), PdgdSteps(training.learning_rate))

    def local_state(self) -> bytes | None:
        return self._state.after(self._weights - self._base).to_bytes()


def _device(
    training: PersonalTraining,
    ranker: LinearRankerSpec,
    weights: NDArray[np.float32],
    _version: int,
    context: DeviceContext,
) -> MethodDevice:
    return PersonalDevice(ranker, weights, training, context.local_state)


PERSONAL = MethodSpec(
    name="fpdgd-personal", training=PersonalTraining, device=_device, only_ranker=LINEAR_ONLY, personal=True
)
