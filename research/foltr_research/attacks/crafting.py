"""Published attacks as plain functions on arrays: each returns the crafted updates.

Updates are differences from the global model, which is therefore the origin. The w_Re of Fang et al. is 0 here, and the
direction that weights would take without an attack is the sign of the mean update.

- LIE: Baruch et al. 2019, "A little is enough", Algorithm 3 (Wang's thesis, Section 5.2.3).
- Fang: Fang et al. 2020, "Local model poisoning attacks to Byzantine-robust federated learning", Section 4 (thesis,
  Section 5.2.3): on Krum by a search for lambda, on trimmed mean and median by values beyond the honest range.
- Inner-product manipulation: Xie et al. 2020, "Fall of empires", Section 4.
- Min-max and min-sum: Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine", Section 4.2.

Scaling by -z (the leaver of the thesis' chapter 6), sign flips and infinite values need no function.

Shapes: k updates that the attackers know or take for honest, m attackers, d values of an update; float64.
"""

import math
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.krum import krum_scores

Perturbation = Literal["unit", "std", "sign"]
_SMALLEST_LAMBDA = 1e-5


def lie(known: NDArray[np.float64], z: float) -> NDArray[np.float64]:
    """(d,) mu - z * sigma of the updates (k, d). With one update sigma is 0."""
    crafted: NDArray[np.float64] = known.mean(axis=0) - z * known.std(axis=0)
    return crafted


