"""Evidence speaks against a client: four comparisons of its updates with the others', over many rounds.

One round of clicks says little: the updates of honest clients differ as much as those of most attackers. But noise
averages out and intent does not, so each comparison is a sum over rounds in which older ones fade:

- *alignment*: the scalar product of an update with the direction of what the federation has learned so far, as a t
  statistic. Who follows its own clicks pulls with the majority, at worst not at all; who wants to do harm must pull
  against it (FLTrust compares directions in one round: Cao et al. 2021).
- *drift*: how far the client's deviations from the others add up, relative to a random walk of the same steps. Chance
  stays near 1, a constant bias grows with the rounds (as FLDetector's prediction errors do: Zhang et al. 2022).
- *length*: the logarithm of the update's length relative to what is usual.
- *copies*: in how many rounds it sent nearly what another sent who has been there longer (FoolsGold looks for alike
  directions: Fung et al. 2020). One of a group of copies never counts as one, so nothing is lost without the rest; but
  that one may be who copied the others.

The sums are ours; the papers are named for the idea.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation.client_records import SKETCH_LENGTH
from foltr.aggregation.coordinates import block_length

ALIGNMENT_FADES, DRIFT_FADES, LENGTH_FADES, COPIES_FADE = 0.99, 0.98, 0.97, 0.9
# How long a client's updates are of late; what is usual may change while a ranker learns.
_SIZE_FADES = 0.9
LONGEST_STEP = 2.0
"""What is longer than so many usual lengths enters the drift with this length: one huge update is no direction."""
LONGEST = 6.0
"""So many usual lengths are more than chance makes of clicks; what is longer is shortened."""
# Relative to the median squared distance of two updates of the round: whatever honest ones have in common, there it is
# gone. And relative to that of two so long that have nothing in common: where lists are hardly explored some are tiny,
# and all tiny ones are near each other, whatever they say.
_NEAR = 0.1
# Short updates must not pay for long ones.
_SHORTEST_LOG = float(np.log(0.5))
# Others a client's drift is compared with; more would say the same.
_SAMPLE = 256
_MEGABYTE = 1024 * 1024
_PAIRS_AT_A_TIME = 128


@dataclass(frozen=True, eq=False)
class Measured:
    """The updates of one round, measured once.

    Attributes:
        lengths: (n,) float64.
        along: (n,) float64 scalar product with the unit vector of the progress; 0 without any progress.
        sketches: (n, k) float64, whose distances are about those of the updates; the updates where d <= k.
    """

    lengths: NDArray[np.float64]
    along: NDArray[np.float64]
    sketches: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence against each of n clients after a round, compared with all clients that can be judged.

    Attributes:
        behind: (n,) by how many standard errors its alignment is below the median client's.
        opposed: (n,) the t statistic with which it pulls against the majority; negative for who pulls with it.
        drift: (n,) relative to chance, the median over the other clients.
        log_length: (n,) mean log of length relative to the usual.
        excess_length: (n,) the same relative to the median client, in standard errors.
        copies: (n,) share of its rounds in which it sent nearly the same as an older client.
        median_drift, median_log_length: of the clients that can be judged.
    """

    behind: NDArray[np.float64]
    opposed: NDArray[np.float64]
    drift: NDArray[np.float64]
    log_length: NDArray[np.float64]
    excess_length: NDArray[np.float64]
    copies: NDArray[np.float64]
    median_drift: float
    median_log_length: float


def measure(rows: NDArray[np.floating], progress: NDArray[np.float32]) -> Measured:
    """Measure updates (n, d), a few at a time, without a copy of them all."""
    n, dim = rows.shape
    project = _projection(dim)
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
    return Measured(lengths, along, sketches)


def update_sizes(own: NDArray[np.void], lengths: NDArray[np.float64]) -> None:
    """Add a round's lengths (n,) to the records of the clients that sent something other than zeros, in place."""
    live = lengths > 0.0
    _fade_and_add(own, "log_size", _SIZE_FADES, (1.0 - _SIZE_FADES) * np.log(np.where(live, lengths, 1.0)), live)
    _fade_and_add(own, "size_weight", _SIZE_FADES, np.full(len(own), 1.0 - _SIZE_FADES), live)


def update_records(
    own: NDArray[np.void],
    measured: Measured,
    expected_lengths: NDArray[np.float64],
    trusted: NDArray[np.bool_],
    *,
    compared: bool,
) -> None:
    """Add a round to the records (n,) of the clients that sent something other than zeros, in place.

    Args:
        expected_lengths: (n,) the usual length of an update of so many interactions, above 0.
        trusted: (n,) whose median is the centre that deviations are measured from, if any of them sent something.
        compared: whether there are enough updates to compare them with each other.
    """
    live = measured.lengths > 0.0
    lengths = np.where(live, measured.lengths, 1.0)
    relative = lengths / expected_lengths

    # By length: a long step back is not paid for by short ones ahead.
    along = np.where(live, measured.along / lengths * np.minimum(relative, LONGEST), 0.0)
    _fade_and_add(own, "alignment", ALIGNMENT_FADES, along, live)
    _fade_and_add(own, "alignment_energy", ALIGNMENT_FADES**2, along**2, live)

    logs = np.maximum(np.log(relative), _SHORTEST_LOG)
    for name, value in (("log_length", logs), ("log_length_square", logs**2), ("length_weight", np.ones(len(own)))):
        _fade_and_add(own, name, LENGTH_FADES, (1.0 - LENGTH_FADES) * value, live)
    _fade_and_add(own, "length_weight_square", LENGTH_FADES**2, np.full(len(own), (1.0 - LENGTH_FADES) ** 2), live)

    if compared:
        steps = measured.sketches * (np.minimum(relative, LONGEST_STEP) / lengths)[:, None]
        centre = live & trusted if (live & trusted).any() else live
        away = steps - np.median(steps[centre], axis=0)
        own["drift"] = np.where(live[:, None], DRIFT_FADES * own["drift"] + away, own["drift"])
        _fade_and_add(own, "drift_energy", DRIFT_FADES**2, (away**2).sum(axis=1), live)
        copied = _copied(steps, live, own["n_updates"])
        _fade_and_add(own, "copies", COPIES_FADE, (1.0 - COPIES_FADE) * copied, live)
    own["n_updates"] += live


