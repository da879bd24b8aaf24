"""A federation may begin with given weights instead of zeros: a small JSON file for linear rankers.

    {"schema_hash": "9c1e…", "weights": {"bm25": 8.0, "age in days": -0.5}}
    {"weights": [0.0, 0.0, 8.0, 0.0]}

Weights by name belong to the features of a schema (`foltr.core.protocol.schemas`); unnamed ones are 0. A list has one
for each feature. ``schema_hash`` is optional; if present it must be that of the federation's schema: under another
scaling the same weights would be another ranker.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from foltr.core.errors import SettingsError
from foltr.core.methods.registry import Ranker
from foltr.core.protocol.fields import MAX_ABS_DELTA
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr.core.protocol.written_files import read_written_file

_Weight = Annotated[float, Field(ge=-MAX_ABS_DELTA, le=MAX_ABS_DELTA, allow_inf_nan=False)]
_Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class InitialModel(BaseModel):
    """The first model of a federation, in a file.

    Attributes:
        schema_hash: of the schema that the weights are for, in hex; None: the file does not say.
        weights: by feature name, or one for each feature.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    schema_hash: _Hash | None = None
    weights: dict[str, _Weight] | list[_Weight]

    @classmethod
    def of(cls, schema: FeatureSchema, weights: NDArray[np.floating]) -> "InitialModel":
        """Return these weights, (d,), by the names of a schema."""
        named = dict(zip(schema.names, weights.tolist(), strict=True))
        return cls(schema_hash=schema.hash.hex(), weights=named)

    @classmethod
    def read(cls, path: str | Path) -> "InitialModel":
        """Read a file; SettingsError if it does not exist, or is invalid."""
        return read_written_file(cls, path, "initial_model")

    def to_json(self) -> str:
        """Return the text of a file that `read` takes."""
        return self.model_dump_json(exclude_none=True, indent=1) + "\n"

    def weights_of(self, ranker: Ranker, schema: FeatureSchema | None) -> NDArray[np.float32]:
        """Return (d,) the weights for a ranker.

        Args:
            schema: the federation's, if it has one.

        Raises:
            SettingsError: the weights are not for this ranker, or for another schema.
        """
        if not isinstance(ranker, LinearRankerSpec):
            raise SettingsError(
                "initial_model: a weight for each feature makes a linear ranker; a neural one begins with small "
                "random weights"
            )
        if self.schema_hash is not None and (schema is None or schema.hash.hex() != self.schema_hash):
            there = "the federation has none" if schema is None else f"the federation's is {schema.hash.hex()[:16]}"
            raise SettingsError(f"initial_model: it was made for schema {self.schema_hash[:16]}, and {there}")
        if isinstance(self.weights, list):
            listed = np.array(self.weights, np.float32)
        else:
            listed = _by_name(self.weights, schema)
        if len(listed) != ranker.n_features:
            raise SettingsError(f"initial_model: {len(listed)} weights for {ranker.n_features} features")
        return listed


def _by_name(weights: dict[str, float], schema: FeatureSchema | None) -> NDArray[np.float32]:
    if schema is None:
        raise SettingsError("initial_model: its weights are by feature name, which takes a schema: --schema FILE")
    unknown = sorted(set(weights) - set(schema.names))
    if unknown:
        raise SettingsError(
            f"initial_model: {unknown[0]!r} is no feature of schema {schema.name} {schema.version}; it has "
            f"{', '.join(schema.names)}"
        )
    return np.array([weights.get(name, 0.0) for name in schema.names], np.float32)
