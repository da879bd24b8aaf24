"""Which rules can be set, and how many updates each needs."""

import itertools
import re

import pytest

from foltr.core.aggregation.rule_spec import (
    MEAN,
    PRE_STEPS,
    RULES,
    RuleSpec,
    least_clients,
    n_byzantine,
    n_trimmed,
    parameters_of_rule,
    read_rule,
    shortfall,
)
from foltr.core.errors import SettingsError


def test_every_rule_with_every_step_before_it() -> None:
    """Its text is read back as it was written; only adaptive stands alone; parameters come as text, too."""
    for rule, step in itertools.product(RULES, (None, *PRE_STEPS)):
        text = rule if step is None else f"{step}+{rule}"
        if step is not None and rule == "adaptive":
            with pytest.raises(SettingsError, match="write it without"):
                read_rule(text)
            continue
        assert read_rule(text, byzantine=1).text == text
        assert isinstance(parameters_of_rule(text), dict)
    assert read_rule("mean") == MEAN
    spec = read_rule("norm-bounding", parameters={"clip_factor": "1.5"})
    assert spec.parameters == (("clip_factor", 1.5),)
    assert spec.parameter("clip_norm") == 0.0
    assert read_rule("krum", parameters={"beyond_bounds": "true"}).beyond_bounds
    assert parameters_of_rule("bucketing+median").keys() == {"bucket_size", "beyond_bounds"}
    with pytest.raises(KeyError):
        spec.parameter("beta")


def test_what_is_refused() -> None:
    for arguments, complaint in [
        ({"text": "krumm"}, "unknown rule 'krumm'; known are mean, krum"),
        ({"text": "krum+nnm"}, "unknown rule"),
        ({"text": ""}, "unknown rule"),
        ({"text": "krum", "fallback": "nothing"}, 'aggregation_fallback: unknown rule .* or "abandon"'),
        ({"text": "krum", "fallback": "adaptive"}, "adaptive cannot be a fallback"),
        ({"text": "krum", "byzantine": 0.5}, "neither a share"),
        ({"text": "krum", "byzantine": -0.1}, "neither a share"),
        ({"text": "krum", "byzantine": 1.5}, "neither a share"),
        ({"text": "krum", "byzantine": float("nan")}, "neither a share"),
        ({"text": "bulyan", "byzantine": 0.25}, "bulyan cannot tolerate 0.25 of any number"),
        ({"text": "bucketing+krum", "byzantine": 0.3}, "cannot tolerate"),
        ({"text": "median", "parameters": {"beta": 1}}, "median has no parameter 'beta'; it has beyond_bounds"),
        ({"text": "trimmed-mean", "parameters": {"beta": 0.7}}, "beta a share below 0.5 or a whole number"),
        ({"text": "trimmed-mean", "parameters": {"beta": "x"}}, "beta=x must be a number from 0"),
        ({"text": "trimmed-mean", "parameters": {"beta": float("inf")}}, "must be finite"),
        ({"text": "centred-clipping", "parameters": {"n_iterations": 1.5}}, "must be a whole number from 1"),
        ({"text": "bucketing+mean", "parameters": {"bucket_size": 0}}, "must be a whole number from 1"),
        ({"text": "krum", "parameters": {"beyond_bounds": "maybe"}}, "must be true or false"),
    ]:
        with pytest.raises(SettingsError, match=complaint) as refusal:
            read_rule(**arguments)
        assert "\n" not in str(refusal.value), (arguments, complaint)


def test_how_many_are_hostile_and_trimmed() -> None:
    """A share is rounded up, but not for what binary fractions add; beta is as byzantine unless it is set."""
    for byzantine, n, m in [
        (0.2, 10, 2),
        (0.2, 11, 3),
        (0.1, 30, 3),
        (0.3, 10, 3),
        (0.0, 9, 0),
        (3, 100, 3),
        (1.0, 2, 1),
    ]:
        assert n_byzantine(RuleSpec("krum", byzantine=byzantine), n) == m, (byzantine, n, m)
    assert n_trimmed(read_rule("trimmed-mean"), 10) == 2
    assert n_trimmed(read_rule("trimmed-mean", parameters={"beta": 0.4}), 10) == 4
    assert n_trimmed(read_rule("trimmed-mean", parameters={"beta": 1}), 10) == 1
    assert n_trimmed(read_rule("trimmed-mean", parameters={"beta": 0}), 10) == 0


def test_least_clients_for_three_hostile_ones() -> None:
    """What each paper asks for; beyond it 4 of 10, as in the thesis, but not 4 of 6, nor trim everything."""
    for text, least in [
        ("mean", 1),
        ("norm-bounding", 1),
        ("krum", 2 * 3 + 3),
        ("multi-krum", 2 * 3 + 3),
        ("trimmed-mean", 2 * 3 + 1),
        ("median", 2 * 3 + 1),
        ("geometric-median", 2 * 3 + 1),
        ("centred-clipping", 2 * 3 + 1),
        ("bulyan", 4 * 3 + 3),
        ("nnm+mean", 2 * 3 + 1),
        ("nnm+bulyan", 4 * 3 + 3),
        ("bucketing+krum", 2 * (2 * 3 + 3) - 1),
    ]:
        spec = read_rule(text, byzantine=3)
        assert least_clients(spec) == least, (text, least)
        assert shortfall(spec, least) is None, (text, least)
        if least > 1:
            missing = shortfall(spec, least - 1)
            assert re.search(f"needs at least.* {least - 1}", missing), (text, least)
    assert shortfall(read_rule("krum", byzantine=4), 10) is not None
    thesis = read_rule("krum", byzantine=0.4, parameters={"beyond_bounds": True})
    assert shortfall(thesis, 10) is None
    assert shortfall(read_rule("krum", byzantine=4, parameters={"beyond_bounds": True}), 6) is not None
    assert shortfall(read_rule("trimmed-mean", byzantine=3, parameters={"beyond_bounds": True}), 6) is not None
    assert shortfall(read_rule("median", byzantine=5, parameters={"beyond_bounds": True}), 1) is None
