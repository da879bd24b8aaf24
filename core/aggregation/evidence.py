"""Evidence against a client: three comparisons of its updates with the others', over many rounds.

One round of clicks says little: the updates of honest clients differ as much as those of most attackers. But noise
averages out and intent does not, so each comparison is a sum over rounds in which older ones fade:

- *alignment*: the t statistic of an update's scalar product with the direction of what the federation has learned so
  far. A client that follows its own clicks pulls with the majority, at worst not at all; to do harm it must pull
  against it (FLTrust compares directions in one round: Cao et al. 2021).
- *drift*: how far the client's deviations from the others add up, relative to a random walk of the same steps. Chance
  stays near 1, a constant bias grows with the rounds (as FLDetector's prediction errors do: Zhang et al. 2022).
- *length*: the logarithm of the update's length relative to the usual one.

The evidence is the step that the mean would use without suspicions or budgets (`foltr.core.aggregation.budgets`): a
shortened update counts as shortened, others count whole.

The sums are ours; the papers are named for the idea.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.client_records import SKETCH_LENGTH
from foltr.core.aggregation.coordinates import block_length
from foltr.core.aggregation.copies import COPIES_FADE

ALIGNMENT_FADES, DRIFT_FADES, LENGTH_FADES = 0.99, 0.98, 0.97
# For a client's recent update lengths; the usual length may change while a ranker learns.
_SIZE_FADES = 0.9
LONGEST = 6.0
"""Chance makes no updates from clicks so many times longer than usual; longer ones are shortened."""
# A client's own long steps must not excuse a long way: they explain as much of it as others' steps would.
_ENERGY_OVER_MEDIAN = 1.5
# Short updates must not compensate for long ones.
_SHORTEST_LOG = float(np.log(0.5))
# How many others a client's drift is compared with; more would not change the result.
SAMPLE = 256
_MEGABYTE = 1024 * 1024
_PAIRS_AT_A_TIME = 128


@dataclass(frozen=True, eq=False)
class UpdateMeasures:
    """The updates of one round, measured once.

    Attributes:
        lengths: (n,) float64.
        along: (n,) float64 scalar product with the unit vector of the progress; 0 without any progress.
        sketches: (n, k) float64, with about the distances of the updates; the updates themselves if d <= k.
    """

    lengths: NDArray[np.float64]
    along: NDArray[np.float64]
    sketches: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NormalisedSteps:
    """The updates of one round in usual lengths, in the form that the mean uses.

    Attributes:
        live: (n,) bool: who sent something other than zeros.
        along: (n,) as in `UpdateMeasures`.
        deviations: (n, k) sketches of the difference from the median step; None if too few are live to define it.
        copied: (n,) bool: who sent nearly the same as another.
    """

    live: NDArray[np.bool_]
    along: NDArray[np.float64]
    deviations: NDArray[np.float64] | None
    copied: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LengthEvidence:
    """Evidence of n clients' lengths, compared with all clients that can be judged.

    Attributes:
        log_length: (n,) mean log of length relative to the usual.
        excess: (n,) the same relative to the median client, in standard errors.
        median: of the clients that can be judged.
    """

    log_length: NDArray[np.float64]
    excess: NDArray[np.float64]
    median: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence against each of n clients after a round, compared with all clients that can be judged.

    Attributes:
        behind: (n,) by how many standard errors its alignment is below the median client's.
        opposed: (n,) the t statistic with which it pulls against the majority; negative if it pulls with it.
        drift: (n,) relative to chance, the median over the other clients.
        length: of its updates.
        median_drift: of the clients that can be judged.
    """

    behind: NDArray[np.float64]
    opposed: NDArray[np.float64]
    drift: NDArray[np.float64]
    length: LengthEvidence
    median_drift: float


