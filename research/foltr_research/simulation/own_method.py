"""A method of one's own in one class: `Method`. Its fields are its parameters, its functions what a device does."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PydanticUserError

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.pdgd import pdgd_step
from foltr.core.methods.base import DeviceContext, checked_weights
from foltr.core.methods.fpdgd import FpdgdDevice
from foltr.core.methods.spec import LINEAR_ONLY, MethodSpec, PdgdSteps
from foltr.core.protocol.fields import Rate
from foltr.core.protocol.trainings import LinearRankerSpec, MethodTraining

Weights = NDArray[np.float64]


class _MethodClass(type(MethodTraining)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """Makes a class of parameters; a field that cannot be one is an error of ours."""

    def __new__(cls, name: str, *parts: Any, **options: Any) -> Any:
        try:
            return super().__new__(cls, name, *parts, **options)
        except PydanticUserError as error:
            problem = error.message.partition(". ")[0]
            raise SettingsError(
                f"method: {name}: {problem}; give each parameter a type and a default, as clip_norm: float = 1.0"
            ) from error


class Method(MethodTraining, metaclass=_MethodClass):
    """FPDGD on a linear ranker; a subclass replaces parts of it.

    Annotated fields with defaults are the method's parameters, e.g. ``clip_norm: float = 1.0``. The federator adds the
    mean of what devices send, or aggregates it by a rule. A private attribute, e.g. ``_velocity = 0.0``, is each
    device's own and begins again in each round. For neural rankers, personal weights or another aggregation
    write a `foltr.core.methods.spec.MethodSpec`.
    """

    learning_rate: Rate = 0.1

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise SettingsError(
                f"{type(self).__name__}.{name}: parameters do not change; keep what a device remembers within a round "
                f"in a private attribute: declare _{name} = 0.0 in the class"
            )
        super().__setattr__(name, value)

    def learn(self, weights: Weights, seen: Interaction, rng: np.random.Generator) -> Weights:  # noqa: ARG002
        """Return (d,) new weights after one shown list.

        Args:
            seen: the list: ``features`` (documents, d) of all candidates, ``ranking`` (shown,) rows of these, best
                first, ``clicks`` (shown,) bool, and ``id``, its number in the round from 0.
        """
        list_ = (seen.features, seen.ranking, seen.clicks)
        return pdgd_step(weights, *list_, self.learning_rate, reversals=seen.reversals).astype(np.float64)

    def send(self, weights: Weights, start: Weights, rng: np.random.Generator) -> Weights:  # noqa: ARG002
        """Return (d,) weights to send in place of the learned ones; ``start`` is the round's model."""
        return weights


class _Device(FpdgdDevice):
    """Asks the method for each step, and for what to send."""

    def __init__(self, method: Method, ranker: LinearRankerSpec, base: NDArray[np.floating]) -> None:
        super().__init__(ranker, base, PdgdSteps(method.learning_rate, sent=self._sent))
        # One object stands for the method in all devices; what one remembers is not the others'.
        self._method = method.model_copy(deep=True)

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # reported as an error instead
            # A copy, so that a method may change its weights in place.
            stepped = self._method.learn(self._weights.copy(), interaction, rng)
        self._weights = checked_weights(self._checked(stepped, "learn"), self._base)

    def _sent(self, weights: Weights, start: Weights, rng: np.random.Generator) -> Weights:
        return self._checked(self._method.send(weights, start.copy(), rng), "send")

    def _checked(self, made: object, function: str) -> Weights:
        """Return an array of weights as float64. Raises DataError for anything else."""
        weights = np.asarray(made)
        if weights.shape != self._base.shape or weights.dtype.kind not in "fiu":
            name = type(self._method).__name__
            raise DataError(
                f"{name}.{function} must return weights {self._base.shape}, not {weights.shape} {weights.dtype}"
            )
        return weights.astype(np.float64)


def spec_of_class(method: type[Method], name: str) -> MethodSpec[Method, LinearRankerSpec]:
    """Return the method of a class."""

    def device(
        training: Method, ranker: LinearRankerSpec, weights: NDArray[np.float32], _version: int, _: DeviceContext
    ) -> _Device:
        return _Device(training, ranker, weights)

    return MethodSpec(name=name, training=method, device=device, only_ranker=LINEAR_ONLY)
