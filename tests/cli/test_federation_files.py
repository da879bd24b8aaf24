"""``foltr federator run``: the schema and the first model, as files say them."""

import json

import numpy as np
import pytest
from cli.commands import foltr, foltr_process, start, stop
from support.databases import migrated_sqlite

from foltr.broker.embedded import embedded_broker
from foltr.core.data.synthetic import synthetic_dataset
from foltr.core.protocol.schemas import Feature, FeatureSchema

SHOP = FeatureSchema(name="shop", version=1, features=[Feature(name=name, scaling="ratio") for name in ("bm25", "age")])


def test_a_file_that_does_not_fit_is_refused_before_anything_begins(tmp_path):
    """Exit code 2 and one line, and no database is asked for."""
    for options, initial_model, words in (
        (("--schema", "none.json"), None, "schema: none.json: No such file"),
        (("--schema", "schema.json", "--features", 3), None, "n_features: 3, but schema.json has 2; leave n_features"),
        (("--schema", "schema.json"), "list.json", "initial_model: 3 weights for 2 features"),
        (("--features", 2), "named.json", "initial_model: its weights are by feature name"),
        (("--schema", "schema.json"), "schema.json", "initial_model: schema.json: "),
    ):
        (tmp_path / "schema.json").write_text(SHOP.to_json())
        (tmp_path / "list.json").write_text('{"weights": [1, 2, 3]}')
        (tmp_path / "named.json").write_text('{"weights": {"bm25": 1}}')
        variables = {} if initial_model is None else {"FOLTR_INITIAL_MODEL": initial_model}
        done = foltr("federator", "run", "--allow-unsigned", *options, cwd=tmp_path, **variables, code=2)
        assert words in done.stderr, options
        assert done.stderr.count("\n") == 1, options
        assert not list(tmp_path.glob("*.sqlite")), options
    neural = {"FOLTR_RANKER": "neural", "FOLTR_INITIAL_MODEL": "list.json"}
    done = foltr("federator", "run", "--allow-unsigned", "--features", 3, cwd=tmp_path, **neural, code=2)
    assert "makes a linear ranker" in done.stderr


@pytest.fixture
def logged(tmp_path):
    """Logged data of the shop, its features between 0 and 10, as a training and as a test set."""
    dataset = synthetic_dataset(np.random.default_rng(5), n_queries=12, docs_per_query=8, n_features=2)
    lines = []
    for i in range(dataset.n_queries):
        for (bm25, age), grade in zip(*dataset.query(i), strict=True):
            lines.append(f"{grade} qid:{i} 1:{10 * bm25:g} 2:{10 * age:g}\n")
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text("".join(lines))
    return tmp_path


def test_a_federation_from_files_learns_replays_and_keeps_what_it_began_with(logged):
    """The devices have the same schema; afterwards neither another schema nor another first model is taken."""
    features = [Feature(name=name, scaling="min_max", low=0, high=10) for name in ("bm25", "age")]
    schema = SHOP.model_copy(update={"features": features})
    (logged / "schema.json").write_text(schema.to_json())
    (logged / "newer.json").write_text(schema.model_copy(update={"version": 2}).to_json())
    db = ("--db", migrated_sqlite(logged / "foltr.sqlite"))
    out = ("--schema", "schema.json", "--out", "first.json")
    foltr("models", "from-feature", "age", *out, cwd=logged, code=0)
    files, first = ("--schema", "schema.json"), {"FOLTR_INITIAL_MODEL": "first.json"}
    with embedded_broker() as address:
        run = ("federator", "run", "--allow-unsigned", *db, "--broker", str(address))
        rounds = ("--rounds", "2", "--min-clients", "2", "--max-clients", "2", "--min-time", "0")
        federator = start(*run, *rounds, *files, cwd=logged, **first)
        try:
            devices = ("--count", "2", "--data", ".", "--broker", str(address), "--give-up-after", "200")
            other = foltr_process("client", "run", *devices, "--rounds", "1", "--schema", "newer.json", cwd=logged)
            done = foltr_process("client", "run", *devices, "--schema", "schema.json", "--json", cwd=logged)
        finally:
            code, output = stop(federator)
        assert (code, done.returncode) == (0, 0), output + done.stderr
        assert (other.returncode, "this application has schema shop 2" in other.stderr) == (3, True)
        assert json.loads(done.stdout)["receipts"]["accepted"] == 4
        for options, variables, words in (
            (("--schema", "newer.json"), {}, f"schema_hash = '{schema.hash.hex()}'"),
            (("--features", "2"), {}, "schema_hash = None"),
            (files, {"FOLTR_INITIAL_MODEL": "other.json"}, "initial_model: federation 'default' began"),
        ):
            (logged / "other.json").write_text('{"weights": [1, 1]}')
            refused = foltr(*run, *options, cwd=logged, **variables, code=2)
            assert words in refused.stderr.splitlines()[-1]
    foltr("models", "export", *db, "--version", "0", "--out", "zero.npy", cwd=logged, code=0)
    assert np.load(logged / "zero.npy").tolist() == [0.0, 8.0]
    for number in (1, 2):
        foltr("rounds", "replay", number, *db, cwd=logged, code=0)
    # Devices with another data set than the schema is of are refused.
    (logged / "more.json").write_text(
        SHOP.model_copy(update={"features": [*features, Feature(name="price", scaling="ratio")]}).to_json()
    )
    done = foltr("client", "run", "--data", ".", "--schema", "more.json", cwd=logged, code=2)
    assert "more.json has 3 features" in done.stderr