def _fade_and_add(
    own: NDArray[np.void], name: str, factor: float, values: NDArray[np.floating], live: NDArray[np.bool_]
) -> None:
    own[name] = np.where(live, factor * own[name] + values, own[name])


def evidence_of(own: NDArray[np.void], crowd: NDArray[np.void], place: NDArray[np.int64]) -> Evidence:
    """Compare the clients of these records (n,) with all that can be judged.

    Args:
        crowd: (N,) the records of all clients that can be judged, at least one, whether they are in this round or not:
            a round in which attackers happen to be many must not turn the tables.
        place: (n,) where each of ``own`` is in ``crowd``; -1 for one that is not.
    """
    crowds = _t(crowd)
    # Attackers who lead the model astray are aligned with it: it is the majority that says what forward is.
    forward = np.sign(np.median(crowds)) or 1.0
    aligned, middle = forward * _t(own), forward * float(np.median(crowds))
    mean, crowds_mean = _mean_log(own), _mean_log(crowd)
    weight = np.maximum(crowd["length_weight"], 1e-12)
    variance = float(np.median(np.maximum(crowd["log_length_square"] / weight - crowds_mean**2, 1e-4)))
    effective = own["length_weight"] ** 2 / np.maximum(own["length_weight_square"], 1e-12)
    seen = 1.0 - COPIES_FADE ** np.maximum(own["n_updates"], 1)
    sample = np.unique(np.linspace(0, len(crowd) - 1, min(len(crowd), _SAMPLE)).astype(np.int64))
    return Evidence(
        behind=middle - aligned,
        opposed=-aligned,
        drift=_drifts(own, crowd, place, sample),
        log_length=mean,
        excess_length=(mean - np.median(crowds_mean)) / np.sqrt(variance / np.maximum(effective, 1.0)),
        copies=own["copies"] / seen,
        median_drift=float(np.median(_drifts(crowd[sample], crowd, sample, sample))),
        median_log_length=float(np.median(crowds_mean)),
    )


def _t(records: NDArray[np.void]) -> NDArray[np.float64]:
    t: NDArray[np.float64] = records["alignment"] / np.sqrt(np.maximum(records["alignment_energy"], 1e-12))
    return t


def _mean_log(records: NDArray[np.void]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = records["log_length"] / np.maximum(records["length_weight"], 1e-12)
    return mean


def _drifts(
    own: NDArray[np.void], crowd: NDArray[np.void], place: NDArray[np.int64], sample: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(n,) median over the others in the sample of |D_i - D_j|^2 / (E_i + E_j); 1 where there is no other."""
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


def _copied(steps: NDArray[np.float64], live: NDArray[np.bool_], n_updates: NDArray[np.integer]) -> NDArray[np.bool_]:
    """(n,) whether an older client, or of the same age one before it, sent nearly the same."""
    at = np.flatnonzero(live)
    here, squares = steps[at], np.einsum("ij,ij->i", steps[at], steps[at])
    some = here[np.unique(np.linspace(0, len(here) - 1, min(len(here), _SAMPLE)).astype(np.int64))]
    apart = np.maximum(np.einsum("ij,ij->i", some, some)[:, None] + squares - 2.0 * some @ here.T, 0.0)
    usual = float(np.median(apart[:, 1:]))
    age, order = n_updates[at], np.arange(len(at))
    copied = np.zeros(len(steps), np.bool_)
    for start in range(0, len(here), _PAIRS_AT_A_TIME):
        rows = slice(start, start + _PAIRS_AT_A_TIME)
        apart = np.maximum(squares[rows, None] + squares - 2.0 * here[rows] @ here.T, 0.0)
        older = (age > age[rows, None]) | ((age == age[rows, None]) & (order < order[rows, None]))
        near = _NEAR * np.minimum(usual, squares[rows, None] + squares)
        copied[at[rows]] = ((apart < near) & older).any(axis=1)
    return copied


@lru_cache(maxsize=4)
def _projection(dim: int) -> NDArray[np.float64] | None:
    """(d, k) random signs over sqrt(k), the same in every process (Achlioptas 2003); None where d is small."""
    if dim <= SKETCH_LENGTH:
        return None
    signs = np.random.default_rng(np.random.SeedSequence([dim, *b"sketch"])).integers(0, 2, (dim, SKETCH_LENGTH))
    projection: NDArray[np.float64] = (2.0 * signs - 1.0) / np.sqrt(SKETCH_LENGTH)
    projection.flags.writeable = False
    return projection