def measure(rows: NDArray[np.floating], progress: NDArray[np.float32], key: bytes) -> UpdateMeasures:
    """Measure updates (n, d), a few at a time, without a copy of them all.

    Args:
        key: of the sketches.
    """
    n, dim = rows.shape
    project = _projection(dim, key)
    norm = float(np.linalg.norm(progress.astype(np.float64)))
    ahead = progress.astype(np.float64) / norm if norm > 0.0 else np.zeros(dim)
    lengths, along = np.empty(n), np.empty(n)
    sketches = np.empty((n, dim if project is None else project.shape[1]))
    step = block_length(rows, dim, _MEGABYTE)
    for start in range(0, n, step):
        block = rows[start : start + step].astype(np.float64)
        lengths[start : start + step] = np.sqrt(np.einsum("ij,ij->i", block, block))
        along[start : start + step] = block @ ahead
        sketches[start : start + step] = block if project is None else block @ project
    return UpdateMeasures(lengths, along, sketches)


def update_sizes(own: NDArray[np.void], lengths: NDArray[np.float64]) -> None:
    """Add a round's lengths (n,) to the records of clients that sent something other than zeros, in place."""
    live = lengths > 0.0
    _fade_and_add(own, "log_size", _SIZE_FADES, (1.0 - _SIZE_FADES) * np.log(np.where(live, lengths, 1.0)), live)
    _fade_and_add(own, "size_weight", _SIZE_FADES, np.full(len(own), 1.0 - _SIZE_FADES), live)


