"""Results as JSON and as tidy tables that say everything about the run they are of."""

import csv
import json
import sys

import numpy as np
import pytest
from simulated import config, simulated

from foltr.errors import SettingsError
from foltr.messages import DenseDelta, EvolutionPair, PartDelta, pack_vector
from foltr.methods.bodies import BodySpec, pack_body
from foltr.simulation.results import bytes_of_body, rows_of
from foltr.simulation.tables import write_table


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


def test_what_is_not_a_number_is_null():
    """LambdaRank shows no lists, so there is no online metric."""
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
    with pytest.raises(SettingsError, match="there is no folder"):
        write_table(tmp_path / "none" / "rows.csv", [], {})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SettingsError, match=r"foltr\[research\]"):
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
