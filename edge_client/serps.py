"""Makes a result list from features, around a model's order or the application's, and checks clicks on it."""

import secrets
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from foltr.core.errors import DataError
from foltr.core.learning.display import best_list
from foltr.core.learning.gate import Source
from foltr.core.learning.linear import rank_by_score
from foltr.core.learning.rows import Rows, as_numbers, cell, first_no_number
from foltr.core.learning.scaling import LARGEST_VALUE, first_unusable
from foltr.core.methods.lists import SourcedList, draw_base_list, list_from
from foltr.core.protocol.explorations import SAFE, Exploration, NoExploration
from foltr.edge_client.serp import Serp

if TYPE_CHECKING:
    from foltr.edge_client.training.working_model import WorkingModel

_FINITE = "expected finite numbers that fit float32"
_POSITIONS = "give integers, from 0, of the list as shown, e.g. [0, 3] where the first and the fourth were clicked"


class ListSourceGate(Protocol):
    """A gate (`foltr.edge_client.gating`) decides the source of lists."""

    def source_of_next(self, *, may_interleave: bool) -> Source:
        """Return the source of the next list, given a model for it."""


class Candidates(NamedTuple):
    """The documents to rank, and the application's order of them.

    Attributes:
        features: (documents, features) float32, finite.
        order: (documents,) int64, the documents in the application's order, best first.
        scores: (documents,) float64, the application's, in its order, never increasing.
        span: the least and the largest of the features; zeros without documents.
    """

    features: npt.NDArray[np.float32]
    order: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    span: tuple[float, float]


