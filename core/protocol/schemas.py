"""A feature schema: a federation's features, and how each is scaled to [0, 1].

An application declares it once, in a JSON file that goes with its code; the federator is started with the same file.
Its hash is announced with every round and every model, so a device with other features notices, and learns nothing from
them. Adding, dropping, reordering or rescaling a feature needs a new version: another schema means another model, and
so another federation.

    {"name": "shop", "version": 1, "features": [
      {"name": "bm25 of the title", "scaling": "log", "high": 40},
      {"name": "price", "scaling": "min_max", "low": 0, "high": 500},
      {"name": "clicks per view", "scaling": "ratio"},
      {"name": "age", "scaling": "per_query"}
    ]}
"""

import hashlib
import re
import struct
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Final

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, model_validator

from foltr.core.errors import DataError
from foltr.core.learning.rows import Rows, as_numbers, cell
from foltr.core.learning.scaling import (
    LARGEST_VALUE,
    Scaling,
    ScalingBounds,
    bounds_of,
    first_unusable,
    scale,
)
from foltr.core.protocol.fields import Message, Name
from foltr.core.protocol.written_files import read_written_file

MAX_FEATURES: Final = 1000
"""So that a schema is one message. A federation without one may have more features."""
_HEADING: Final = b"foltr schema 1\n"

_NAME: Final = re.compile(r"[!-~]([ -~]{0,62}[!-~])?")


def _checked_name(name: str) -> str:
    # Names that programs in any language write as the same bytes.
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r:.80} is not 1 to 64 printable ASCII characters without a space at either end")
    return name


FeatureName = Annotated[str, AfterValidator(_checked_name)]
_Bound = Annotated[float, Field(ge=-LARGEST_VALUE, le=LARGEST_VALUE, allow_inf_nan=False)]
_NEEDED: Final = {
    Scaling.MIN_MAX: ("low", "high"),
    Scaling.LOG: ("high",),
    Scaling.RATIO: (),
    Scaling.PER_QUERY: (),
}


class Feature(Message):
    """One feature: its name, its scaling, and the scaling's bounds."""

    name: FeatureName
    scaling: Annotated[Scaling, Field(strict=False)]
    low: _Bound | None = None
    high: _Bound | None = None

    @model_validator(mode="after")
    def _bounds_are_those_of_the_scaling(self) -> "Feature":
        for bound in ("low", "high"):
            needed, given = bound in _NEEDED[self.scaling], getattr(self, bound) is not None
            if needed != given:
                verb = "needs" if needed else "has no"
                raise ValueError(f"scaling {self.scaling} {verb} {bound!r}")
        low = 0.0 if self.low is None else self.low
        if self.high is not None and not low < self.high:
            raise ValueError(f"high ({self.high:g}) is not above {low:g}")
        return self


class FeatureSchema(Message):
    """Operator to all, retained: the features of a federation, in the order of a matrix's columns."""

    kind_name: ClassVar[str] = "feature_schema"
    longest_list: ClassVar[int] = MAX_FEATURES
    name: Name
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    features: Annotated[list[Feature], Field(min_length=1, max_length=MAX_FEATURES)]

    @model_validator(mode="after")
    def _names_are_different(self) -> "FeatureSchema":
        if len(set(self.names)) < len(self.features):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"two features are called {twice!r}")
        return self

    @classmethod
    def read(cls, path: str | Path) -> "FeatureSchema":
        """Read a JSON file; SettingsError if it is missing, or not a schema; the message names the place."""
        return read_written_file(cls, path, "schema")

    def to_json(self) -> str:
        """Return the text of a file that `read` takes."""
        return self.model_dump_json(exclude_none=True, indent=1) + "\n"

    @property
    def names(self) -> list[str]:
        return [feature.name for feature in self.features]

    @property
    def n_features(self) -> int:
        return len(self.features)

    @property
    def hash(self) -> bytes:
        """32 bytes: SHA-256 of `canonical_bytes`."""
        return hashlib.sha256(self.canonical_bytes()).digest()

    def canonical_bytes(self) -> bytes:
        """Return the bytes that any program makes of the same schema.

        A heading, then ``name version`` and for each feature ``name``, each with a line break; a feature's is followed
        by its scaling, a line break, and its bounds as big-endian float64, 0 for a missing one.
        """
        each = [f"{one.name}\n{one.scaling}\n".encode() + struct.pack(">dd", *_bounds(one)) for one in self.features]
        return b"".join([_HEADING, f"{self.name} {self.version}\n".encode(), *each])

    def normalise(self, matrix: Rows) -> npt.NDArray[np.float32]:
        """Return the candidates of one query, scaled.

        Args:
            matrix: (documents, features), in the application's scale; it may be empty. Columns of a data frame and keys
                of dicts are matched by name; other matrices are in the order of `names`.

        Returns:
            (documents, features) float32 in [0, 1], C order: a copy.

        Raises:
            DataError: not of this width, a name is missing or extra, or a value is not a finite number; the message
                names the feature.
        """
        values = self._as_values(matrix)
        unusable = first_unusable(values)
        if unusable is not None:
            document, feature = unusable
            raise DataError(
                f"features: {cell(document, feature, self.names)} is {values[document, feature]}; a "
                "feature is a finite number that fits float32. Give unknown values a separate number, e.g. 0"
            )
        return scale(values, self.bounds)

    @property
    def bounds(self) -> ScalingBounds:
        """The scalings as arrays."""
        return _as_arrays(tuple(self.features))

    def _as_values(self, matrix: Rows) -> npt.NDArray[np.float64]:
        values = as_numbers(matrix, self.names).astype(np.float64, copy=False)
        if values.shape[:1] == (0,):
            return np.zeros((0, self.n_features))
        if values.ndim != 2 or values.shape[1] != self.n_features:
            raise DataError(
                f"features: schema {self.name} {self.version} has {self.n_features} columns, {self.names[0]!r} to "
                f"{self.names[-1]!r}; got shape {values.shape}"
            )
        return values


# Not an attribute of the schema: a copy of it with other features would have the first one's arrays.
@lru_cache(maxsize=16)
def _as_arrays(features: tuple[Feature, ...]) -> ScalingBounds:
    declared = np.array([_bounds(one) for one in features])
    return bounds_of([one.scaling for one in features], declared[:, 0], declared[:, 1])


def _bounds(feature: Feature) -> tuple[float, float]:
    return feature.low or 0.0, feature.high or 0.0
