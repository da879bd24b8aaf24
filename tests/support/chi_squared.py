"""Whether drawn integers follow a distribution: the chi-squared test, with rare values put together."""

import numpy as np
import scipy


def p_value(drawn, probability_of) -> float:
    """Of the chi-squared test of (n,) integers against a probability for each, symmetric around 0 or not."""
    low, high = int(drawn.min()) - 1, int(drawn.max()) + 1
    values = np.arange(low, high + 1)
    expected = probability_of(values) * drawn.size
    observed = np.bincount(drawn - low, minlength=values.size)
    # The two ends, where fewer than ten are expected of each value, are one cell each.
    first, last = np.flatnonzero(expected >= 10)[[0, -1]]
    inner = expected[first : last + 1]
    below = expected[:first].sum()
    cells = np.concatenate([[below], inner, [drawn.size - below - inner.sum()]])
    counts = np.concatenate([[observed[:first].sum()], observed[first : last + 1], [observed[last + 1 :].sum()]])
    return float(scipy.stats.chisquare(counts, cells, sum_check=False).pvalue)


def discrete_gaussian(variance: float):
    """The probabilities of N_Z(0, variance), by the sum of their weights."""
    reach = np.arange(-int(40 * variance**0.5) - 40, int(40 * variance**0.5) + 41)
    total = np.exp(-(reach**2) / (2 * variance)).sum()
    return lambda values: np.exp(-(values**2) / (2 * variance)) / total


def discrete_laplace(scale: float):
    """The probabilities (1 - alpha) / (1 + alpha) * alpha^|x|, with alpha = exp(-1 / scale)."""
    alpha = np.exp(-1 / scale)
    return lambda values: (1 - alpha) / (1 + alpha) * np.exp(-np.abs(values) / scale)


def polya_difference(scale: float, shape: float):
    """The probabilities of X - Y with X, Y ~ NB(shape, 1 - alpha), by the Fourier transform of their sum."""
    alpha, n = np.exp(-1 / scale), 2**14
    around = np.exp(2j * np.pi * np.arange(n) / n)
    transform = np.abs((1 - alpha) / (1 - alpha * around)) ** (2 * shape)
    probabilities = np.fft.fft(transform).real / n
    return lambda values: np.maximum(probabilities[np.asarray(values) % n], 0.0)
