"""What the settings choose: here, the rule of a round."""

import pytest

from foltr.cli.method import choose_rule
from foltr.cli.settings import load_settings


@pytest.mark.parametrize(
    ("chosen", "n_sums", "rule"),
    [
        ({}, 1, "mean"),
        ({}, 20, "median"),
        ({"aggregation": "mean"}, 20, "mean"),
        ({"aggregation": "trimmed-mean"}, 20, "trimmed-mean"),
    ],
)
def test_several_sums_are_compared_unless_another_rule_is_asked_for(chosen, n_sums, rule):
    """A round has several so that one hostile device does not spoil them all; a mean of them would undo that."""
    assert choose_rule(load_settings(**chosen).defence, n_sums).text == rule
