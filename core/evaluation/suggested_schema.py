"""Suggests a feature schema from a sample of features: measures the ranges, and leaves the rest to a person."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from foltr.core.errors import SettingsError
from foltr.core.learning.scaling import Scaling
from foltr.core.protocol.schemas import Feature, FeatureSchema

_SKEWED = 10.0
"""A feature is called skewed if its largest value is so many times the median of those that are not 0."""


def unmeasured_schema(name: str, names: Sequence[str]) -> FeatureSchema:
    """Return a schema for features of which only the names are known: each is scaled by the candidates of a query.

    Raises:
        SettingsError: a schema may not have these names.
    """
    return _schema(name, [{"name": one, "scaling": Scaling.PER_QUERY} for one in names])


def suggested_schema(name: str, names: Sequence[str], values: NDArray[np.float64]) -> FeatureSchema:
    """Return a schema whose bounds none of a sample's values exceeds.

    Features in [0, 1] stay unchanged. If no value is negative and few are large the logarithm is scaled, else the
    values are, between two-digit bounds that hold them all.

    Args:
        names: of the features.
        values: (documents, features), finite.

    Raises:
        SettingsError: as `unmeasured_schema`.
    """
    return _schema(name, [{"name": one, **_scaling(of)} for one, of in zip(names, values.T, strict=True)])


def _schema(name: str, features: list[dict[str, object]]) -> FeatureSchema:
    try:
        return FeatureSchema(name=name, version=1, features=[Feature.model_validate(one) for one in features])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SettingsError(f"schema: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _scaling(values: NDArray[np.float64]) -> dict[str, object]:
    least, largest = float(values.min()), float(values.max())
    if least >= 0.0 and largest <= 1.0:
        return {"scaling": Scaling.RATIO}
    if least >= 0.0 and largest > _SKEWED * float(np.median(values[values > 0.0])):
        return {"scaling": Scaling.LOG, "high": _two_digits(largest, ROUND_CEILING)}
    near_zero = 0.0 <= least < largest / 2
    low, high = 0.0 if near_zero else _two_digits(least, ROUND_FLOOR), _two_digits(largest, ROUND_CEILING)
    if low == high:  # all are the same: 0 is a bound too
        low, high = min(0.0, low), max(0.0, high)
    return {"scaling": Scaling.MIN_MAX, "low": low, "high": high}


def _two_digits(value: float, rounding: str) -> float:
    """Return a number of two digits, at the value or beyond it."""
    exact = Decimal(repr(value))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding)) if value else 0.0
