"""The settings of a replay: those of a run that a log leaves open, and how updates arrive and rounds end."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foltr.core.errors import SettingsError
from foltr.core.protocol.states import Pacing
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr_research.simulation.config import Count, SimulationConfig, resolve, rule_of
from foltr_research.simulation.method_names import SIMULATOR_METHODS

Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]

LEFT_OPEN: Final = (
    "method",
    "parameters",
    "ranker",
    "hidden",
    "activation",
    "interactions",
    "exploration",
    "rounds",
    "seed",
    "eval_every",
    "metrics",
    "aggregation",
    "byzantine",
    "aggregation_parameters",
    "aggregation_fallback",
)
"""The fields of `SimulationConfig` that a replay has. The log says who takes part, when, and what is clicked."""


class RoundSettings(BaseModel):
    """How updates arrive, and the service's settings of rounds."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    pacing: Literal["buffered", "deadline"] = "buffered"
    """buffered: an update may count in a later round. deadline: it counts in its round, and on its round's model."""
    min_clients: Count = 10
    """Updates with which a round ends: the size of a buffer."""
    max_clients: Count = 10_000
    """Updates in a round at most, of those that arrive at the same moment."""
    min_time_s: Seconds = 0.0
    """Seconds that a round lasts at least."""
    max_time_s: Annotated[float, Field(ge=1, le=1e9, allow_inf_nan=False)] = 30 * 86_400.0
    """The deadline of a round, in seconds after it opened."""
    staleness_limit: Annotated[int, Field(ge=0, le=100_000)] = 100
    """Buffered: how many model versions old an update's base may be."""
    staleness_exponent: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5
    """Buffered: an update of staleness s weighs (1 + s) ** -exponent."""
    delay_s: Seconds = 0.0
    """The mean time that an update is on its way, in seconds; times are drawn from an exponential distribution."""
    relearns: bool = False
    """Devices take each new model when their user searches and learn the waiting lists again, as in the service. If
    not, a device stays with the model with which it began the update, as in FedBuff."""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "RoundSettings":
        """Build settings from names and values. Raises SettingsError in one line."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise SettingsError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error


def plan_of(config: SimulationConfig, rounds: RoundSettings, n_features: int) -> FederationPlan:
    """Return the plan of a federation as the service checks it.

    Raises:
        SettingsError: the settings do not fit each other.
    """
    if config.method in SIMULATOR_METHODS:
        raise SettingsError(f"method: {config.method} has no federator, so no update can be late; choose another")
    training, ranker = resolve(config, n_features)
    policy = RoundPolicy(
        min_clients=rounds.min_clients,
        max_clients=rounds.max_clients,
        min_time_s=rounds.min_time_s,
        max_time_s=rounds.max_time_s,
        pacing=Pacing(rounds.pacing),
        staleness_limit=rounds.staleness_limit if rounds.pacing == "buffered" else 0,
        staleness_exponent=rounds.staleness_exponent,
        rule=rule_of(config),
    )
    return FederationPlan("replay", n_features, policy, training, ranker)


def check_left_open(values: Mapping[str, Any]) -> None:
    """Raise SettingsError for a field of `SimulationConfig` that a replay does not have."""
    for name in values:
        if name not in LEFT_OPEN:
            raise SettingsError(f"{name}: a replay does not have it; leave it out, or use simulate")