def read_candidates(features: Rows, base: npt.ArrayLike | None) -> Candidates:
    """Check an application's candidates.

    Args:
        features: (documents, features).
        base: (documents,) the application's scores, higher is better; None: the documents are in its order.

    Raises:
        DataError: they are not finite numbers, or not one score for each document.
    """
    matrix, span = _read_features(features)
    n_documents = len(matrix)
    if base is None:
        return Candidates(matrix, np.arange(n_documents), -np.arange(n_documents, dtype=np.float64), span)
    try:
        scores = np.asarray(base, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        listed: list[object] = list(base) if isinstance(base, Iterable) else []
        document = first_no_number(listed)
        reason = "" if document is None else f"document {document} is {listed[document]!r:.80}; "
        raise DataError(f"base: {reason}expected a number for each of {n_documents} documents") from error
    if scores.shape != (n_documents,):
        raise DataError(f"base: expected a number for each of {n_documents} documents, got shape {scores.shape}")
    if n_documents and not np.abs(scores).max() <= LARGEST_VALUE:  # written so that NaN fails it too
        document = int(np.argmin(np.abs(scores) <= LARGEST_VALUE))
        raise DataError(f"base: document {document} is {scores[document]}; {_FINITE}")
    order = rank_by_score(scores, n_documents)
    return Candidates(matrix, order, scores[order], span)


def make_serp(
    candidates: Candidates,
    k: int,
    working_model: "WorkingModel | None",
    rng: np.random.Generator,
    *,
    exploration: Exploration | None = None,
    gate: ListSourceGate | None = None,
) -> Serp:
    """Make a list of ``k`` of the candidates, or of all if they are fewer.

    It is drawn around the application's order without a model, with one that cannot rank these candidates, or the
    gate does not let the model's lists through.

    Args:
        working_model: what ranks; None before the first model.
        exploration: how it is drawn; None as the federation says, or safely before that.
        gate: None lets every model through.

    Raises:
        DataError: ``k`` is not an integer, or below 1.
    """
    if not _is_integer(k) or k < 1:
        raise DataError(f"k: {k!r:.80} is not how many documents to show; give an integer from 1")
    if working_model is not None and len(candidates.order):
        serp = _model_serp(candidates, k, working_model, rng, exploration, gate)
        if serp is not None:
            return serp
    if not len(candidates.order):
        exploration = NoExploration()
    elif exploration is None:
        exploration = SAFE if working_model is None else working_model.exploration
    shown = SourcedList(draw_base_list(exploration, candidates.scores, k, rng), Source.BASE)
    return _serp(candidates, shown, None if working_model is None else working_model.base_version, 0)


def _model_serp(
    candidates: Candidates,
    k: int,
    working_model: "WorkingModel",
    rng: np.random.Generator,
    exploration: Exploration | None,
    gate: ListSourceGate | None,
) -> Serp | None:
    """Draw a list from the gate's source; None if the model cannot rank the candidates, or has learned nothing yet.

    Methods that make their own lists have no gate: they learn from these lists alone.
    """
    if candidates.features.shape[1] != working_model.n_features:
        return None
    explores = exploration is None or not isinstance(exploration, NoExploration)
    try:
        scores, variant = working_model.ranker.scores(candidates.features, exploring=explores)
    except DataError:
        return None  # not finite: the features or the weights are too large
    scores, version = scores[candidates.order], working_model.base_version
    if not working_model.draws_lists:
        return _serp(candidates, SourcedList(best_list(scores, k), Source.MODEL), version, variant)
    source = Source.MODEL
    if gate is not None:
        if not working_model.weights.any():
            return None
        source = gate.source_of_next(may_interleave=explores)
    if exploration is None:
        exploration = working_model.exploration
    listed = list_from(source, exploration, scores, candidates.scores, k, rng)
    return _serp(candidates, listed, version, variant)


def _serp(candidates: Candidates, listed: SourcedList, version: int | None, variant: int) -> Serp:
    """Return a list that was drawn from the candidates in the application's order."""
    shown = listed.shown
    return Serp(
        secrets.token_hex(16),
        candidates.order[shown.ranking],
        version,
        candidates.features,
        shown.reversals,
        shown.log_probability,
        variant,
        listed.source,
        listed.to_credit,
        shown.ranking,
    )


def clicks_on(serp: Serp, clicked: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Return (shown,) bool from the clicked positions; DataError for anything but a position of the list."""
    clicks = np.zeros(len(serp.ranking), np.bool_)
    for position in _each(clicked):
        if not _is_integer(position):
            raise DataError(f"clicked: {position!r:.80} is not a position: {_POSITIONS}")
        if not 0 <= position < len(clicks):
            there = f"0 to {len(clicks) - 1}" if len(clicks) else "it is empty"
            raise DataError(f"clicked: position {position} is outside the list ({there})")
        clicks[position] = True
    return clicks


def _is_integer(value: object) -> bool:
    # A bool is an int in Python: a mask of the list would be read as its first two positions.
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _each(clicked: Iterable[int]) -> Iterator[int]:
    try:
        return iter(clicked)
    except TypeError as error:  # a single number, also as an array without dimensions
        raise DataError(f"clicked: {clicked!r:.80} is not a list of positions: {_POSITIONS}") from error


def as_features(features: Rows) -> npt.NDArray[np.float32]:
    """Return a float32 copy (the application may reuse its buffer before the clicks come), or DataError."""
    return _read_features(features)[0]


def _read_features(features: Rows) -> tuple[npt.NDArray[np.float32], tuple[float, float]]:
    """Return `as_features`, with the least and the largest of them."""
    exact = as_numbers(features)
    if exact.shape[:1] == (0,):
        return np.zeros((0, exact.shape[1] if exact.ndim == 2 else 0), np.float32), (0.0, 0.0)
    if exact.ndim != 2 or 0 in exact.shape:
        raise DataError(f"features: expected a matrix (documents, features), got shape {exact.shape}")
    least, largest = float(np.minimum.reduce(exact, axis=None)), float(np.maximum.reduce(exact, axis=None))
    if not -LARGEST_VALUE <= least <= largest <= LARGEST_VALUE:  # written so that NaN fails it too
        row, column = first_unusable(exact) or (0, 0)
        raise DataError(f"features: {cell(row, column, None)} is {exact[row, column]}; {_FINITE}")
    return np.array(exact, dtype=np.float32, order="C"), (least, largest)


def check_width(features: npt.NDArray[np.float32], n_features: int) -> None:
    """Raise DataError if the ranker has another number of features."""
    if features.shape[1] != n_features:
        raise DataError(f"features: {features.shape[1]} columns, but the federation's ranker has {n_features}")
