"""Decides whether evidence is enough to suspect a client, or no longer is, and describes it for the operator.

The two bounds of each comparison differ, so that a client does not flicker between suspected and not.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.evidence import Evidence

# Federations of similar honest clients stayed below all of these, with three click models on two data sets.
BEHIND, OPPOSED = 4.5, 1.5
# The number of clients for which these two hold.
_BOUNDS_FOR = 10
DRIFT, DRIFT_OVER_MEDIAN = 5.0, 2.5
LOG_LENGTH, LOG_LENGTH_ALONE = 1.2, 1.7
# By how many standard errors a client must be behind for evidence that is not enough alone.
ALSO_BEHIND = 1.0
NO_MORE_BEHIND, NO_MORE_DRIFT, NO_MORE_LOG_LENGTH = 3.0, 2.5, 0.8


def evidence_strength(evidence: Evidence, n_compared: int, *, differing: bool = False) -> NDArray[np.float64]:
    """Return (n,) how strong the evidence against a client is: above 1 is enough to suspect it.

    Args:
        n_compared: how many clients they are compared with.
        differing: whether honest clients differ, so that drift or length alone is not enough.
    """
    # With more clients the last one is farther behind by chance: about as far as the largest of so many normal draws.
    last = math.sqrt(2.0 * math.log(max(n_compared, _BOUNDS_FOR))) - math.sqrt(2.0 * math.log(_BOUNDS_FOR))
    # If all differ, e.g. each with its own labels, the median is high too.
    drifts = evidence.drift / max(DRIFT, DRIFT_OVER_MEDIAN * evidence.median_drift)
    pulls_against = np.minimum(evidence.opposed / (OPPOSED + last), evidence.behind / (BEHIND + last))
    log_length, is_behind = evidence.length.log_length, evidence.behind > ALSO_BEHIND
    alone = np.maximum(drifts, log_length / LOG_LENGTH_ALONE)
    if differing:
        # A rare taste drifts and long lists make long steps, but an honest client pulls with the others.
        alone = np.where(is_behind, alone, 0.0)
    long_and_behind = np.where(is_behind, log_length / LOG_LENGTH, 0.0)
    strongest_kind: NDArray[np.float64] = np.stack([pulls_against, alone, long_and_behind]).max(axis=0)
    return strongest_kind


def is_weak(evidence: Evidence, *, differing: bool = False) -> NDArray[np.bool_]:
    """(n,) whether so little evidence is left that a suspected client counts again.

    Args:
        differing: as in `evidence_strength`; drift and length then end once the client is not behind the median client.
    """
    faded = (evidence.drift < NO_MORE_DRIFT) & (evidence.length.log_length < NO_MORE_LOG_LENGTH)
    if differing:
        faded |= evidence.behind < 0.0
    # Far ahead is as suspicious: the forward direction may flip while attackers and the others pull about equally.
    weak: NDArray[np.bool_] = (np.abs(evidence.behind) < NO_MORE_BEHIND) & faded
    return weak


def strongest(cases: NDArray[np.bool_], strengths: NDArray[np.float64], most: int) -> NDArray[np.bool_]:
    """Return (n,) of these cases the ``most`` strongest; of equally strong ones all or, if those are too many, none.

    None if ``most`` is below 1: clients outside this round may be too many already.
    """
    if int(cases.sum()) <= most:
        return cases
    if most < 1:
        return np.zeros_like(cases)
    bound = np.sort(strengths[cases])[::-1][most]
    chosen: NDArray[np.bool_] = cases & (strengths > bound)
    return chosen


def in_words(evidence: Evidence, i: int) -> str:
    """Describe the evidence against one client, the strongest kinds only."""
    parts = []
    if evidence.behind[i] > NO_MORE_BEHIND:
        parts.append(f"pulls against the others, {evidence.behind[i]:.1f} standard errors below their median")
    if evidence.behind[i] < -NO_MORE_BEHIND:
        parts.append(f"pulls apart from the others, {-evidence.behind[i]:.1f} standard errors above their median")
    if evidence.drift[i] > NO_MORE_DRIFT:
        parts.append(f"deviates steadily, {evidence.drift[i]:.1f} times as far as by chance")
    if evidence.length.log_length[i] > NO_MORE_LOG_LENGTH:
        parts.append(f"{np.exp(evidence.length.log_length[i]):.1f} times as long as usual")
    return "; ".join(parts) or "suspected before"
