"""Scales features to [0, 1], the range in which devices learn, so that one learning rate suits all.

Every scaling is a min-max by bounds that are declared or taken from the candidates, of the values or of their
logarithms:

    min_max    (x - low) / (high - low)
    log        log(1 + x) / log(1 + high)
    ratio      x
    per_query  (x - min) / (max - min), of the candidates of one query; 0 if all are equal

Values outside the bounds are clipped to 0 or 1.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

LARGEST_VALUE: Final = float(np.finfo(np.float32).max)
"""The largest valid value: differences of such do not overflow, and each fits float32."""


class Scaling(StrEnum):
    """How one feature is scaled to [0, 1]."""

    MIN_MAX = "min_max"
    LOG = "log"
    RATIO = "ratio"
    PER_QUERY = "per_query"


@dataclass(frozen=True, eq=False)
class ScalingBounds:
    """The scalings of d features, as arrays.

    Attributes:
        low, high: (d,) float64, of the values after the logarithm; not read if ``per_query``.
        log, per_query: (d,) bool.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    log: NDArray[np.bool_]
    per_query: NDArray[np.bool_]


def bounds_of(scalings: list[Scaling], low: NDArray[np.float64], high: NDArray[np.float64]) -> ScalingBounds:
    """Return the bounds of these scalings.

    Args:
        scalings: d of them.
        low, high: (d,) as declared: ``low < high`` with min_max, ``0 < high`` with log; else they are not read.
    """
    log, ratio, per_query = (
        np.array([one is kind for one in scalings], np.bool_)
        for kind in (Scaling.LOG, Scaling.RATIO, Scaling.PER_QUERY)
    )
    unread = ratio | per_query
    low = np.where(unread | log, 0.0, low)
    high = np.where(unread, 1.0, high)
    return ScalingBounds(low, np.where(log, np.log1p(high, where=log, out=np.zeros(len(high))), high), log, per_query)


def scale(values: NDArray[np.float64], bounds: ScalingBounds) -> NDArray[np.float32]:
    """Return the candidates of one query, scaled.

    Args:
        values: (documents, d), finite and at most `LARGEST_VALUE`.

    Returns:
        (documents, d) float32 in [0, 1], C order.
    """
    if len(values) == 0:
        return np.zeros(values.shape, np.float32)
    low, high = bounds.low, bounds.high
    if bounds.log.any():
        values = np.where(bounds.log, np.log1p(np.maximum(values, 0.0)), values)
    if bounds.per_query.any():
        low = np.where(bounds.per_query, values.min(axis=0), low)
        high = np.where(bounds.per_query, values.max(axis=0), high)
    width = high - low
    scaled = (values - low) / np.where(width > 0.0, width, 1.0)
    return np.clip(scaled, 0.0, 1.0).astype(np.float32)


def first_unusable(values: NDArray[np.floating]) -> tuple[int, int] | None:
    """Return (document, feature) of the first value that is not finite or too large; None if all are valid."""
    unusable = ~(np.abs(values) <= LARGEST_VALUE)  # written so that NaN is one
    if not unusable.any():
        return None
    document, feature = np.argwhere(unusable)[0].tolist()
    return document, feature


def clipped_share(values: NDArray[np.float64], bounds: ScalingBounds) -> NDArray[np.float64]:
    """Return (d,) the share of values outside the declared bounds; 0 if the bounds are those of the candidates."""
    logged = np.where(bounds.log, np.log1p(np.maximum(values, -0.5)), values)
    outside = (logged < bounds.low) | (logged > bounds.high)
    share: NDArray[np.float64] = np.where(bounds.per_query, 0.0, outside.mean(axis=0))
    return share
