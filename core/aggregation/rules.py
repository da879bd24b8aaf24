"""The rules by their names: each is a plain function on arrays, run after its pre-step."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.bulyan import bulyan
from foltr.core.aggregation.centres import centred_clipping, geometric_median, norm_bounding
from foltr.core.aggregation.coordinates import median, trimmed_mean, weighted_mean
from foltr.core.aggregation.krum import krum, multi_krum
from foltr.core.aggregation.pre_steps import MixedUpdates, bucketing, nnm
from foltr.core.aggregation.round_report import RuleResult
from foltr.core.aggregation.rule_spec import RULES, RuleSpec, n_byzantine, n_trimmed
from foltr.core.errors import DataError, SettingsError


def run_rule(
    spec: RuleSpec,
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    rng: np.random.Generator | None = None,
    *,
    with_shares: bool = False,
) -> RuleResult:
    """Run a rule with its pre-step on finite rows (n, d) with positive weights (n,), without checks or fallback.

    Scores and clipping belong to the mixed row of an update, shares to the updates themselves.
    """
    n = len(rows)
    m = n_byzantine(spec, n)
    # Huge updates may overflow on the way; they then count as infinitely far.
    with np.errstate(over="ignore", invalid="ignore"):
        if spec.pre_step is None:
            return _apply(spec, rows, weights, m, with_shares, n)
        mixed = _mix(spec, rows, weights, m, rng)
        result = _apply(spec, mixed.rows, mixed.weights, m, with_shares, n)
    return replace(
        result,
        shares=None if result.shares is None else mixed.shares_of_updates(result.shares),
        scores=None if result.scores is None else result.scores[mixed.row_of],
        clipped=None if result.clipped is None else result.clipped[mixed.row_of],
    )


def _mix(
    spec: RuleSpec, rows: NDArray[np.floating], weights: NDArray[np.float64], m: int, rng: np.random.Generator | None
) -> MixedUpdates:
    if spec.pre_step == "nnm":
        return nnm(rows, weights, m)
    if rng is None:
        raise ValueError("bucketing needs a random generator")
    return bucketing(rows, weights, int(spec.parameter("bucket_size")), rng)


def _apply(
    spec: RuleSpec,
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    m: int,
    with_shares: bool,
    n_updates: int,
) -> RuleResult:
    match spec.rule:
        case "mean":
            return weighted_mean(rows, weights)
        case "krum":
            return krum(rows, m)
        case "multi-krum":
            return multi_krum(rows, weights, m)
        case "trimmed-mean":
            return trimmed_mean(rows, weights, n_trimmed(spec, n_updates), with_shares=with_shares)
        case "median":
            return median(rows, weights, with_shares=with_shares)
        case "bulyan":
            return bulyan(rows, m)
        case "geometric-median":
            n_iterations, tolerance = int(spec.parameter("n_iterations")), spec.parameter("tolerance")
            return geometric_median(rows, weights, n_iterations=n_iterations, tolerance=tolerance)
        case "centred-clipping":
            clip_norm = spec.parameter("clip_norm") or None
            return centred_clipping(rows, weights, clip_norm, int(spec.parameter("n_iterations")))
        case "norm-bounding":
            return norm_bounding(rows, weights, spec.parameter("clip_norm") or None, spec.parameter("clip_factor"))
        case _:
            return _from_outside(spec, rows, weights, m)


def _from_outside(spec: RuleSpec, rows: NDArray[np.floating], weights: NDArray[np.float64], m: int) -> RuleResult:
    """Run a rule that is not of this package. Raises DataError unless it returns (d,) finite numbers."""
    terms = RULES[spec.rule]
    if terms.function is None:
        raise SettingsError(f"aggregation: {spec.rule} is not a rule for one round; name one that is")
    parameters = {name: spec.parameter(name) for name in terms.parameters}
    vector = np.asarray(terms.function(rows.astype(np.float64), weights, m, **parameters))
    if vector.shape != rows.shape[1:] or vector.dtype.kind not in "fiu" or not np.isfinite(vector).all():
        raise DataError(
            f"aggregation: {spec.rule} must return {rows.shape[1:]} finite numbers, not {vector.shape} {vector.dtype}"
        )
    return RuleResult(vector.astype(np.float64))
