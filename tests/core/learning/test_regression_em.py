import itertools
from unittest.mock import patch

import numpy as np
import pytest

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning import regression_em
from foltr.core.learning.ips import position_propensities
from foltr.core.learning.regression_em import (
    LOWEST_PROPENSITY,
    add_examined,
    e_step,
    em_step,
    prior_counts,
    propensities_of,
    relevance_probability,
)


def logistic(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


@pytest.mark.parametrize("clicked", [False, True])
def test_posteriors_enumerate_the_four_cases(rng: np.random.Generator, clicked: bool) -> None:
    """P(E | C) and P(R | C) are sums over (E, R) of the prior of what agrees with the click, normalised."""
    for examination, relevance in rng.uniform(0.01, 0.99, size=(50, 2)):
        agreeing = {
            (e, r): (examination if e else 1 - examination) * (relevance if r else 1 - relevance)
            for e, r in itertools.product((False, True), repeat=2)
            if (e and r) == clicked
        }
        examined, relevant = e_step(np.array([clicked]), np.array([relevance]), np.array([examination]))
        total = sum(agreeing.values())
        assert examined[0] == pytest.approx(sum(p for (e, _), p in agreeing.items() if e) / total)
        assert relevant[0] == pytest.approx(sum(p for (_, r), p in agreeing.items() if r) / total)


def test_counts_by_hand() -> None:
    """A prior worth 4 lists, then two lists of which one is shorter; the counts as bytes are all that is kept."""
    counts = prior_counts(np.array([1.0, 0.5, 0.25]), 4.0)
    assert counts.tolist() == [[4.0, 2.0, 1.0], [4.0, 4.0, 4.0]]
    counts = add_examined(counts, np.array([1.0, 1.0, 0.0]))
    counts = add_examined(counts, np.array([1.0, 0.5]))
    assert counts.tolist() == [[6.0, 3.5, 1.0], [6.0, 6.0, 5.0]]
    assert propensities_of(counts).tolist() == pytest.approx([1.0, 3.5 / 6, 1.0 / 5])
    counts = add_examined(prior_counts(position_propensities(1.0, 5), 3.0), np.array([1.0, 0.3, 0.2]))
    again = np.frombuffer(counts.tobytes(), np.float64).reshape(2, 5)
    assert (propensities_of(again) == propensities_of(counts)).all()


def test_memory_forgets_the_first_lists() -> None:
    """A habit that changes is followed with a short memory and averaged with a long one."""
    short = long = prior_counts(np.array([1.0, 0.5]), 1.0)
    for examined in [0.9] * 300 + [0.1] * 100:
        with patch.object(regression_em, "MEMORY", 20.0):
            short = add_examined(short, np.array([1.0, examined]))
        with patch.object(regression_em, "MEMORY", 1e9):
            long = add_examined(long, np.array([1.0, examined]))
    assert short[1].tolist() == pytest.approx([20.0, 20.0])
    assert propensities_of(short)[1] == pytest.approx(0.1, abs=0.01)
    assert propensities_of(long)[1] == pytest.approx(0.7, abs=0.01)


def test_estimates_are_bounded_from_below() -> None:
    """Nor does a missing click at the first position leave a doubt; damaged counts are refused."""
    counts = prior_counts(np.array([1.0, 0.5]), 1.0)
    for _ in range(1000):
        counts = add_examined(counts, np.array([1.0, 0.0]))
    assert propensities_of(counts)[1] == LOWEST_PROPENSITY
    examined, _ = e_step(np.zeros(2, bool), np.full(2, 0.3), np.ones(2))
    assert examined.tolist() == [1.0, 1.0]
    with pytest.raises(SettingsError, match="below 1 after the first"):
        prior_counts(position_propensities(0.0, 3), 5.0)
    surest = relevance_probability(np.array([0.0, 1e30]), np.zeros((1, 1), np.float32))
    examined, relevant = e_step(np.array([False]), surest, np.ones(1))
    assert examined.tolist() == [1.0]
    assert relevant.tolist() == [0.0]
    counts = prior_counts(np.array([1.0, 0.5]), 1.0)
    with pytest.raises(SettingsError, match="prior propensities"):
        prior_counts(np.array([1.0, 0.0]), 1.0)
    for damaged in (np.zeros((2, 2)), np.full((2, 2), np.nan), -counts, np.array([[0.0, 1.0], [1.0, 1.0]])):
        with pytest.raises(DataError, match="finite and positive"):
            propensities_of(damaged)


def test_em_step_climbs_the_likelihood(rng: np.random.Generator) -> None:
    """One E-step with the old parameters; the relevance model follows the slope of its soft labels' likelihood."""
    features, ranking = rng.random((9, 3), dtype=np.float32), np.array([4, 0, 7, 2])
    f, counts = rng.normal(size=4), prior_counts(position_propensities(1.0, 6), 2.0)
    clicks = np.array([False, True, False, False])
    shown = relevance_probability(f, features)[ranking]
    examined, labels = e_step(clicks, shown, propensities_of(counts)[:4])

    def log_likelihood(weights: np.ndarray) -> float:
        p = logistic(features[ranking].astype(float) @ weights[:3] + weights[3])
        return float(np.mean(labels * np.log(p) + (1 - labels) * np.log(1 - p)))

    slope = [(log_likelihood(f + h) - log_likelihood(f - h)) / 2e-6 for h in 1e-6 * np.eye(4)]
    before = f.copy()
    new_counts, after = em_step(counts, f, features, ranking, clicks, 0.5)
    np.testing.assert_allclose(after - f, 0.5 * np.array(slope), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(new_counts, add_examined(counts, examined), rtol=1e-6)
    assert (f == before).all()


def test_wrong_interactions_are_refused() -> None:
    """Nothing is learned from an interaction that does not fit together."""
    for wrong, complaint in [
        ({"ranking": [0, 4]}, "candidates"),
        ({"ranking": np.empty(0, np.int64), "clicks": np.empty(0, bool)}, "no document"),
        ({"ranking": [0, 1, 2], "clicks": [True, False, False]}, "3 positions shown"),
        ({"clicks": [True]}, "1 clicks"),
        ({"f": [0.0, 0.0]}, "need 3 weights"),
        ({"f": [np.nan, 0.0, 0.0]}, "not a number"),
    ]:
        seen = {
            "counts": prior_counts(np.array([1.0, 0.5]), 1.0),
            "f": np.zeros(3),
            "features": np.ones((4, 2), np.float32),
            "ranking": np.arange(2),
            "clicks": np.array([True, False]),
        } | {name: np.asarray(value) for name, value in wrong.items()}
        with pytest.raises(DataError, match=complaint):
            em_step(*seen.values(), 0.1)
