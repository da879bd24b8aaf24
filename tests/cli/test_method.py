"""What the settings choose: here, the rule of a round."""

from foltr.cli.method import choose_rule
from foltr.cli.settings import load_settings


def test_several_sums_are_compared_unless_another_rule_is_asked_for():
    """A round has several so that one hostile device does not spoil them all; a mean of them would undo that."""
    for chosen, n_sums, rule in (
        ({}, 1, "mean"),
        ({}, 20, "median"),
        ({"aggregation": "mean"}, 20, "mean"),
        ({"aggregation": "trimmed-mean"}, 20, "trimmed-mean"),
    ):
        assert choose_rule(load_settings(**chosen).defence, n_sums).text == rule, chosen
