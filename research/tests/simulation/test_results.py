"""Results as JSON and as tidy tables say everything about their run, and what its federator did with updates."""

import csv
import json
import sys

import numpy as np
import pytest
from simulated import check_resumed, config, population, simulated, with_quantities

from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.round_report import ClientFate, Finding, RoundReport
from foltr.core.aggregation.vote_result import Verdict, VoteResult
from foltr.core.errors import SettingsError
from foltr.core.methods.bodies import BodySpec, pack_body
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, PartDelta
from foltr_research.simulation.defence_record import Decision, NormProofs, Robustness, RoundDefence
from foltr_research.simulation.federated import run
from foltr_research.simulation.results import bytes_of_body, online_performance, rows_of
from foltr_research.simulation.sweeps.tables import write_table


def test_json_has_everything():
    """The result is JSON without NaN, with the configuration it can be repeated from."""
    result = simulated(config(method="fpdgd-paper"))
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert read["config"] == result.config.model_dump(mode="json")
    assert read["ndcg_at_10"][0] == {"round": 0, "value": result.ndcg_at_10[0][1]}
    assert read["online_ndcg"] == result.online_ndcg
    assert read["interactions_per_second"] > 0
    assert read["bytes"] == {"up": 32, "down": 32}
    assert read["privacy"]["claimed_epsilon_per_round"] == 4.5
    assert read["data"]["test_queries_evaluated"] <= read["data"]["test_queries"] == 20
    read = json.loads(json.dumps(simulated(config(method="lambdarank")).to_dict(), allow_nan=False))
    assert read["online_ndcg"] is None
    assert read["online_per_round"] == [None] * 4


def test_rows_are_tidy():
    """A row for each evaluated round, each with the whole configuration; the first round has no lists before it."""
    result = simulated(config(clicks=("perfect", "poison"), parameters={"learning_rate": 0.2}))
    rows = result.rows()
    assert [row["round"] for row in rows] == [0, 2, 4]
    assert rows[0]["online_ndcg_of_round"] is None
    assert rows[2]["online_ndcg_of_round"] == result.online_per_round[3]
    assert all(row["clicks"] == "perfect,poison" and row["parameters"] == '{"learning_rate": 0.2}' for row in rows)
    assert set(result.config.model_dump()) <= set(rows[0])
    assert rows == rows_of(json.loads(json.dumps(result.to_dict())))


def test_other_metrics_have_curves_and_columns_of_their_names(tmp_path):
    """Measured with nDCG@10 in the same rounds; a client's ranker and the shared one apart; a resumed run has them."""
    of = config(metrics=("err@10", "ndcg@10", "err@10", "map"))
    result = check_resumed(of, tmp_path / "run.checkpoint", after=3)
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert list(read["metrics"]) == ["err@10", "map"]
    assert [point["round"] for point in read["metrics"]["map"]] == [0, 2, 4]
    assert read["metrics_global"] == {}
    assert [row["err@10"] for row in result.rows()] == [value for _, value in result.metrics["err@10"]]
    plain = simulated(config())
    assert plain.ndcg_at_10 == result.ndcg_at_10
    assert plain.metrics == {}
    personal = simulated(config(method="fpdgd-personal", metrics="map"))
    assert personal.metrics["map"] != personal.metrics_global["map"]
    assert personal.rows()[-1]["map_global"] == personal.metrics_global["map"][-1][1]
    with pytest.raises(SettingsError, match="metric: unknown 'precision'"):
        simulated(config(metrics=("precision",)))


def test_csv_and_parquet_have_the_same_rows(tmp_path):
    """Both formats hold the rows; Parquet also the configuration as metadata."""
    parquet = pytest.importorskip("pyarrow.parquet")
    result = simulated(config())
    metadata = {"config": result.config.model_dump(mode="json")}
    for name in ("rows.csv", "rows.parquet"):
        write_table(tmp_path / name, result.rows(), metadata)
    with (tmp_path / "rows.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert table.column_names == list(lines[0])
    assert table.to_pylist() == result.rows()
    assert [float(line["ndcg_at_10"]) for line in lines] == table.column("ndcg_at_10").to_pylist()
    assert json.loads(table.schema.metadata[b"foltr"]) == metadata
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.parquet"]


def test_tables_that_cannot_be_written(tmp_path, monkeypatch):
    """One line for another format, a folder that is not there and a missing pyarrow."""
    with pytest.raises(SettingsError, match=r"\.parquet or \.csv"):
        write_table(tmp_path / "rows.xlsx", [], {})
    with pytest.raises(SettingsError, match="does not exist"):
        write_table(tmp_path / "none" / "rows.csv", [], {})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SettingsError, match=r"pip install .*\[sweeps\]"):
        write_table(tmp_path / "rows.parquet", [], {})


def test_bytes_of_bodies_are_what_is_packed():
    """The announced sizes are those of the bodies that the service stores."""
    vector = pack_vector(np.zeros(6, np.float32))
    bodies = {
        BodySpec("dense", 6, 0, 6): DenseDelta(dim=6, values=vector),
        BodySpec("part", 9, 0, 6): PartDelta(dim=9, start=0, values=vector),
        BodySpec("evolution", 6): EvolutionPair(seed=1, plus=0.5, minus=None),
    }
    for spec, body in bodies.items():
        assert bytes_of_body(spec) == len(pack_body(body)[1])


