"""Run and qrels files get the values from other tools that they have here."""

import csv

import numpy as np
import pytest
from simulated import config, data, population, simulated

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import SettingsError
from foltr.core.evaluation.named_metrics import means_over_queries, read_metric, values_by_query
from foltr_research.simulation.run_files import check_runs, write_ranking, write_runs

NAMES = ("ndcg@10", "ndcg@3", "mrr", "maxrr", "err@10", "map", "map@5")


def with_ties(rng: np.random.Generator) -> tuple[np.ndarray, RankingDataset]:
    """Scores with many ties, and a data set some of whose queries have no relevant document."""
    _, test = data()
    relevance = test.relevance.copy()
    for q in (0, 3):
        relevance[test.offsets[q] : test.offsets[q + 1]] = 0
    test = RankingDataset(test.name, test.features, relevance, test.offsets, test.query_ids)
    return rng.integers(0, 4, len(relevance)).astype(np.float32), test


def test_ir_measures_finds_the_same_values(tmp_path, rng):
    """For each query: nDCG, RR, ERR and AP of trec_eval and gdeval.pl, ties in the order shown."""
    ir = pytest.importorskip("ir_measures", reason="the oracle for metrics is in the group dev")
    scores, test = with_ties(rng)
    metrics = [read_metric(name) for name in NAMES]
    write_ranking(tmp_path / "test", scores, test, metrics)
    gains = {grade: 2**grade - 1 for grade in range(1, 5)}
    theirs = {
        "ndcg@10": ir.nDCG(gains=gains) @ 10,
        "ndcg@3": ir.nDCG(gains=gains) @ 3,
        "mrr": ir.RR,
        "maxrr": ir.RR @ 10,
        "map": ir.AP,
        "map@5": ir.AP @ 5,
    }
    if "gdeval" in {one.NAME for one in ir.providers.registry.values() if one.is_available()}:
        theirs["err@10"] = ir.ERR @ 10
    qrels = list(ir.read_trec_qrels(str(tmp_path / "test.qrels")))
    run = list(ir.read_trec_run(str(tmp_path / "test.run")))
    ours = values_by_query(metrics, scores, test)
    found = {(str(one.measure), one.query_id): one.value for one in ir.iter_calc(theirs.values(), qrels, run)}
    assert len(found) == len(theirs) * (test.n_queries - 2)
    for name, measure in theirs.items():
        for q, query in enumerate(test.query_ids.tolist()):
            if q in (0, 3):
                assert np.isnan(ours[name][q])
            else:
                # gdeval.pl prints five decimals.
                assert ours[name][q] == pytest.approx(found[str(measure), str(query)], abs=6e-6), (name, query)
    aggregate = ir.calc_aggregate(theirs.values(), qrels, run)
    means = means_over_queries(ours)
    for name, measure in theirs.items():
        assert means[name] == pytest.approx(aggregate[measure], abs=6e-6), name


def test_a_run_has_every_document_and_its_table_the_reported_means(tmp_path):
    """The last model's files agree with the results; queries without a relevant document are only in the run."""
    of = config(metrics=("err@10", "ndcg@10"))
    result = simulated(of)
    write_runs(tmp_path / "runs", result, population(of).tests)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["test.csv", "test.qrels", "test.run"]
    with (tmp_path / "runs" / "test.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == result.data["test_queries_evaluated"]
    for name, curve in (("ndcg@10", result.ndcg_at_10), ("err@10", result.metrics["err@10"])):
        assert np.mean([float(row[name]) for row in rows]) == pytest.approx(curve[-1][1], abs=1e-12)
    _, test = data()
    lines = [line.split() for line in (tmp_path / "runs" / "test.run").read_text().splitlines()]
    assert len({(line[0], line[2]) for line in lines}) == len(lines) == len(test.relevance)


def test_rankers_of_clients_and_folders_that_are_files_are_refused(tmp_path):
    """In one line, before the work starts or when it ends."""
    with pytest.raises(SettingsError, match="each client has its own ranker"):
        check_runs(config(method="local"))
    of = config()
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        write_runs(tmp_path / "file", simulated(of), population(of).tests)
