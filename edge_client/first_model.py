"""Learns a first ranker from lists that a search has logged, before there is a federation or without one.

    first = FirstModel("schema.json").fit(features, clicked, queries)
    serp = ranker.rank(candidates, base=first.scores(candidates))
    first.save("first.json")  # for the federator: FOLTR_INITIAL_MODEL=first.json

The learner is LambdaRank (`foltr.core.learning.lambdarank`) with a linear ranker.
"""

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, UsageError
from foltr.core.learning.lambdarank import fit_first_model
from foltr.core.learning.linear import rank_by_score, score
from foltr.core.learning.rows import Rows, as_numbers
from foltr.core.methods.initial_models import InitialModel
from foltr.core.protocol.schemas import FeatureSchema
from foltr.edge_client.features import Features
from foltr.edge_client.options import declared_schema
from foltr.edge_client.serps import as_features

_HIGHEST_GRADE = 31
_SEED = 1
"""Of the order of learning: the same rows give the same model."""


class FirstModel:
    """A linear ranker, fitted to logged lists as scikit-learn's models are.

    Args:
        schema: of the features, or its JSON file. None: features are in [0, 1] already.

    Attributes:
        weights: (features,) float32; None before `fit`.

    Raises:
        SettingsError: the schema's file holds none.
    """

    def __init__(self, schema: FeatureSchema | str | Path | None = None) -> None:
        self.weights: npt.NDArray[np.float32] | None = None
        self._features = Features(declared_schema(schema), None)

    def fit(self, features: Rows, relevance: npt.ArrayLike, groups: Iterable[Hashable]) -> Self:
        """Learn from documents with known relevance, and return this.

        Args:
            features: (rows, features), one row for each document of a list; what `SearchRanker.rank` takes.
            relevance: (rows,) grades, integers from 0 to 31; or whether the document was clicked. Of clicked lists give
                the documents that were shown, all of them and no others.
            groups: (rows,) which query, or which list, each row belongs to: a number, a text, anything hashable.

        Raises:
            DataError: a row or a value is wrong, or no group has documents of different relevance.
        """
        schema = self._features.schema
        values = as_numbers(features, None if schema is None else schema.names)
        scaled = self._scaled(values)  # also names what is wrong by its row of all
        grades = _grades(relevance, len(scaled))
        order, offsets = _by_group(groups, len(scaled))
        if schema is None:
            scaled = scaled[order]
        else:  # a scaling may be by the candidates of a query
            scaled = np.concatenate([schema.normalise(values[rows]) for rows in np.split(order, offsets[1:-1])])
        numbers = np.arange(len(offsets) - 1, dtype=np.int64)
        dataset = RankingDataset("the logged lists", scaled, grades[order], offsets, numbers)
        self.weights = fit_first_model(dataset, np.random.default_rng(_SEED))
        self._features.warn_unscaled(scaled, (float(scaled.min()), float(scaled.max())))
        return self

    def scores(self, features: Rows) -> npt.NDArray[np.float32]:
        """Return (documents,) the scores of one query's candidates, higher is better; usable as a list's ``base``.

        Raises:
            DataError: as `SearchRanker.rank` does.
            UsageError: nothing was fitted yet.
        """
        weights, matrix = self._fitted, self._scaled(features)
        if len(matrix) == 0:
            return np.zeros(0, np.float32)
        if matrix.shape[1] != len(weights):
            raise DataError(f"features: {matrix.shape[1]} columns, but this model was fitted to {len(weights)}")
        return score(weights, matrix)

    def rank(self, features: Rows, k: int | None = None) -> npt.NDArray[np.int64]:
        """Return the indices of the ``k`` best candidates of one query, or of all, best first. Raises as `scores`."""
        scores = self.scores(features)
        return rank_by_score(scores, len(scores) if k is None else k)

    def save(self, path: str | Path) -> None:
        """Write the weights as a federation's first model (docs/features.md). Raises UsageError as `scores` does."""
        weights, schema = self._fitted, self._features.schema
        model = InitialModel(weights=weights.tolist()) if schema is None else InitialModel.of(schema, weights)
        Path(path).write_text(model.to_json(), encoding="utf-8")

    @property
    def _fitted(self) -> npt.NDArray[np.float32]:
        if self.weights is None:
            raise UsageError("this model has learned nothing yet; call fit(features, relevance, groups)")
        return self.weights

    def _scaled(self, features: Rows) -> npt.NDArray[np.float32]:
        return as_features(self._features.scaled(features))


def _grades(relevance: npt.ArrayLike, n_rows: int) -> npt.NDArray[np.int16]:
    """Return (rows,) grades; DataError if they are none, or not as many as the rows."""
    try:
        given = np.asarray(relevance, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"relevance: expected an integer for each of {n_rows} rows: {error}") from error
    if given.shape != (n_rows,):
        raise DataError(f"relevance: expected an integer for each of {n_rows} rows, got shape {given.shape}")
    is_grade = (given >= 0) & (given <= _HIGHEST_GRADE) & (given == np.floor(given))
    if not is_grade.all():
        row = int(np.argmin(is_grade))
        raise DataError(f"relevance: row {row} is {given[row]}; expected an integer from 0 to {_HIGHEST_GRADE}")
    return given.astype(np.int16)


def _by_group(groups: Iterable[Hashable], n_rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (rows,) the rows by group, and (groups + 1,) where each group begins."""
    numbers: dict[Hashable, int] = {}
    try:
        of_row = np.array([numbers.setdefault(group, len(numbers)) for group in groups], np.int64)
    except TypeError as error:
        raise DataError(f"groups: expected the query of each of {n_rows} rows: {error}") from error
    if len(of_row) != n_rows:
        raise DataError(
            f"groups: {len(of_row)} for {n_rows} rows; give the query of each row, not how many rows it has"
        )
    offsets = np.concatenate(([0], np.cumsum(np.bincount(of_row, minlength=len(numbers)))))
    return np.argsort(of_row, kind="stable"), offsets
