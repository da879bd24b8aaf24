"""A schema is suggested by a sample: which scaling, and bounds that hold every value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from foltr.core.errors import SettingsError
from foltr.core.evaluation.suggested_schema import suggested_schema, unmeasured_schema
from foltr.core.learning.scaling import LARGEST_VALUE, clipped_share


def test_a_scaling_is_chosen_by_what_was_measured():
    """By its least and largest value, and by whether few are large; bounds have two digits."""
    for values, scaling, low, high in [
        ([0.0, 0.5, 1.0], "ratio", None, None),
        ([0.0, 0.0], "ratio", None, None),
        ([0.0, 3.0, 12.4], "min_max", 0.0, 13.0),
        ([71.0, 80.0, 99.0], "min_max", 71.0, 99.0),
        ([-3.14, 7.0, 1234.0], "min_max", -3.2, 1300.0),
        ([0.0, 0.0, 0.0, 2.0, 3.0, 990.0], "log", None, 990.0),
        ([1.0, 2.0, 21.0], "log", None, 21.0),
        ([5.0, 5.0], "min_max", 0.0, 5.0),
        ([-5.0, -5.0], "min_max", -5.0, 0.0),
        ([-0.001, 1.0], "min_max", -0.001, 1.0),
        ([1.1, 1.2], "min_max", 1.1, 1.2),
    ]:
        (feature,) = suggested_schema("shop", ["f"], np.array([values]).T).features
        assert (feature.scaling, feature.low, feature.high) == (scaling, low, high), (values, scaling, low, high)


@given(
    arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(-LARGEST_VALUE / 2, LARGEST_VALUE / 2, width=32),
    )
)
def test_no_value_of_the_sample_is_cut_off(values):
    schema = suggested_schema("shop", [f"f{i}" for i in range(values.shape[1])], values)
    assert not clipped_share(values, schema.bounds).any()
    scaled = schema.normalise(values)
    assert ((scaled >= 0.0) & (scaled <= 1.0)).all()


def test_of_names_alone_nothing_is_measured():
    """Each is scaled by the candidates of a query, which needs no bounds."""
    schema = unmeasured_schema("shop", ["bm25", "price"])
    assert (schema.name, schema.version, schema.names) == ("shop", 1, ["bm25", "price"])
    assert {feature.scaling for feature in schema.features} == {"per_query"}
    for name, names, said in [
        ("sh/op", ["a"], "name"),
        ("shop", ["a", "a"], "two features are called 'a'"),
        ("shop", ["größe"], "ASCII"),
        ("shop", [""], "name"),
        ("shop", [f"f{i}" for i in range(1001)], "features"),
    ]:
        with pytest.raises(SettingsError, match=f"^schema: .*{said}"):
            unmeasured_schema(name, names)
