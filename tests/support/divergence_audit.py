"""The audit of a mechanism: whether sums with a client's vector and without it are as alike as is claimed.

Two neighbouring inputs, one client's update and zeros in its place, go the whole way many times: encoding, masks, the
honest helper's noise, the released sum. Everything that others know is taken off. If an event is found that is more
probable with the vector than the claim allows for one that has it and one that has not, the claim is false. To find
none proves nothing: events are only looked for in one direction, that of the likelihood ratio, and for two inputs, one
with all of the update in one number and one with it in four.

The events are chosen with a tenth of the sums and judged with the others, so that no choice was made by luck. Bounds on
probabilities are those of Hoeffding, "Probability inequalities for sums of bounded random variables" (1963), Theorem 1,
which hold for every number of sums.
"""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.secure.coins import SEED_BYTES, Entropy
from foltr.core.secure.field import from_signed, to_signed
from foltr.core.secure.masks import mask_words, open_masks, release_sum
from foltr.core.secure.mechanisms import Mechanism

Scores = NDArray[np.float64]
DIMS: Final = (1, 4)
"""How many numbers the update has: all of it is in one, or evenly in four, where a wrong norm lets twice as much by."""
DOUBT: Final = 1e-6
"""The probability that a mechanism that keeps its claim fails the audit, at most."""

_PILOT: Final = 0.1
_BATCH: Final = 20_000
_CLIP_NORM: Final = 0.15


class Finding(NamedTuple):
    """What was found at one epsilon for one input, in one direction."""

    mechanism: str
    dim: int  # how many numbers the update had
    direction: str  # which of the two is the more probable one
    epsilon: float  # at which the two probabilities are compared
    claimed: float  # the most that the divergence may be
    measured: float  # of the event that was chosen
    at_least: float  # the same less what chance may have added, of all findings together with `DOUBT`

    @property
    def holds(self) -> bool:
        return self.at_least <= self.claimed


def audit(mechanism: Mechanism, n_sums: int, entropy: Entropy, dims: tuple[int, ...] = DIMS) -> list[Finding]:
    """Return what was found at 0, epsilon_0 / 2 and epsilon_0, in both directions, for an input of each of ``dims``."""
    n_bounds = 2 * 2 * 3 * len(dims)
    findings: list[Finding] = []
    for dim in dims:
        present, absent = (
            np.concatenate(list(_scores(mechanism, dim, n_sums // 2, is_there, entropy))) for is_there in (True, False)
        )
        for epsilon in (0.0, mechanism.epsilon / 2.0, mechanism.epsilon):
            findings.append(_find(mechanism, dim, epsilon, "with the vector", present, absent, n_bounds))
            findings.append(_find(mechanism, dim, epsilon, "without it", -absent, -present, n_bounds))
    return findings


def _find(
    mechanism: Mechanism, dim: int, epsilon: float, direction: str, likely: Scores, unlikely: Scores, n_bounds: int
) -> Finding:
    """Judge the event that a score is above a threshold."""
    n_pilot = int(_PILOT * likely.size)
    threshold = _best_threshold(likely[:n_pilot], unlikely[:n_pilot], epsilon)
    n = likely.size - n_pilot
    upper, lower = (int(np.count_nonzero(scores[n_pilot:] > threshold)) for scores in (likely, unlikely))
    factor, doubt = math.exp(epsilon), DOUBT / n_bounds
    at_least = lower_bound(upper, n, doubt) - factor * (1.0 - lower_bound(n - lower, n, doubt))
    claimed = mechanism.claimed_delta(epsilon)
    measured = (upper - factor * lower) / n
    return Finding(mechanism.name, dim, direction, epsilon, claimed, measured, at_least)


def _best_threshold(likely: Scores, unlikely: Scores, epsilon: float) -> float:
    """The one above which the first scores are the most over e^epsilon times the second."""
    thresholds = np.unique(np.quantile(np.concatenate([likely, unlikely]), np.linspace(0.0, 1.0, 1001)))
    above = (scores.size - np.searchsorted(np.sort(scores), thresholds, side="right") for scores in (likely, unlikely))
    excess = next(above) - math.exp(epsilon) * next(above)
    return float(thresholds[excess.argmax()])


def lower_bound(count: int, n: int, doubt: float) -> float:
    """The least p at which n times the divergence of the observed frequency from p is at most ln(1 / doubt)."""
    frequency = count / n
    low, high = 0.0, frequency
    for _ in range(60):
        middle = (low + high) / 2.0
        if n * _bernoulli_divergence(frequency, middle) > math.log(1.0 / doubt):
            low = middle
        else:
            high = middle
    return low


def _bernoulli_divergence(frequency: float, probability: float) -> float:
    """The Kullback-Leibler divergence of two coins, in nats."""
    total = 0.0
    for seen, supposed in ((frequency, probability), (1.0 - frequency, 1.0 - probability)):
        if seen > 0.0:
            total += math.inf if supposed <= 0.0 else seen * math.log(seen / supposed)
    return total


def _scores(mechanism: Mechanism, dim: int, n_sums: int, is_there: bool, entropy: Entropy) -> Iterator[Scores]:
    """How much each of so many sums looks as if the vector was in it, a batch at a time."""
    looked_for = mechanism.longest(dim)
    for start in range(0, n_sums, _BATCH):
        n = min(_BATCH, n_sums - start)
        yield mechanism.loss(_released(mechanism, dim, n, is_there, entropy), looked_for)


def _released(mechanism: Mechanism, dim: int, n: int, is_there: bool, entropy: Entropy) -> NDArray[np.int64]:
    """(n, n_summed): sums side by side as everybody together would see them but the client and the honest helper."""
    update = np.full(dim, 50.0 * _CLIP_NORM)
    n_summed = mechanism.longest(dim).size
    vector = mechanism.encode(update, _CLIP_NORM, entropy) if is_there else np.zeros(n_summed, np.int64)
    known = mechanism.encode(-update, _CLIP_NORM, entropy)
    noise = mechanism.draw_noise(n * n_summed, entropy)
    seeds = [[entropy(SEED_BYTES) for _helper in range(2)] for _client in range(2)]
    masked = [mask_words(from_signed(np.tile(one, n)), own) for one, own in zip((vector, known), seeds, strict=True)]
    answers = [
        open_masks([own[helper] for own in seeds], of_it) for helper, of_it in enumerate((noise, np.zeros_like(noise)))
    ]
    released = to_signed(release_sum(masked, answers, n * n_summed)).reshape(n, n_summed)
    return released - known
