"""One round's updates made into one, with an account of what became of each.

What cannot be used is dropped and the round goes on: updates that are not finite, updates without weight, updates that
the adaptive defence excludes. Where too few are left for the configured rule, the fallback takes its place.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation.adaptive import assess, remember
from foltr.aggregation.blocks import block_length
from foltr.aggregation.bulyan import bulyan
from foltr.aggregation.centres import centred_clipping, geometric_median, norm_bounding
from foltr.aggregation.claimed_weights import capped_weights
from foltr.aggregation.coordinates import median, trimmed_mean, weighted_mean
from foltr.aggregation.fates import Fate
from foltr.aggregation.krum import krum, multi_krum
from foltr.aggregation.mean import RunningMean
from foltr.aggregation.pre_steps import Mixed, bucketing, nnm
from foltr.aggregation.round_report import Aggregate, ClientFate, RoundReport
from foltr.aggregation.rule_spec import ABANDON, RuleSpec, n_byzantine, n_trimmed, read_rule, shortfall
from foltr.errors import DataError, SettingsError

# Up to so many numbers the shares of coordinate-wise rules are told without being asked for: about 5 ms.
_SHARES_UP_TO = 250_000
_MEGABYTE = 1024 * 1024


class TooFewUpdatesError(DataError):
    """A round has too few updates for its rule and for its fallback, or the fallback is to make no model."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundAggregate:
    """Attributes:
    vector: (d,) float64.
    memory: what the adaptive defence keeps for the next round; what was given for any other rule.
    """

    vector: NDArray[np.float64]
    report: RoundReport
    memory: bytes | None


def aggregate_round(
    spec: RuleSpec,
    client_ids: Sequence[str],
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    memory: bytes | None = None,
    rng: np.random.Generator | None = None,
    *,
    with_shares: bool | None = None,
) -> RoundAggregate:
    """Aggregate the updates of one round.

    Args:
        rows: (n, d) float32 or float64, in the order of ``client_ids``; not changed.
        weights: (n,) float64, at least 0.
        memory: what the round before returned; None in the first.
        rng: of bucketing's shuffle; no other step needs one.
        with_shares: whether to tell each client's share where that costs more than the rule itself; None where it is
            cheap.

    Raises:
        TooFewUpdatesError: too few updates for the rule and its fallback.
        DataError: shapes that do not agree, a wrong weight, or no update that can be used.
    """
    _check(client_ids, rows, weights)
    dropped = _unusable(rows, weights)
    used = np.array([i for i in range(len(rows)) if i not in dropped], np.intp)
    rule, assessment, factors = spec, None, np.ones(len(rows))
    reasons: dict[int, str] = {}
    if spec.rule == "adaptive" and len(used):
        assessment = assess(memory, [client_ids[i] for i in used], _taken(rows, used), weights[used], spec)
        rule, factors[used] = assessment.rule, assessment.factors
        for i in np.flatnonzero(assessment.excluded).tolist():
            dropped[int(used[i])] = (assessment.reasons[i], _finite(float(assessment.scores[i])))
        reasons = dict(zip(used.tolist(), assessment.reasons, strict=True))
        used = used[~assessment.excluded]
    n = len(used)
    if assessment is not None and n == 0:
        raise TooFewUpdatesError(
            f"{len(rows)} updates, and each is of a suspected client ({_count_reasons(dropped)}); see foltr clients "
            "quarantine, or choose another aggregation"
        )
    if n == 0:
        raise DataError(f"none of {len(rows)} updates can be used: {_count_reasons(dropped)}")
    left = _taken(rows, used)
    shortened = {i: reasons[i] for i in used.tolist() if factors[i] < 1.0}
    if shortened:
        left = left * factors[used, None].astype(left.dtype)
    rule, fallback_reason = _rule_or_fallback(rule, n)
    weighed = weights[used]
    if assessment is not None:
        fallback_reason = fallback_reason or assessment.fallback_reason
        if assessment.fallback_reason is not None and spec.fallback == ABANDON:
            raise TooFewUpdatesError(f"{assessment.fallback_reason}; no model is made, as aggregation_fallback says")
        # A claim of many interactions must not be what the evidence has to catch.
        weighed = capped_weights(weighed, n_byzantine(spec, n))
    if rule.text == "mean":
        result = _plain_mean(left, weighed)
    else:
        shares_wanted = left.size <= _SHARES_UP_TO if with_shares is None else with_shares
        weighed = capped_weights(weights[used], n_byzantine(rule, n))
        result = run_rule(rule, left, weighed, rng, with_shares=shares_wanted)
    if assessment is not None:
        memory = remember(assessment, result.vector)
    report = RoundReport(
        configured=spec.text,
        rule=rule.text,
        parameters=_parameters_used(rule, n) | result.used,
        fallback_reason=fallback_reason,
        fates=_fates(client_ids, rule, used, result, dropped, shortened),
        findings=() if assessment is None else assessment.findings,
    )
    return RoundAggregate(result.vector, report, memory)


def run_rule(
    spec: RuleSpec,
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    rng: np.random.Generator | None = None,
    *,
    with_shares: bool = False,
) -> Aggregate:
    """The rule with its pre-step on finite rows (n, d) with positive weights (n,), without checks or fallback.

    Scores and what was clipped are told of the mixed row that stands for an update, shares of the updates themselves.
    """
    n = len(rows)
    m = n_byzantine(spec, n)
    # Huge updates may leave the range on the way. Infinitely far is what they are then.
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
) -> Mixed:
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
) -> Aggregate:
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
            raise SettingsError(f"aggregation: {spec.rule} is not a rule for one round; name one that is")


