"""Feature schemas: what a file may say, what its hash depends on, and what features become by it."""

import hashlib
import struct

import numpy as np
import pytest
from pydantic import ValidationError

from foltr.core.errors import DataError, SettingsError
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.schemas import MAX_FEATURES, Feature, FeatureSchema

SHOP = FeatureSchema(
    name="shop",
    version=3,
    features=[
        Feature(name="bm25 of the title", scaling="log", high=99),
        Feature(name="price", scaling="min_max", low=-2, high=6),
        Feature(name="clicks per view", scaling="ratio"),
        Feature(name="age", scaling="per_query"),
    ],
)


def changed(**fields):
    return SHOP.model_copy(update=fields)


def test_a_schema_is_what_its_file_says(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(SHOP.to_json())
    again = FeatureSchema.read(path)
    assert again == SHOP
    assert again.hash == SHOP.hash
    assert again.n_features == 4
    assert again.names == ["bm25 of the title", "price", "clicks per view", "age"]


def test_the_hash_is_that_of_bytes_that_any_program_can_make():
    """Spelled out, so that a device in another language makes the same; every change is another hash."""
    spelled = b"foltr schema 1\nshop 3\n"
    spelled += b"bm25 of the title\nlog\n" + struct.pack(">dd", 0.0, 99.0)
    spelled += b"price\nmin_max\n" + struct.pack(">dd", -2.0, 6.0)
    spelled += b"clicks per view\nratio\n" + bytes(16)
    spelled += b"age\nper_query\n" + bytes(16)
    assert SHOP.canonical_bytes() == spelled
    assert SHOP.hash == hashlib.sha256(spelled).digest()
    first, price, *rest = SHOP.features
    changes = [{"name": "cost"}, {"low": -3.0}, {"high": 7.0}, {"scaling": "per_query", "low": None, "high": None}]
    prices = [price.model_copy(update=change) for change in changes]
    others = [changed(features=[first, other, *rest]) for other in prices]
    others += [changed(name="mail"), changed(version=4), changed(features=SHOP.features[:3])]
    others.append(changed(features=SHOP.features[::-1]))
    assert len({schema.hash for schema in (SHOP, *others)}) == len(others) + 1


def test_features_are_scaled_by_column():
    """By the feature's name where one value is wrong, else by what was expected."""
    given = np.array([[9.0, 2.0, 0.5, 10], [200.0, -9.0, 3.0, 30]])
    kept = given.copy()
    scaled = SHOP.normalise(given)
    np.testing.assert_allclose(scaled, np.array([[0.5, 0.5, 0.5, 0], [1, 0, 1, 1]], np.float32))
    assert (given == kept).all()
    assert SHOP.normalise([]).shape == SHOP.normalise(np.zeros((0, 9))).shape == (0, 4)
    assert SHOP.normalise([[1, 2, True, 4]]).dtype == np.float32
    for matrix, words in [
        ([[1.0, 2.0, 0.5, float("nan")]], "'age' of document 0 is nan"),
        ([[1, 2, 0, 4], [1, float("inf"), 0, 4]], "'price' of document 1 is inf"),
        ([[1e39, 2, 0, 4]], "'bm25 of the title' of document 0 is 1e"),
        ([[1.0, 2.0, 0.5]], r"shop 3 has 4 columns.*\(1, 3\)"),
        (5.0, "4 columns"),
        ([["a", "b", "c", "d"]], "expected numbers"),
        ([[1, 2], [3]], "row 1 has 1 columns, and row 0 has 2"),
        ([[1, 2, 0.5, 4j]], "expected numbers"),
    ]:
        with pytest.raises(DataError, match=words):
            SHOP.normalise(matrix)


def test_a_feature_has_the_bounds_of_its_scaling():
    """No more and no fewer: a bound that nothing reads would be part of the hash."""
    for fields, words in [
        ({"scaling": "min_max", "low": 0}, "min_max needs 'high'"),
        ({"scaling": "log", "low": 0, "high": 1}, "log has no 'low'"),
        ({"scaling": "ratio", "high": 1}, "ratio has no 'high'"),
        ({"scaling": "per_query", "low": 1}, "per_query has no 'low'"),
        ({"scaling": "min_max", "low": 1, "high": 1}, "not above 1"),
        ({"scaling": "log", "high": 0}, "not above 0"),
        ({"scaling": "min_max", "low": 0, "high": float("inf")}, "finite"),
        ({"scaling": "ratio", "name": " x"}, "' x' is not 1 to 64 printable ASCII"),
        ({"scaling": "ratio", "name": "Größe"}, "printable ASCII"),
        ({"scaling": "ratio", "name": "x" * 65}, "1 to 64"),
        ({"scaling": "ratio", "name": ""}, "1 to 64"),
    ]:
        with pytest.raises(ValidationError, match=words):
            Feature(**{"name": "x", **fields})


def test_a_file_that_is_no_schema_is_named_with_the_place(tmp_path):
    path, ratio = tmp_path / "schema.json", '{"name": "a", "scaling": "ratio"}'
    for text, words in (
        ('{"name": "shop", "version": 1, "features": []}', "features: "),
        ('{"name": "shop", "version": 1, "features": [{"name": "a"}]}', "features.0.scaling: "),
        (f'{{"name": "s", "version": 1, "features": [{ratio}, {ratio}]}}', "two features are called 'a'"),
        ("no JSON", "the file: "),
    ):
        path.write_text(text)
        with pytest.raises(SettingsError, match=words) as refused:
            FeatureSchema.read(path)
        assert "\n" not in str(refused.value)
    with pytest.raises(SettingsError, match="No such file"):
        FeatureSchema.read(tmp_path / "none.json")


def test_the_largest_schema_is_one_message():
    features = [Feature(name=f"{i:04}{'x' * 60}", scaling="min_max", low=-1.5, high=2.5) for i in range(MAX_FEATURES)]
    largest = FeatureSchema(name="n" * 64, version=2**31 - 1, features=features)
    payload = encode(largest)
    assert len(payload) < MAX_MESSAGE_BYTES
    assert open_envelope(payload).read(FeatureSchema) == largest
    with pytest.raises(ValidationError):
        FeatureSchema(name="n", version=1, features=[*features, SHOP.features[0]])
