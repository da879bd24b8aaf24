"""An application's options for an `EdgeClient` are checked before anything is opened."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from broker.address import BrokerAddress
from edge_client.contribution import Alteration
from edge_client.guard.guard import checked_share
from edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits
from edge_client.training.unlearning_limits import USUAL_LIMITS, UnlearningLimits
from edge_client.training.working_model import Learner
from foltr.errors import DataError, SettingsError
from foltr.operator.credentials import Credentials
from foltr.protocol.explorations import Exploration, NoExploration, read_exploration
from foltr.protocol.schemas import FeatureSchema
from foltr.protocol.topics import check_name


@dataclass(frozen=True, eq=False)
class DeviceOptions:
    """Options of a device, checked; each is what `EdgeClient` says of it."""

    federation: str
    client_id: str
    address: BrokerAddress
    credentials: Credentials | None = None
    exploration: Exploration | None = None
    seed: int | None = None
    learner: Learner | None = None
    propensities: npt.NDArray[np.float64] | None = None
    guard: float | None = None
    gate: bool = True
    votes: bool = True
    evaluation: bool = True
    schema: FeatureSchema | None = None
    alter_update: Alteration | None = None
    give_up_after_s: float | None = None
    unlearning_limits: UnlearningLimits = USUAL_LIMITS
    # Where `foltr erasure request --credentials` keeps the wish of this client; None where credentials have no file.
    wish_file: Path | None = None
    privacy_limits: PrivacyLimits = USUAL_PRIVACY


def agreed_name(option: str, value: str | None, of_credentials: str | None) -> str:
    """Return the name that was given, or the credentials'; SettingsError where neither, or the two differ."""
    if value is not None and of_credentials is not None and value != of_credentials:
        raise SettingsError(f"{option}: {value!r} was given, but the credentials are for {of_credentials!r}")
    chosen = value if value is not None else of_credentials
    if chosen is None:
        raise SettingsError(f"{option}: name it, or give credentials, which do")
    return check_name(option, chosen)


def broker_address(broker: str | None, credentials: Credentials | None) -> BrokerAddress:
    """Return the address that was given, or the credentials'; SettingsError where neither, or it is none."""
    if credentials is not None:
        access = credentials.broker
        return BrokerAddress.of(access if broker is None else access.model_copy(update={"broker_url": broker}))
    if broker is None:
        raise SettingsError("broker: give the broker's address, or credentials, which hold it")
    return BrokerAddress.parse(broker)


def checked_seed(seed: int | None) -> int | None:
    """Return the seed; SettingsError where it is not one of 63 bits."""
    if seed is not None and not 0 <= seed < 2**63:
        raise SettingsError(f"seed: {seed} is not between 0 and 2**63 - 1")
    return seed


def checked_n_features(n_features: int | None, schema: FeatureSchema | None) -> int | None:
    """Return the number; SettingsError where it is below 1, or a schema says it already."""
    if n_features is not None and schema is not None:
        raise SettingsError("n_features: the schema says how many there are; leave one of the two out")
    if n_features is not None and n_features < 1:
        raise SettingsError(f"n_features: {n_features} is no number of columns; give how many each document has")
    return n_features


def checked_exploration(exploration: Exploration | str | None) -> Exploration | None:
    """Return the exploration, from its text where that is given; SettingsError for a text that is none."""
    return read_exploration(exploration) if isinstance(exploration, str) else exploration


def checked_guard(guard: float | None, exploration: Exploration | str | None) -> float | None:
    """Return the share; SettingsError where it is none, or the lists say nothing of another order."""
    if guard is None:
        return None
    if isinstance(checked_exploration(exploration), NoExploration):
        raise SettingsError("guard: it judges by lists that are drawn; leave it out, or exploration none")
    return checked_share(guard)


def declared_schema(schema: FeatureSchema | str | Path | None) -> FeatureSchema | None:
    """Return the schema, from its file where a path is given; SettingsError where that is none."""
    return FeatureSchema.read(schema) if isinstance(schema, str | Path) else schema


def checked_keep_interactions(keep_interactions: int) -> int:
    """Return the number; SettingsError where it is negative."""
    if keep_interactions < 0:
        raise SettingsError(
            f"keep_interactions: {keep_interactions} is below 0; give how many of the interactions in updates to keep, "
            "or 0"
        )
    return keep_interactions


def checked_propensities(propensities: npt.ArrayLike | None) -> npt.NDArray[np.float64] | None:
    """Return them as (k,) float64; DataError where they are not probabilities above 0."""
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
