"""Rules that look for the centre of all updates: the geometric median, centred clipping and norm bounding.

- Pillutla, Kakade & Harchaoui, "Robust aggregation for federated learning" (2022): the geometric median by Weiszfeld's
  iteration. Where the iterate meets updates, the step is that of Vardi & Zhang, "The multivariate L1-median and
  associated data depth" (2000), Equation 2.6: updates that are all zero are common, and dividing by a smoothed distance
  of nearly nothing would hold the iterate there.
- Karimireddy, He & Jaggi, "Learning from history for Byzantine robust optimization" (2021), Algorithm 2.
- Sun, Kairouz, Suresh & McMahan, "Can you really backdoor federated learning?" (2019), section 5.

Rows are (n, d), float32 or float64, finite; weights are (n,) float64 and positive (see
`foltr.core.aggregation.claimed_weights`).
"""

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.coordinates import block_length, combination, median
from foltr.core.aggregation.round_report import RuleResult

_CACHED_BYTES = 2 * 1024 * 1024
# Distances below this part of the typical one count as the same place.
_SAME_PLACE = 1e-6
# Sums of squares outside these bounds have lost digits, or all of them, to underflow or overflow.
_SAFE_SQUARES = {kind: (np.finfo(kind).tiny * 1e12, np.finfo(kind).max) for kind in (np.float32, np.float64)}

Factors = Callable[[slice, NDArray[np.float64]], NDArray[np.float64]]


def geometric_median(
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    *,
    n_iterations: int = 32,
    tolerance: float = 1e-4,
) -> RuleResult:
    """argmin over z of sum w_i |x_i - z|, starting at the global model: there a huge update pulls like a unit one.

    Args:
        n_iterations: at most this many passes over the rows.
        tolerance: stop when a step is shorter than this part of the (harmonic) mean distance.
    """
    n, dim = rows.shape
    centre = np.zeros(dim)
    total, distances, pulls = weights.sum(), np.zeros(n), np.zeros(n)
    typical, n_passes, work_space = 0.0, 0, _work_space(rows)
    for _ in range(n_iterations):
        n_passes += 1
        met = np.zeros(n, np.bool_)
        inverse = functools.partial(_inverse_distances, weights, _SAME_PLACE * typical, met)
        pull, distances, pulls = _pass(rows, centre, inverse, work_space)
        strength = pulls.sum()
        if strength == 0.0:
            break  # every update is here
        typical = float(total / strength)
        # Updates at this place hold the centre with their weight against the pull of the others.
        pull_norm = math.sqrt(pull @ pull)
        held = float(weights[met].sum())
        if pull_norm <= held:
            break
        step = pull * ((1 - held / pull_norm) / strength)
        centre += step
        if math.sqrt(step @ step) <= tolerance * typical:
            break
    shares = pulls / pulls.sum() if pulls.sum() > 0 else weights / total
    return RuleResult(centre, shares, distances, used={"n_iterations": n_passes})


