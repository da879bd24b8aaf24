"""Writes what a ranker makes of its test queries as files that trec_eval and ir-measures read."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import SettingsError
from foltr.core.evaluation.named_metrics import NDCG_AT_10, Metric, ranked_rows, read_metric, values_by_query
from foltr.core.methods.base import scores_of
from foltr_research.simulation.config import SimulationConfig, resolve
from foltr_research.simulation.method_names import has_personal_rankers
from foltr_research.simulation.results import SimulationResult

_TAG = "foltr"


def check_runs(config: SimulationConfig) -> None:
    """Raise SettingsError, before the work starts, for a method without one ranker whose files to write."""
    if has_personal_rankers(config.method):
        raise SettingsError(f"--runs: with {config.method} each client has its own ranker; leave it out")


def write_runs(folder: Path, result: SimulationResult, tests: Sequence[RankingDataset]) -> None:
    """Write the last shared ranker's files of each test set: ``test``, or ``test-1``, ``test-2`` ... of several.

    Those of validation queries are called ``validation``.

    Raises:
        SettingsError: the folder cannot be written to.
    """
    _, ranker = resolve(result.config, tests[0].n_features)
    metrics = [read_metric(name) for name in (NDCG_AT_10, *result.config.other_metrics)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for i, test in enumerate(tests, start=1):
            name = result.config.evaluate_on + (f"-{i}" if len(tests) > 1 else "")
            write_ranking(folder / name, scores_of(ranker, result.weights, test.features), test, metrics)
    except OSError as error:
        raise SettingsError(f"{folder}: the runs cannot be written: {error.strerror or error}") from error


def write_ranking(path: Path, scores: NDArray[np.floating], test: RankingDataset, metrics: Sequence[Metric]) -> None:
    """Write three files beside each other.

    - ``.run``: ``query Q0 document rank score tag``. trec_eval sorts by score, and equal scores by the document's
      name. So the score is the number of documents from here to the end, and the order is the one shown.
    - ``.qrels``: ``query 0 document grade``, of queries with a relevant document: only these count in our means, and
      other tools would count the others as 0.
    - ``.csv``: each metric of each query that counts.

    Data sets do not name their documents: ``7-3`` is the third of query 7 in the data set.

    Args:
        path: of the files, without their endings.
        scores: (docs,) of all documents, in the data set's order.
    """
    rows, values = ranked_rows(scores, test), values_by_query(metrics, scores, test)
    with (
        path.with_name(f"{path.name}.run").open("w", encoding="ascii") as run,
        path.with_name(f"{path.name}.qrels").open("w", encoding="ascii") as qrels,
        path.with_name(f"{path.name}.csv").open("w", newline="", encoding="utf-8") as by_query,
    ):
        table = csv.writer(by_query, lineterminator="\n")
        table.writerow(["query", *values])
        for q, query in enumerate(test.query_ids.tolist()):
            start, end = int(test.offsets[q]), int(test.offsets[q + 1])
            for rank, row in enumerate(rows[start:end].tolist(), start=1):
                run.write(f"{query} Q0 {query}-{row - start + 1} {rank} {end - start - rank + 1} {_TAG}\n")
            grades = test.relevance[start:end].tolist()
            if any(grades):
                qrels.writelines(f"{query} 0 {query}-{i} {grade}\n" for i, grade in enumerate(grades, start=1))
                table.writerow([query, *(repr(float(of_queries[q])) for of_queries in values.values())])
