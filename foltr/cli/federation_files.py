"""The files that a federator is started with: the feature schema, and the model it begins with."""

from foltr.cli.setting_groups import Learning
from foltr.core.errors import SettingsError
from foltr.core.methods.initial_models import InitialModel
from foltr.core.methods.registry import Ranker
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.schemas import FeatureSchema


def read_schema_setting(learning: Learning) -> "tuple[Learning, FeatureSchema | None]":
    """The schema if one is set, and the settings with its number of features.

    Raises:
        SettingsError: it cannot be read, or another number of features was given beside it.
    """
    if learning.feature_schema is None:
        return learning, None
    schema = FeatureSchema.read(learning.feature_schema)
    if "n_features" in learning.model_fields_set and learning.n_features != schema.n_features:
        raise SettingsError(
            f"n_features: {learning.n_features}, but {learning.feature_schema} has {schema.n_features}; "
            "leave n_features out, the schema says how many"
        )
    return learning.model_copy(update={"n_features": schema.n_features}), schema


def read_initial_model(learning: Learning, ranker: "Ranker", schema: "FeatureSchema | None") -> bytes | None:
    """The weights that the federation begins with, as they are stored; None where none are set.

    Raises:
        SettingsError: the file is not what it should be, or for another ranker or schema.
    """
    if learning.initial_model is None:
        return None
    return pack_vector(InitialModel.read(learning.initial_model).weights_of(ranker, schema))
