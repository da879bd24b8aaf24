"""What an application chooses for its device; each group is checked when made, before anything is opened."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from foltr.core.errors import DataError, SettingsError
from foltr.core.protocol.explorations import Exploration, read_exploration
from foltr.core.protocol.fields import Message
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.topics import check_name
from foltr.edge_client.store.recent_lists import KEPT_LISTS, KEPT_S
from foltr.edge_client.store.store import KEPT_INTERACTIONS
from foltr.edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits
from foltr.edge_client.training.unlearning_limits import USUAL_LIMITS, UnlearningLimits

if TYPE_CHECKING:
    from foltr.broker.address import BrokerAddress
    from foltr.core.operator.credentials import Credentials
    from foltr.edge_client.contribution import Alteration
    from foltr.edge_client.training.working_model import Learner

CLICK_WINDOW_S: Final = 300.0
"""Users read for minutes before they come back to a list; a later update costs only its delay."""


@dataclass(frozen=True)
class Connection:
    """How a device reaches its federation; by default as the credentials say.

    Args:
        broker: ``mqtt[s]://[user:password@]host[:port]``.
        give_up_after_s: how long the broker may be away before `EdgeClient.wait_connected` and `EdgeClient.next_round`
            fail for good; None: for ever. Ranking and recording work anyway.
    """

    broker: str | None = None
    federation: str | None = None
    client_id: str | None = None
    give_up_after_s: float | None = None


@dataclass(frozen=True, eq=False)
class Ranking:
    """How a device makes its lists.

    Args:
        exploration: how lists differ from the best known order (docs/methods.md), e.g. ``"swaps:0.004"``. None: as the
            federation says. With ``"none"`` methods of PDGD learn nothing.
        gate: show the model's lists only while the user's clicks say that they are better.
        propensities: (k,) in (0, 1], how likely the user examines each position, for FedIPS. Never sent.

    Raises:
        SettingsError: the exploration is unknown.
        DataError: the propensities are not probabilities above 0.
    """

    exploration: Exploration | str | None = None
    gate: bool = True
    propensities: npt.ArrayLike | None = None

    def __post_init__(self) -> None:
        checked_exploration(self.exploration)
        checked_propensities(self.propensities)


@dataclass(frozen=True)
class Privacy:
    """What a device keeps of its user's clicks, and what it reports of them.

    Args:
        click_window_s: how long a list waits for more clicks after the last; at most a day.
        max_interactions: how many interactions may wait; beyond it the oldest are dropped.
        keep_interactions: how many counted interactions are kept, for unlearning (docs/devices.md). 0 keeps none.
        recent_lists: how many of the newest lists are kept for their clicks, for a day.
        votes: say with each update whether the newest model suits this user's clicks better than an older one.
        evaluation: say, if the federation asks, how many lists were clicked, how far up and in whose favour; use what
            all say.
        unlearning_limits: how much unlearning jobs may ask of this device.
        privacy_limits: the highest epsilon and delta and the smallest cohort of a policy that this device accepts.

    Raises:
        SettingsError: a number is too low or too high.
    """

    click_window_s: float = CLICK_WINDOW_S
    max_interactions: int = 10_000
    keep_interactions: int = KEPT_INTERACTIONS
    recent_lists: int = KEPT_LISTS
    votes: bool = True
    evaluation: bool = True
    unlearning_limits: UnlearningLimits = USUAL_LIMITS
    privacy_limits: PrivacyLimits = USUAL_PRIVACY

    def __post_init__(self) -> None:
        for name, least in (("max_interactions", 1), ("keep_interactions", 0), ("recent_lists", 1)):
            number = getattr(self, name)
            checked_type(name, number, int, np.integer)
            if number < least:
                raise SettingsError(f"{name}: {number} is below {least}; give how many to keep")
        checked_type("click_window_s", self.click_window_s, float, int)
        if not 0.0 <= self.click_window_s <= KEPT_S:
            raise SettingsError(f"click_window_s: {self.click_window_s} is not from 0 to {KEPT_S:.0f} seconds")


@dataclass(frozen=True)
class Experiment:
    """Settings for experiments and tests, not for applications.

    Args:
        seed: of everything the device draws. None: fresh entropy.
        learner: how one interaction changes the weights. None: by the announced method.
        alter_update: changes what is sent, for attacks (`Alteration`). None: sends what was learned.

    Raises:
        SettingsError: the seed is not one of 63 bits.
    """

    seed: int | None = None
    learner: "Learner | None" = None
    alter_update: "Alteration | None" = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            checked_type("seed", self.seed, int, np.integer)
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise SettingsError(f"seed: {self.seed} is not between 0 and 2**63 - 1")


def checked_exploration(exploration: Exploration | str | None) -> Exploration | None:
    """Return the exploration, parsing a text; SettingsError for an unknown one."""
    if isinstance(exploration, str):
        return read_exploration(exploration)
    given: object = exploration
    if given is not None and not isinstance(given, Message):
        checked_type("exploration", given, str)
    return exploration


def declared_schema(schema: FeatureSchema | str | Path | None) -> FeatureSchema | None:
    """Return the schema, reading it from a path; SettingsError if the file holds none."""
    if isinstance(schema, str | Path):
        return FeatureSchema.read(schema)
    if schema is not None:
        checked_type("schema", schema, FeatureSchema, str, Path)
    return schema


def checked_type(argument: str, value: object, *types: type) -> None:
    """Raise SettingsError if an argument's value is of none of these types. The value may be secret."""
    if not isinstance(value, types):
        expected = " or ".join(one.__name__ for one in types)
        raise SettingsError(f"{argument}: expected {expected}, got {type(value).__name__}")