def update_lengths(own: NDArray[np.void], lengths: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    """Add a round's unshortened lengths (n,) to the records of clients that sent something, in place.

    Args:
        expected: (n,) the usual length of an update of so many interactions, above 0.
    """
    live = lengths > 0.0
    logs = np.maximum(np.log(np.where(live, lengths, 1.0) / expected), _SHORTEST_LOG)
    for name, value in (("log_length", logs), ("log_length_square", logs**2), ("length_weight", np.ones(len(own)))):
        _fade_and_add(own, name, LENGTH_FADES, (1.0 - LENGTH_FADES) * value, live)
    _fade_and_add(own, "length_weight_square", LENGTH_FADES**2, np.full(len(own), (1.0 - LENGTH_FADES) ** 2), live)
    own["n_updates"] += live


def sketch_of(vector: NDArray[np.float64], key: bytes) -> NDArray[np.float64]:
    """(k,) the sketch of a vector (d,)."""
    project = _projection(len(vector), key)
    return vector if project is None else vector @ project


def energies(steps: NormalisedSteps, trusted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(n,) squared lengths of the deviations, capped near the median of the clients ``trusted`` (n,)."""
    if steps.deviations is None:
        return np.zeros(len(steps.live))
    squares: NDArray[np.float64] = (steps.deviations**2).sum(axis=1)
    usual = steps.live & trusted if (steps.live & trusted).any() else steps.live
    return np.minimum(squares, _ENERGY_OVER_MEDIAN * np.median(squares[usual]))


def update_records(own: NDArray[np.void], steps: NormalisedSteps, energy: NDArray[np.float64]) -> None:
    """Add a round's steps to the records (n,) of clients that sent something other than zeros, in place.

    Args:
        energy: (n,) of the deviations, as `energies` returns it.
    """
    live = steps.live
    # By length, so that short steps ahead do not offset a long step back.
    _fade_and_add(own, "alignment", ALIGNMENT_FADES, steps.along, live)
    _fade_and_add(own, "alignment_energy", ALIGNMENT_FADES**2, steps.along**2, live)
    if steps.deviations is not None:
        own["drift"] = np.where(live[:, None], DRIFT_FADES * own["drift"] + steps.deviations, own["drift"])
        _fade_and_add(own, "drift_energy", DRIFT_FADES**2, energy, live)
        _fade_and_add(own, "copies", COPIES_FADE, (1.0 - COPIES_FADE) * steps.copied, live)
        own["n_compared"] += live


def _fade_and_add(
    own: NDArray[np.void], name: str, factor: float, values: NDArray[np.floating], live: NDArray[np.bool_]
) -> None:
    own[name] = np.where(live, factor * own[name] + values, own[name])


def evidence_of(
    own: NDArray[np.void], crowd: NDArray[np.void], place: NDArray[np.int64], sample: NDArray[np.int64]
) -> Evidence:
    """Compare the clients of these records (n,) with all that can be judged.

    Args:
        crowd: (N,) the records of all clients that can be judged, at least one, in this round or not: a round with many
            attackers must not turn the tables.
        place: (n,) the index of each of ``own`` in ``crowd``; -1 if not in it.
        sample: of the crowd, whose drifts are compared.
    """
    crowds = _t(crowd)
    # Attackers who lead the model astray are aligned with it, so the majority defines which way is forward.
    forward = np.sign(np.median(crowds)) or 1.0
    aligned, middle = forward * _t(own), forward * float(np.median(crowds))
    return Evidence(
        behind=middle - aligned,
        opposed=-aligned,
        drift=_drifts(own, crowd, place, sample),
        length=length_evidence(own, crowd),
        median_drift=float(np.median(_drifts(crowd[sample], crowd, sample, sample))),
    )


def length_evidence(own: NDArray[np.void], crowd: NDArray[np.void]) -> LengthEvidence:
    """Compare the update lengths of these records (n,) with all that can be judged (N,), at least one."""
    mean, crowds_mean = _mean_log(own), _mean_log(crowd)
    weight = np.maximum(crowd["length_weight"], 1e-12)
    variance = float(np.median(np.maximum(crowd["log_length_square"] / weight - crowds_mean**2, 1e-4)))
    effective = own["length_weight"] ** 2 / np.maximum(own["length_weight_square"], 1e-12)
    median = float(np.median(crowds_mean))
    return LengthEvidence(mean, (mean - median) / np.sqrt(variance / np.maximum(effective, 1.0)), median)


def sample_of(n: int, key: bytes, n_rounds: int) -> NDArray[np.int64]:
    """Return up to `SAMPLE` of n positions, in order, drawn again in each round by a secret key."""
    if n <= SAMPLE:
        return np.arange(n)
    rng = np.random.default_rng(np.random.SeedSequence([int.from_bytes(key), n_rounds, *b"sample"]))
    return np.sort(rng.choice(n, SAMPLE, replace=False))


def _t(records: NDArray[np.void]) -> NDArray[np.float64]:
    t: NDArray[np.float64] = records["alignment"] / np.sqrt(np.maximum(records["alignment_energy"], 1e-12))
    return t


def _mean_log(records: NDArray[np.void]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = records["log_length"] / np.maximum(records["length_weight"], 1e-12)
    return mean


def _drifts(
    own: NDArray[np.void], crowd: NDArray[np.void], place: NDArray[np.int64], sample: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return (n,) the median over the others in the sample of |D_i - D_j|^2 / (E_i + E_j); 1 without others."""
    theirs, energy = crowd["drift"][sample].astype(np.float64), crowd["drift_energy"][sample]
    squares = np.einsum("ij,ij->i", theirs, theirs)
    drifts = np.ones(len(own))
    for start in range(0, len(own), _PAIRS_AT_A_TIME):
        rows = slice(start, start + _PAIRS_AT_A_TIME)
        drift = own["drift"][rows].astype(np.float64)
        apart = np.einsum("ij,ij->i", drift, drift)[:, None] + squares - 2.0 * drift @ theirs.T
        ratio = np.maximum(apart, 0.0) / np.maximum(own["drift_energy"][rows, None] + energy, 1e-12)
        ratio[place[rows, None] == sample] = np.nan
        known = ~np.isnan(ratio).all(axis=1)
        drifts[np.arange(len(own))[rows][known]] = np.nanmedian(ratio[known], axis=1)
    return drifts


@lru_cache(maxsize=4)
def _projection(dim: int, key: bytes) -> NDArray[np.float64] | None:
    """(d, k) random signs over sqrt(k), the same for the same key (Achlioptas 2003); None if d is small."""
    if dim <= SKETCH_LENGTH:
        return None
    rng = np.random.default_rng(np.random.SeedSequence([int.from_bytes(key), dim, *b"sketch"]))
    projection: NDArray[np.float64] = (2.0 * rng.integers(0, 2, (dim, SKETCH_LENGTH)) - 1.0) / np.sqrt(SKETCH_LENGTH)
    projection.flags.writeable = False
    return projection