def lie_z(n: int, m: int) -> float:
    """The largest z at which enough honest updates are expected beyond mu - z * sigma (Baruch et al., Algorithm 3).

    With s = floor(n / 2 + 1) - m honest supporters the attackers are a majority, and the share (n - m - s) / (n - m) of
    honest updates is on the other side. If that is half or less, every z above 0 is noticed and the result is 0.
    Attackers who are a majority alone still count one supporter.

    Args:
        n: number of updates.
        m: number of attackers among them.
    """
    honest = n - m
    needed = max(n // 2 + 1 - m, 1)
    if 2 * needed >= honest:
        return 0.0
    return NormalDist().inv_cdf((honest - needed) / honest)


def reversed_direction(known: NDArray[np.float64]) -> NDArray[np.float64]:
    """(d,) s = -sign(mu) of the updates (k, d): against the direction of each weight (thesis, Section 5.2.3)."""
    direction: NDArray[np.float64] = -np.sign(known.mean(axis=0))
    return direction


def fang_krum(
    benign: NDArray[np.float64], direction: NDArray[np.float64], n_crafted: int, byzantine: int
) -> tuple[NDArray[np.float64], bool]:
    """The longest lambda * s that Krum chooses among ``n_crafted`` copies of it and the benign updates.

    Lambda starts at the bound of Fang et al.'s Theorem 1 and is halved until Krum chooses a copy or it is below 1e-5.

    Args:
        benign: (k, d) the other updates, or a substitute for them.
        direction: (d,) s.
        n_crafted: at least 1.
        byzantine: the m of the attacked Krum.

    Returns:
        (d,) the crafted update, and whether Krum chooses it.
    """
    scale = largest_lambda(benign, n_crafted + len(benign), byzantine)
    rows = np.concatenate([np.zeros((n_crafted, benign.shape[1])), benign])
    while scale > _SMALLEST_LAMBDA:
        # In float32 like the message: a choice that depends on more digits would not survive.
        rows[:n_crafted] = (scale * direction).astype(np.float32)
        if int(np.argmin(krum_scores(rows, byzantine))) < n_crafted:
            return rows[0].copy(), True
        scale /= 2.0
    return _SMALLEST_LAMBDA * direction, False


def fang_krum_partial(own: NDArray[np.float64]) -> NDArray[np.float64]:
    """Craft as `fang_krum` without knowing others: the attackers' honest updates (m, d) stand for everybody's.

    The number of crafted updates, all alike, starts at one and grows until one is chosen (Fang et al., Section 4.2,
    partial knowledge).
    """
    direction = reversed_direction(own)
    crafted = _SMALLEST_LAMBDA * direction
    for n_crafted in range(1, len(own) + 1):
        crafted, chosen = fang_krum(own, direction, n_crafted, n_crafted)
        if chosen:
            break
    return crafted


def largest_lambda(benign: NDArray[np.float64], n: int, byzantine: int) -> float:
    """The bound of lambda in Fang et al.'s Theorem 1, for ``n`` updates of which ``byzantine`` are crafted.

    With too few benign updates for the formula, sums have at least one distance and divisors are at least 1.
    """
    d = benign.shape[1]
    # The first of each row is the distance to itself.
    nearest = np.sort(_squared_distances(benign), axis=1)[:, 1 : max(n - byzantine - 2, 1) + 1]
    apart = float(nearest.sum(axis=1).min())
    longest = float(np.einsum("ij,ij->i", benign, benign).max())
    return math.sqrt(apart / (max(n - 2 * byzantine - 1, 1) * d)) + math.sqrt(longest / d)


def fang_trimmed_mean(
    known: NDArray[np.float64], n_crafted: int, b: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(n_crafted, d) values just beyond the known ones, against the direction of each weight.

    If s_j is 1 they are drawn between the largest value theta_max,j and b * theta_max,j, or theta_max,j / b if that is
    larger; else likewise below theta_min,j (Fang et al., Section 4.3). A weight with s_j = 0 is unchanged.

    Args:
        known: (k, d).
        b: how far beyond, above 1.
    """
    direction = reversed_direction(known)
    largest, smallest = known.max(axis=0), known.min(axis=0)
    near = np.where(direction > 0.0, largest, smallest)
    far = np.where(direction > 0.0, np.maximum(b * largest, largest / b), np.minimum(b * smallest, smallest / b))
    drawn: NDArray[np.float64] = near + rng.random((n_crafted, len(near))) * (far - near)
    return drawn * np.abs(direction)


def inner_product(known: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """(d,) -epsilon * mu of the updates (k, d), so that the aggregate's product with mu may turn negative."""
    crafted: NDArray[np.float64] = -epsilon * known.mean(axis=0)
    return crafted


def bounded(known: NDArray[np.float64], model: NDArray[np.float64] | None, length: float) -> NDArray[np.float64]:
    """(d,) of this L2 norm, against the direction of the model (d,) or, without one, of the mean of the updates (k, d).

    Zeros if that is zero. Norm proofs leave attackers no more than this.
    """
    direction = known.mean(axis=0) if model is None else model
    norm = float(np.linalg.norm(direction))
    return -length / norm * direction if norm > 0.0 else np.zeros_like(direction)


def min_max(known: NDArray[np.float64], perturbation: Perturbation) -> NDArray[np.float64]:
    """(d,) mu + gamma * p, no farther from any known update (k, d) than the two that are farthest apart.

    The paper searches the largest gamma by bisection. Each of its conditions, |mu - u_i|^2 + 2 gamma p.(mu - u_i) +
    gamma^2 |p|^2 <= D^2, is quadratic, so it is solved directly.
    """
    mean, p, squared = _perturbed(known, perturbation)
    offsets = mean - known
    along, across = offsets @ p, np.einsum("ij,ij->i", offsets, offsets)
    gammas = _largest_roots(float(p @ p), along, across - squared.max())
    return mean + float(gammas.min()) * p


def min_sum(known: NDArray[np.float64], perturbation: Perturbation) -> NDArray[np.float64]:
    """(d,) mu + gamma * p, whose squared distances to the known updates (k, d) sum to no more than any of theirs.

    Solved as `min_max`; "any" is the one with the largest sum.
    """
    mean, p, squared = _perturbed(known, perturbation)
    offsets = mean - known
    along, across = offsets @ p, np.einsum("ij,ij->i", offsets, offsets)
    k = len(known)
    gammas = _largest_roots(
        k * float(p @ p), np.array([along.sum()]), across.sum() - squared.sum(axis=1).max(initial=0)
    )
    return mean + float(gammas[0]) * p


def _perturbed(
    known: NDArray[np.float64], perturbation: Perturbation
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(d,) the mean; (d,) p, which points back; (k, k) squared distances between the known updates."""
    mean = known.mean(axis=0)
    if perturbation == "unit":
        length = float(np.linalg.norm(mean))
        p = -mean / length if length > 0.0 else np.zeros_like(mean)
    else:
        p = -known.std(axis=0) if perturbation == "std" else -np.sign(mean)
    return mean, p, _squared_distances(known)


def _squared_distances(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(k, k) among (k, d), from one product of centred rows, which loses little precision if they are alike."""
    offsets = rows - rows.mean(axis=0)
    squares = np.einsum("ij,ij->i", offsets, offsets)
    squared: NDArray[np.float64] = np.maximum(squares[:, None] + squares - 2.0 * (offsets @ offsets.T), 0.0)
    np.fill_diagonal(squared, 0.0)
    return squared


def _largest_roots(a: float, half_b: NDArray[np.float64], c: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """The largest x with a x^2 + 2 half_b x + c <= 0, given c <= 0 up to rounding; 0 if a is 0."""
    if a == 0.0:
        return np.zeros_like(half_b)
    roots: NDArray[np.float64] = (np.sqrt(np.maximum(half_b * half_b - a * c, 0.0)) - half_b) / a
    return np.maximum(roots, 0.0)
