"""A result list is made of features, and clicks on it are checked. No I/O."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_client.training.working_model import WorkingModel
from foltr.errors import DataError
from foltr.learning.display import Shown, best_list, sampled_list


@dataclass(frozen=True, eq=False)
class Serp:
    """A result list as shown.

    Attributes:
        ranking: (shown,) int64, indices into the candidates given to `EdgeClient.rank`, best first.
        model_version: the global model behind it; None before the first one arrived.
        variant: which of the method's rankers made it (see `Interaction`).
        reversals, log_probability: of the list as it was drawn, see `foltr.learning.display.Shown`.
        base_ranks: (shown,) int32, where each document shown is in the application's own order, from 0.
    """

    serp_id: str
    ranking: npt.NDArray[np.int64]
    model_version: int | None
    features: npt.NDArray[np.float32]
    reversals: npt.NDArray[np.float64]
    log_probability: float
    base_ranks: npt.NDArray[np.int32]
    variant: int = 0


def make_serp(
    features: npt.ArrayLike,
    k: int,
    working_model: WorkingModel | None,
    rng: np.random.Generator | None,
) -> Serp:
    """Make a list of ``k`` of the candidates, or of all if they are fewer.

    Args:
        features: (documents, features), finite.
        working_model: what ranks; None before the first model: then all documents score alike.
        rng: of what the method explores by; None shows the best list it knows.

    Raises:
        DataError: ``k`` is below 1, or ``features`` cannot be ranked.
    """
    matrix = as_features(features)
    if k < 1:
        raise DataError(f"k: {k} documents to show; at least 1 is needed")
    if working_model is None:
        alike = np.zeros(len(matrix), np.float32)
        shown = best_list(alike, k) if rng is None else sampled_list(alike, k, rng)
        return _serp(matrix, shown, None, 0)
    check_width(matrix, working_model.n_features)
    scores, variant = working_model.ranker.scores(matrix, exploring=rng is not None)
    shown = best_list(scores, k) if rng is None else working_model.draw(scores, k, rng)
    return _serp(matrix, shown, working_model.base_version, variant)


def _serp(matrix: npt.NDArray[np.float32], shown: Shown, version: int | None, variant: int) -> Serp:
    return Serp(
        uuid.uuid4().hex,
        shown.ranking,
        version,
        matrix,
        shown.reversals,
        shown.log_probability,
        shown.ranking.astype(np.int32),
        variant,
    )


def clicks_on(serp: Serp, clicked: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return (shown,) bool from the clicked positions; DataError for a position outside the list."""
    clicks = np.zeros(len(serp.ranking), np.bool_)
    for position in clicked:
        if not 0 <= position < len(clicks):
            raise DataError(f"clicked: position {position} is outside the list (0 to {len(clicks) - 1})")
        clicks[position] = True
    return clicks


def as_features(features: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return a float32 copy (the application may reuse its buffer before the clicks come), or DataError."""
    try:
        exact = np.asarray(features)
        if exact.dtype != np.float32:
            exact = exact.astype(np.float64, casting="same_kind" if exact.dtype.kind == "c" else "unsafe")
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"features: expected numbers, (documents, features): {error}") from error
    if exact.ndim != 2 or 0 in exact.shape:
        raise DataError(f"features: expected a non-empty matrix (documents, features), got shape {exact.shape}")
    if not np.abs(exact).max() <= np.finfo(np.float32).max:  # written so that NaN fails it too
        raise DataError("features: expected finite numbers that fit float32")
    return np.array(exact, dtype=np.float32, order="C")


def check_width(features: npt.NDArray[np.float32], n_features: int) -> None:
    """Raise DataError where the ranker has another number of features."""
    if features.shape[1] != n_features:
        raise DataError(f"features: {features.shape[1]} columns, but the federation's ranker has {n_features}")