def _check(client_ids: Sequence[str], rows: NDArray[np.floating], weights: NDArray[np.float64]) -> None:
    if rows.ndim != 2 or not rows.shape[1] or len(rows) != len(client_ids) or weights.shape != (len(client_ids),):
        raise DataError(
            f"{len(client_ids)} clients, updates of shape {rows.shape} and weights of shape {weights.shape}: expected "
            "one row of the same length and one weight for each client"
        )
    if rows.dtype not in (np.float32, np.float64):
        raise DataError(f"updates are {rows.dtype}, expected float32 or float64")
    if not (np.isfinite(weights).all() and weights.min(initial=0.0) >= 0.0):
        raise DataError("a weight is negative or not finite")


def _unusable(rows: NDArray[np.floating], weights: NDArray[np.float64]) -> dict[int, tuple[str, float | None]]:
    """By position, why updates are left out whatever the rule."""
    dropped: dict[int, tuple[str, float | None]] = {}
    length = block_length(rows, rows.shape[1], _MEGABYTE)
    for start in range(0, len(rows), length):
        finite = np.isfinite(rows[start : start + length]).all(axis=1)
        for i in np.flatnonzero(~finite).tolist():
            dropped[start + i] = ("not finite", None)
    for i in np.flatnonzero(weights == 0).tolist():
        dropped.setdefault(i, ("weight 0", None))
    return dropped


def _taken(rows: NDArray[np.floating], used: NDArray[np.intp]) -> NDArray[np.floating]:
    """The rows at these positions: themselves and not a copy where they are all."""
    return rows if len(used) == len(rows) else rows[used]


def _plain_mean(rows: NDArray[np.floating], weights: NDArray[np.float64]) -> Aggregate:
    """To the same bits as a federation without a rule."""
    mean = RunningMean(rows.shape[1])
    for row, weight in zip(rows, weights.tolist(), strict=True):
        mean.add(row, weight)
    return Aggregate(mean.mean(), weights / weights.sum())


def _rule_or_fallback(spec: RuleSpec, n: int) -> tuple[RuleSpec, str | None]:
    """The rule for n updates and, where that is the fallback, why."""
    missing = shortfall(spec, n)
    if missing is None:
        return spec, None
    if spec.fallback == ABANDON:
        raise TooFewUpdatesError(f"{missing}; no model is made of them, as aggregation_fallback says")
    m = n_byzantine(spec, n)
    # The fallback is the last resort: it tolerates as many as it can of so few.
    for tolerated in range(m, -1, -1):
        rule = read_rule(spec.fallback, byzantine=float(tolerated), fallback=ABANDON)
        if shortfall(rule, n) is None:
            fewer = "" if tolerated == m else f", and {spec.fallback} tolerates {tolerated} of {n}"
            return rule, missing + fewer
    raise TooFewUpdatesError(f"{missing}; and {shortfall(rule, n)}")


def _parameters_used(rule: RuleSpec, n: int) -> dict[str, float]:
    parameters = {"n": float(n), "m": float(n_byzantine(rule, n))} | rule.all_parameters()
    if rule.rule == "trimmed-mean":
        parameters["beta"] = float(n_trimmed(rule, n))
    if rule.beyond_bounds and shortfall(replace(rule, beyond_bounds=False), n) is not None:
        parameters["beyond_bounds"] = 1.0
    return parameters


def _fates(
    client_ids: Sequence[str],
    rule: RuleSpec,
    used: NDArray[np.intp],
    result: Aggregate,
    dropped: dict[int, tuple[str, float | None]],
    shortened: dict[int, str],
) -> tuple[ClientFate, ...]:
    """By client; empty for a mean of all as they came."""
    if rule.text == "mean" and not dropped and not shortened:
        return ()
    fates: dict[int, ClientFate] = {
        i: ClientFate(client_ids[i], Fate.DROPPED, 0.0, score, reason) for i, (reason, score) in dropped.items()
    }
    shares = [None] * len(used) if result.shares is None else result.shares.tolist()
    scores = [None] * len(used) if result.scores is None else [_finite(x) for x in result.scores.tolist()]
    clipped = [False] * len(used) if result.clipped is None else result.clipped.tolist()
    # Of the median most updates are in no coordinate, and each has moved it all the same.
    drops = rule.rule != "median"
    for position, share, score, was_clipped in zip(used.tolist(), shares, scores, clipped, strict=True):
        fate, reason = Fate.KEPT, ""
        if drops and share == 0.0:
            fate, reason = Fate.DROPPED, _why_dropped(rule, score)
        elif was_clipped:
            fate, reason = Fate.CLIPPED, f"{score:.4g} long, clipped to {result.used['clip_norm']:.4g}"
        elif position in shortened:
            fate, reason = Fate.CLIPPED, shortened[position]
        fates[position] = ClientFate(client_ids[position], fate, share, score, reason)
    return tuple(fates[i] for i in range(len(client_ids)))


def _why_dropped(rule: RuleSpec, score: float | None) -> str:
    if rule.rule == "trimmed-mean":
        return "trimmed in every coordinate"
    which = "its bucket is " if rule.pre_step == "bucketing" else ""
    if score is None:
        return f"{which}farther from the others than can be measured"
    return f"{which}farther from the others than the chosen: score {score:.4g}"


def _count_reasons(dropped: dict[int, tuple[str, float | None]]) -> str:
    reasons = [reason for reason, _ in dropped.values()]
    return ", ".join(f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons)) or "there are none"


def _finite(score: float) -> float | None:
    return float(score) if math.isfinite(score) else None
