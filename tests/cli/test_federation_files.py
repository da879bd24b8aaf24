"""``foltr federator run``: the schema and the first model, as files say them."""

import pytest
from cli.commands import foltr

from foltr.protocol.schemas import Feature, FeatureSchema

SHOP = FeatureSchema(name="shop", version=1, features=[Feature(name=name, scaling="ratio") for name in ("bm25", "age")])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--schema", "none.json"), "schema: none.json: No such file"),
        (("--schema", "schema.json", "--features", 3), "n_features: 3, but schema.json has 2; leave n_features out"),
        (("--schema", "schema.json", "--initial-model", "list.json"), "initial_model: 3 weights for 2 features"),
        (("--features", 2, "--initial-model", "named.json"), "initial_model: its weights are by feature name"),
        (("--ranker", "neural", "--features", 3, "--initial-model", "list.json"), "makes a linear ranker"),
        (("--schema", "schema.json", "--initial-model", "schema.json"), "initial_model: schema.json: "),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_anything_begins(tmp_path, options, words):
    """Exit code 2 and one line, and no database is asked for."""
    (tmp_path / "schema.json").write_text(SHOP.to_json())
    (tmp_path / "list.json").write_text('{"weights": [1, 2, 3]}')
    (tmp_path / "named.json").write_text('{"weights": {"bm25": 1}}')
    done = foltr("federator", "run", "--allow-unsigned", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.sqlite"))
