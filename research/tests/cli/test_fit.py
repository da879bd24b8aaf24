"""``foltr fit`` and ``foltr models from-feature``: first models that the setting ``initial_model`` takes."""

import json

import numpy as np
import pytest
from cli.commands import foltr

from foltr.core.data.synthetic import synthetic_dataset
from foltr.core.methods.initial_models import InitialModel
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.trainings import LinearRankerSpec

NAMES = ("bm25", "price", "age", "clicks")
SHOP = FeatureSchema(
    name="shop", version=1, features=[Feature(name=name, scaling="min_max", low=0, high=100) for name in NAMES]
)
LINEAR = LinearRankerSpec(n_features=len(NAMES))


@pytest.fixture
def folder(tmp_path):
    """A schema, and logged data whose features are between 0 and 100."""
    (tmp_path / "schema.json").write_text(SHOP.to_json())
    logged = synthetic_dataset(np.random.default_rng(5), n_queries=40, docs_per_query=10, n_features=len(NAMES))
    lines = []
    for i in range(logged.n_queries):
        for features, grade in zip(*logged.query(i), strict=True):
            values = " ".join(f"{j}:{100 * value:g}" for j, value in enumerate(features, start=1))
            lines.append(f"{grade} qid:{i} {values}\n")
    (tmp_path / "logged.txt").write_text("".join(lines))
    return tmp_path


def fit(folder, *options):
    arguments = ("--data", "logged.txt", "--schema", "schema.json", "--out", "first.json")
    return foltr("fit", *arguments, *options, cwd=folder)


def test_what_is_fitted_is_a_first_model(folder):
    """It names its features and its schema, and what it ranks is said beside the best feature."""
    done = fit(folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("nDCG@10 on ")
    assert lines[1].startswith("  by the best single feature, ")
    model = InitialModel.read(folder / "first.json")
    assert model.schema_hash == SHOP.hash.hex()
    first = (folder / "first.json").read_text()
    shown = json.loads(fit(folder, "--json").stdout)
    assert (folder / "first.json").read_text() == first
    assert model.weights_of(LINEAR, SHOP).tolist() == pytest.approx([shown["weights"][name] for name in NAMES])
    assert f"{shown['ndcg_at_10']:.4f}" == lines[0].split()[-1]
    assert f"of {shown['best_feature']!r}: {shown['best_feature_ndcg_at_10']:.4f}" in lines[1]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--data", "none.txt"), 1, "none.txt: cannot be read"),
        (("--schema", "none.json"), 2, "schema: none.json: No such file"),
        (("--out", "none/first.json"), 2, "does not exist"),
        (("--held-out", 1.0), 2, "held out"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_one_line(folder, options, code, words):
    """And nothing is written."""
    done = fit(folder, *options)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "first.json").exists()


def test_one_feature_is_a_first_model(folder):
    """All others weigh nothing."""
    out = ("--schema", "schema.json", "--out", "first.json")
    assert foltr("models", "from-feature", "age", *out, cwd=folder).returncode == 0
    assert InitialModel.read(folder / "first.json").weights_of(LINEAR, SHOP).tolist() == [0, 0, 8, 0]
    assert foltr("models", "from-feature", "age", *out, "--weight", "-2", cwd=folder).returncode == 0
    assert InitialModel.read(folder / "first.json").weights_of(LINEAR, SHOP).tolist() == [0, 0, -2, 0]
    done = foltr("models", "from-feature", "bm52", *out, cwd=folder)
    assert done.returncode == 2
    assert "it has bm25, price, age, clicks" in done.stderr