def _inverse_distances(
    weights: NDArray[np.float64],
    near: float,
    met: NDArray[np.bool_],
    part: slice,
    lengths: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Weight by distance, and 0 for updates no farther than ``near``, which are marked in ``met``."""
    if lengths.min() > near:
        return np.asarray(weights[part] / lengths)
    met[part] = lengths <= near
    return np.divide(weights[part], lengths, out=np.zeros(len(lengths)), where=~met[part])


def centred_clipping(
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    clip_norm: float | None = None,
    n_iterations: int = 3,
    start: NDArray[np.float64] | None = None,
) -> RuleResult:
    """v <- v + sum w_i (x_i - v) min(1, clip_norm / |x_i - v|) / sum w_i, ``n_iterations`` times.

    Args:
        clip_norm: None for the median distance to the start, which a minority moves only within honest distances.
        start: (d,); None for the median of each coordinate. The paper starts at the last round's result. The median
            needs no memory, so that a repeated round ends in the same bits, and it is near the honest updates from the
            first round on.
    """
    centre = median(rows, weights).vector if start is None else start.astype(np.float64)
    work_space, known = _work_space(rows), None
    if clip_norm is None:
        known = norms(rows, centre, work_space)
        clip_norm = _middle(known)
    fractions = weights / weights.sum()
    distances, factors = np.zeros(len(rows)), fractions

    def clip(part: slice, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(fractions[part] * clip_factors(lengths, clip_norm))

    for _ in range(n_iterations):
        pull, distances, factors = _pass(rows, centre, clip, work_space, known)
        centre, known = centre + pull, None
    return RuleResult(centre, factors, distances, distances > clip_norm, {"clip_norm": clip_norm})


def norm_bounding(
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    clip_norm: float | None = None,
    clip_factor: float = 1.0,
) -> RuleResult:
    """sum w_i x_i min(1, clip_norm / |x_i|) / sum w_i.

    Args:
        clip_norm: None for ``clip_factor`` times the median norm of these updates. A fixed norm would have to be known
            before the first round and would be wrong in the last; a minority can move the median only to an honest
            update's norm. If most updates are zero, so is the result.
    """
    lengths = norms(rows)
    if clip_norm is None:
        clip_norm = clip_factor * _middle(lengths)
    factors = weights / weights.sum() * clip_factors(lengths, clip_norm)
    return RuleResult(combination(rows, factors), factors, lengths, lengths > clip_norm, {"clip_norm": clip_norm})


def clip_factors(lengths: NDArray[np.float64], clip_norm: float) -> NDArray[np.float64]:
    """(n,): min(1, clip_norm / length)."""
    return np.divide(clip_norm, lengths, out=np.ones(len(lengths)), where=lengths > clip_norm)


def norms(
    rows: NDArray[np.floating],
    centre: NDArray[np.float64] | None = None,
    work_space: NDArray[np.floating] | None = None,
) -> NDArray[np.float64]:
    """(n,) float64: |x_i - centre|, even if a square leaves the range of the rows' dtype."""
    if centre is None:
        return _lengths(rows)
    if work_space is None:
        work_space = _work_space(rows)
    return np.concatenate([_lengths(differences) for _, differences in _differences(rows, centre, work_space)])


def _middle(values: NDArray[np.float64]) -> float:
    """The median of a few numbers: `np.median` spends ten times as long on checking its arguments."""
    ordered, n = np.sort(values), len(values)
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _pass(
    rows: NDArray[np.floating],
    centre: NDArray[np.float64],
    factors_of: Factors,
    work_space: NDArray[np.floating],
    known: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """One pass over the rows: sum f_i (x_i - centre) (d,), the distances (n,) and the factors f (n,).

    Differences are taken in the dtype of the rows, block by block while they are in the cache; their sums are float64.

    Args:
        known: the distances, if known.
    """
    pull, factors = np.zeros(rows.shape[1]), np.empty(len(rows))
    distances = np.empty(len(rows)) if known is None else known
    for part, differences in _differences(rows, centre, work_space):
        if known is None:
            distances[part] = _lengths(differences)
        factors[part] = factors_of(part, distances[part])
        pull += factors[part].astype(rows.dtype) @ differences
    return pull, distances, factors


def _work_space(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Allocate the differences of a block of rows once: fresh memory in each pass costs as much as the work in it."""
    n, dim = rows.shape
    return np.empty((min(n, block_length(rows, dim, _CACHED_BYTES, part=0.5)), dim), rows.dtype)


def _differences(
    rows: NDArray[np.floating], centre: NDArray[np.float64], work_space: NDArray[np.floating]
) -> Iterator[tuple[slice, NDArray[np.floating]]]:
    """Yield (which rows, their difference from the centre, valid until the next ones)."""
    n, length, near = len(rows), len(work_space), centre.astype(rows.dtype)
    for start in range(0, n, length):
        part = slice(start, min(start + length, n))
        yield part, np.subtract(rows[part], near, out=work_space[: part.stop - start])


def _lengths(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    squares = np.einsum("ij,ij->i", rows, rows)
    lengths: NDArray[np.float64] = np.sqrt(squares, dtype=np.float64)
    least, largest = _SAFE_SQUARES[rows.dtype.type]
    if squares.min() > least and squares.max() < largest:
        return lengths
    for i in np.flatnonzero(~((squares > least) & (squares < largest))).tolist():
        scale = float(np.abs(rows[i]).max(initial=0.0))
        lengths[i] = scale * np.linalg.norm(rows[i] / scale) if scale > 0 else 0.0
    return lengths