def check_groups(on_event: object, *groups: tuple[object, type]) -> None:
    """Raise SettingsError if a group of options is none, or the observer cannot be called."""
    for value, kind in groups:
        checked_type(kind.__name__.lower(), value, kind)
    if on_event is not None and not callable(on_event):
        raise SettingsError(f"on_event: expected a function, got {type(on_event).__name__}")


def checked_propensities(propensities: npt.ArrayLike | None) -> npt.NDArray[np.float64] | None:
    """Return them as (k,) float64; DataError if they are not probabilities above 0."""
    if propensities is None:
        return None
    try:
        checked = np.array(propensities, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"propensities: expected numbers, one for each position: {error}") from error
    if checked.ndim != 1 or len(checked) == 0 or not ((checked > 0.0) & (checked <= 1.0)).all():
        raise DataError("propensities: expected a probability in (0, 1] for each position, the first one first")
    checked.flags.writeable = False
    return checked


def agreed_name(option: str, value: str | None, of_credentials: str | None) -> str:
    """Return the given name, or the credentials'; SettingsError if both are missing, or they differ."""
    if value is not None and of_credentials is not None and value != of_credentials:
        raise SettingsError(f"{option}: {value!r} was given, but the credentials are for {of_credentials!r}")
    chosen = value if value is not None else of_credentials
    if chosen is None:
        raise SettingsError(f"{option}: name it, or give credentials, which do")
    return check_name(option, chosen)


def broker_address(broker: str | None, credentials: "Credentials | None") -> "BrokerAddress":
    """Return the given address, or the credentials'; SettingsError if both are missing, or it is invalid."""
    from foltr.broker.address import BrokerAddress

    if broker is not None:
        checked_type("broker", broker, str)
    if credentials is not None:
        access = credentials.broker
        return BrokerAddress.of(access if broker is None else access.model_copy(update={"broker_url": broker}))
    if broker is None:
        raise SettingsError("broker: give the broker's address, or credentials, which hold it")
    return BrokerAddress.parse(broker)


@dataclass(frozen=True, eq=False)
class DeviceOptions:
    """All options of one client of a federation, its identity and its application's features."""

    federation: str
    client_id: str
    credentials: "Credentials | None" = None
    schema: FeatureSchema | None = None
    ranking: Ranking = Ranking()
    privacy: Privacy = Privacy()
    experiment: Experiment = Experiment()
