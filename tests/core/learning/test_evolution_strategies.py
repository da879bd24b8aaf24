import threading

import numpy as np
import pytest
import scipy

from foltr.core.errors import DataError
from foltr.core.learning.evolution_strategies import (
    AdamState,
    adam_ascent,
    es_direction,
    es_noise,
    randomised_response,
    reciprocal_rank_index,
    reciprocal_rank_values,
    round_noise_seed,
)


def test_noise_is_a_function_of_the_seed() -> None:
    """In every thread it is a fresh Philox keyed by the seed; neighbouring seeds sample N(0, sigma^2)."""
    expected = 0.5 * np.random.Generator(np.random.Philox(key=77)).standard_normal(9)
    es_noise(2**63 - 1, 31, 1.0)
    assert es_noise(77, 9, 0.5).tolist() == expected.tolist()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(es_noise(77, 9, 0.5)))
    thread.start()
    thread.join()
    assert seen[0].tolist() == expected.tolist()
    sample = np.concatenate([es_noise(seed, 50, 0.1) for seed in range(200)])
    assert scipy.stats.kstest(sample / 0.1, "norm").pvalue > 1e-3


def test_round_seeds_differ_by_device_and_version_and_have_63_bits() -> None:
    """One per device and model version, never negative; what is earned is indexed by rank."""
    seeds = {round_noise_seed(device, version) for device in (0, 1, 2**63 - 1) for version in range(100)}
    assert len(seeds) == 300
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert round_noise_seed(5, 6) == round_noise_seed(5, 6)
    assert reciprocal_rank_values(3).tolist() == [0.0, 1.0, 1 / 2, 1 / 3]
    assert reciprocal_rank_index(np.array([False, False, True, True])) == 3
    assert reciprocal_rank_index(np.zeros(10, bool)) == 0


def test_randomised_response_keeps_or_replaces_by_any_other(rng: np.random.Generator) -> None:
    """The truth comes with probability p, every other value equally often."""
    counts = np.zeros(5)
    for draws in rng.random((20_000, 2)):
        counts[randomised_response(2, 0.6, 5, draws)] += 1
    assert scipy.stats.binomtest(int(counts[2]), 20_000, 0.6).pvalue > 1e-3
    assert scipy.stats.chisquare(np.delete(counts, 2)).pvalue > 1e-3
    assert randomised_response(0, 1.0, 5, np.array([0.999, 0.5])) == 0


def test_directions_are_those_of_the_formula() -> None:
    """Antithetic: (m+ - m-) noise / (2 sigma^2); else m noise / sigma^2."""
    noise = es_noise(3, 4, 0.2)
    np.testing.assert_allclose(es_direction(3, 4, 0.2, 0.5, 0.1), 0.4 * noise / (2 * 0.2**2), rtol=1e-12)
    np.testing.assert_allclose(es_direction(3, 4, 0.2, 0.5, None), 0.5 * noise / 0.2**2, rtol=1e-12)


def test_adam_against_its_definition(rng: np.random.Generator) -> None:
    """Three steps with bias-corrected moments, upwards; the state survives being written, a damaged one is refused."""
    state = AdamState.zeros(2)
    gradients = rng.normal(size=(3, 2))
    first, second = np.zeros(2), np.zeros(2)
    for t, gradient in enumerate(gradients, start=1):
        state, step = adam_ascent(AdamState.from_bytes(state.to_bytes()), gradient, 0.001)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        expected = 0.001 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(step, expected, rtol=1e-12)
    assert state.step == 3
    with pytest.raises(DataError, match="2 weights, not 3"):
        adam_ascent(state, np.zeros(3), 0.001)
    for body in [b"", b"short", bytes(8 + 24)]:
        with pytest.raises(DataError, match="no state of Adam"):
            AdamState.from_bytes(body)
