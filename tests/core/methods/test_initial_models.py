"""Initial models: a small file, by name or as a list, for one ranker and one schema."""

import numpy as np
import pytest

from foltr.core.errors import SettingsError
from foltr.core.methods.initial_models import InitialModel
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec

SHOP = FeatureSchema(
    name="shop", version=1, features=[Feature(name=name, scaling="ratio") for name in ("bm25", "price", "age")]
)
OTHER = SHOP.model_copy(update={"version": 2})
LINEAR = LinearRankerSpec(n_features=3)


def written(folder, text):
    path = folder / "model.json"
    path.write_text(text)
    return InitialModel.read(path)


def test_weights_by_name_are_in_the_order_of_the_schema(tmp_path):
    """Features that are not named have none; the hash may be left out, and a list needs no schema."""
    model = written(tmp_path, '{"weights": {"age": -0.5, "bm25": 8}}')
    assert model.weights_of(LINEAR, SHOP).tolist() == [8.0, 0.0, -0.5]
    assert model.weights_of(LINEAR, SHOP).dtype == np.float32
    model = written(tmp_path, '{"weights": [0, 8, -0.5]}')
    assert model.weights_of(LINEAR, None).tolist() == model.weights_of(LINEAR, SHOP).tolist() == [0.0, 8.0, -0.5]
    model = InitialModel.of(SHOP, np.array([1.0, 2.5, -3.0]))
    again = written(tmp_path, model.to_json())
    assert again == model
    assert again.weights_of(LINEAR, SHOP).tolist() == [1.0, 2.5, -3.0]


def test_weights_for_something_else_are_refused(tmp_path):
    """The error says what the weights are for; a neural ranker takes none; a file that is no model is one line."""
    for text, schema, words in [
        ('{"weights": {"bm25": 1}}', None, "takes a schema: --schema"),
        ('{"weights": {"bm52": 1}}', SHOP, "'bm52' is no feature of schema shop 1; it has bm25, price, age"),
        ('{"weights": [1, 2]}', SHOP, "2 weights for 3 features"),
        (InitialModel.of(SHOP, np.ones(3)).to_json(), OTHER, "the federation's is " + OTHER.hash.hex()[:16]),
        (InitialModel.of(SHOP, np.ones(3)).to_json(), None, "the federation has none"),
    ]:
        with pytest.raises(SettingsError, match=words):
            written(tmp_path, text).weights_of(LINEAR, schema)
    with pytest.raises(SettingsError, match="makes a linear ranker"):
        written(tmp_path, '{"weights": [1, 2, 3]}').weights_of(NeuralRankerSpec(n_features=3, hidden=1), None)
    for text in ["no JSON", "{}", '{"weights": [1e9]}', '{"weights": {"bm25": NaN}}', '{"weights": [1], "n": 1}']:
        with pytest.raises(SettingsError, match=r"model\.json: .*docs/features\.md") as refused:
            written(tmp_path, text)
        assert "\n" not in str(refused.value), text
    with pytest.raises(SettingsError, match="No such file"):
        InitialModel.read(tmp_path / "none.json")