def test_privacy_is_claimed_and_actual():
    """fpdgd-paper says both, by the shares that arrive; FOLtR-ES its bound; FPDGD nothing."""
    paper = simulated(config(method="fpdgd-paper", parameters={"epsilon": 2.0})).privacy
    assert paper["claimed_epsilon"] == 8.0 < paper["epsilon_add_remove"]
    evolution = simulated(config(method="foltr-es", parameters={"truth_probability": 1.0})).privacy
    assert evolution["epsilon"] is None
    assert simulated(config()).privacy is None
    of = config(method="fpdgd-paper", clients=5, parameters={"n_clients": 5})
    whole = simulated(of).privacy
    most, few = (simulated(of.changed(participants=n)).privacy for n in (4, 2))
    assert (whole["arrived"], most["arrived"], few["arrived"]) == (5, 4, 2)
    assert most["epsilon_add_remove"] > whole["epsilon_add_remove"]
    assert few["epsilon_add_remove"] is None


def test_privacy_with_unequal_interactions():
    """A weighted sum of noises has no epsilon here; FOLtR-ES' bound is that of the client with most interactions."""
    paper = config(method="fpdgd-paper")
    found = run(paper, with_quantities(population(paper), 1, 3, 5, 7, 9)).privacy
    assert all(value is None for name, value in found.items() if name.startswith("epsilon_"))
    assert "none is given, because clients differ in their interactions" in found["summary"]
    assert found["claimed_epsilon_per_round"] == 4.5
    equal = run(paper, with_quantities(population(paper), 9)).privacy
    assert all(equal[name] is not None for name in ("epsilon_add_remove", "epsilon_per_round_replace"))
    of = config(method="foltr-es", population="type4", quantities=(3, 5, 9))
    evolution = run(of, with_quantities(population(of), 3, 5, 9)).privacy
    assert evolution["epsilon_per_round"] == pytest.approx(9 * evolution["epsilon_per_interaction"])
    assert evolution["epsilon"] == pytest.approx(4 * 9 * evolution["epsilon_per_interaction"])


def test_online_ndcg_discounts_later_lists_and_is_cut_where_lists_end() -> None:
    """The first list counts in full; the metric names its K, which differs between methods."""
    assert online_performance([0.5, 0.25, 1.0], 0.9) == pytest.approx(0.5 + 0.25 * 0.9 + 1.0 * 0.9**2)
    assert online_performance([]) == 0.0
    assert simulated(config(parameters={"serp_length": 7})).online_k == 7
    assert simulated(config(method="fedips")).to_dict()["online_k"] == 5
    assert {row["online_k"] for row in simulated(config()).rows()} == {10}


def report(*fates, fallback=None, findings=(), farthest=None, **parameters):
    return RoundReport("krum", "krum", parameters, fallback, fates, findings, farthest)


def fate(name, of):
    return ClientFate(f"device-{name}", of, 0.0, None, "")


def test_rounds_add_up():
    """By client and by kind, findings and decisions with their rounds."""
    found = Robustness()
    raised = Finding("defence_raised", None, "updates disagree")
    found.add(1, RoundDefence(report(fate("1", Fate.DROPPED), fate("2", Fate.CLIPPED), fate("3", Fate.KEPT))))
    found.add(2, RoundDefence(report(fate("1", Fate.DROPPED), fallback="too few", findings=(raised,)), ("device-4",)))
    found.add(3, RoundDefence(abandoned="too few"))
    found.add(4, RoundDefence(report(beyond_bounds=1.0, farthest=0.75), norm_proofs=NormProofs(10, 0)))
    found.add(5, RoundDefence(report(farthest=0.5), norm_proofs=NormProofs(9, 2)))
    found.add(6, RoundDefence(decision=Decision(Verdict.TAKE_BACK, VoteResult(5, 7, 4, 1))))
    assert found.to_dict() == {
        "fallback_rounds": 1,
        "abandoned_rounds": 1,
        "beyond_bounds_rounds": 1,
        "norm_proofs": {"checked": 19, "failed": 2},
        "dropped": {"device-1": 2},
        "clipped": {"device-2": 1},
        "refused": {"device-4": 1},
        "findings": [{"round": 2, "kind": "defence_raised", "client": None, "detail": "updates disagree"}],
        "decisions": [
            {"round": 6, "verdict": "take_back", "n_voters": 5, "n_updates": 7, "n_worse": 4, "n_better": 1}
            | {"deviation": 0.0, "n_tallies": None}
        ],
        "farthest": 0.75,
    }


def test_it_survives_json():
    """What a checkpoint keeps goes on counting; a plain mean has nothing to count."""
    found = Robustness()
    findings = (Finding("quarantine_proposed", "x", "y"),)
    found.add(1, RoundDefence(report(fate("1", Fate.DROPPED), findings=findings), norm_proofs=NormProofs(3, 1)))
    found.add(2, RoundDefence(decision=Decision(Verdict.MOVE_ANCHOR, VoteResult(5, 5, 0, 3))))
    again = Robustness.read(json.loads(json.dumps(found.to_dict())))
    assert again == found
    again.add(2, RoundDefence(report(fate("1", Fate.DROPPED))))
    assert again.dropped["device-1"] == 2
    found = Robustness()
    found.add(1, RoundDefence())
    assert found == Robustness()
