"""Combines a round's updates into one, and reports the outcome of each.

Unusable updates are dropped and the round goes on: those that are not finite, have no weight, or that the adaptive
defence excludes. If too few are left for the configured rule, the fallback replaces it.

`aggregate_round` first chooses which updates count, by their position in the round, so that rows are copied at most
once. Then it chooses the rule, which the adaptive defence may change, runs it and reports each update's outcome.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.adaptive import Assessment, assess, remember
from foltr.core.aggregation.claimed_weights import capped_weights
from foltr.core.aggregation.coordinates import block_length
from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.mean import RunningMean
from foltr.core.aggregation.round_report import ClientFate, RoundReport, RuleResult
from foltr.core.aggregation.rule_spec import ABANDON, RuleSpec, n_byzantine, n_trimmed, read_rule, shortfall
from foltr.core.aggregation.rules import run_rule
from foltr.core.errors import DataError

# Up to so many numbers, coordinate-wise rules compute shares unasked: about 5 ms.
_SHARES_UP_TO = 250_000
_MEGABYTE = 1024 * 1024


class TooFewUpdatesError(DataError):
    """A round has too few updates for its rule and for its fallback, or the fallback is to make no model."""


class OnlySuspectsError(TooFewUpdatesError):
    """A round has updates of suspected clients only."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundAggregate:
    """Attributes:
    vector: (d,) float64.
    memory: what the adaptive defence keeps for the next round; what was given for any other rule.
    """

    vector: NDArray[np.float64]
    report: RoundReport
    memory: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """How n updates are shortened and drawn towards the median step: times a factor (n,), plus so many of it (n,)."""

    factors: NDArray[np.float64]
    median_factors: NDArray[np.float64]
    median_step: NDArray[np.float64] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """The updates of a round that are aggregated, and why the others are not.

    Attributes:
        positions: (n,) of the aggregated ones, among all of the round.
        drawn: how each of them is changed; None if they are used unchanged.
        weight_shares: (n,) the share of its weight that each keeps.
        dropped: by position, why an update is left out, and the score behind that.
        shortened: by position, why an update counts less than whole.
    """

    positions: NDArray[np.intp]
    drawn: "_Drawn | None"
    weight_shares: NDArray[np.float64]
    dropped: dict[int, tuple[str, float | None]]
    shortened: dict[int, str]


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
        rng: of bucketing's shuffle, and of the sketches' key that ``adaptive`` draws in its first round.
        with_shares: whether to compute each client's share even if that costs more than the rule; None if cheap.

    Raises:
        TooFewUpdatesError: too few updates for the rule and its fallback.
        DataError: shapes that do not agree, a wrong weight, or no usable update.
    """
    _check(client_ids, rows, weights)
    choice, assessment = _usable(rows, weights), None
    if spec.rule == "adaptive" and len(choice.positions):
        at = choice.positions
        assessment = assess(memory, [client_ids[i] for i in at], _used_rows(rows, at), weights[at], spec, rng)
        choice = _without_suspects(choice, assessment)
    _check_any_left(choice, assessment)
    rule, fallback_reason = _rule_of_round(spec, assessment, len(choice.positions))
    chosen_weights = _rule_weights(spec, rule, weights[choice.positions], defended=assessment is not None)
    chosen_weights = chosen_weights * choice.weight_shares
    result = _result(rule, _chosen_rows(choice, rows), chosen_weights, rng, with_shares)
    report = RoundReport(
        configured=spec.text,
        rule=rule.text,
        parameters=_parameters_used(rule, len(choice.positions)) | result.used,
        fallback_reason=fallback_reason,
        fates=_fates(client_ids, rule, choice, result),
        findings=() if assessment is None else assessment.findings,
        farthest=None if assessment is None else assessment.farthest,
    )
    return RoundAggregate(result.vector, report, memory if assessment is None else remember(assessment, result.vector))


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


def _usable(rows: NDArray[np.floating], weights: NDArray[np.float64]) -> _Choice:
    """Choose the updates that any rule can use: finite, with a weight."""
    dropped: dict[int, tuple[str, float | None]] = {}
    length = block_length(rows, rows.shape[1], _MEGABYTE)
    for start in range(0, len(rows), length):
        finite = np.isfinite(rows[start : start + length]).all(axis=1)
        for i in np.flatnonzero(~finite).tolist():
            dropped[start + i] = ("not finite", None)
    for i in np.flatnonzero(weights == 0).tolist():
        dropped.setdefault(i, ("weight 0", None))
    positions = np.array([i for i in range(len(rows)) if i not in dropped], np.intp)
    return _Choice(positions, None, np.ones(len(positions)), dropped, {})


def _without_suspects(choice: _Choice, assessment: Assessment) -> _Choice:
    """Exclude suspects, and shorten updates that are too long."""
    of_suspects = {
        int(choice.positions[i]): (assessment.reasons[i], _finite(float(assessment.scores[i])))
        for i in np.flatnonzero(assessment.excluded).tolist()
    }
    kept = np.flatnonzero(~assessment.excluded)
    positions, factors = choice.positions[kept], assessment.factors[kept]
    reasons = {int(choice.positions[i]): assessment.reasons[i] for i in kept.tolist() if assessment.reasons[i]}
    drawn = None
    if (factors < 1.0).any():
        drawn = _Drawn(factors, assessment.median_factors[kept], assessment.median_step)
    return _Choice(positions, drawn, assessment.weight_shares[kept], choice.dropped | of_suspects, reasons)


def _check_any_left(choice: _Choice, assessment: Assessment | None) -> None:
    if len(choice.positions):
        return
    n, reasons = len(choice.dropped), _count_reasons(choice.dropped)
    if assessment is None:
        raise DataError(f"none of {n} updates can be used: {reasons}")
    # An unusable update shows that another client contributed too.
    error = OnlySuspectsError if n == len(assessment.excluded) else TooFewUpdatesError
    raise error(
        f"{n} updates, and each is of a suspected client ({reasons}); see foltr device quarantine, or choose another "
        "aggregation"
    )


def _chosen_rows(choice: _Choice, rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the chosen updates (n, d), changed; ``rows`` itself, without a copy, if all are used unchanged."""
    chosen, drawn = _used_rows(rows, choice.positions), choice.drawn
    if drawn is None:
        return chosen
    chosen = chosen * drawn.factors[:, None].astype(chosen.dtype)
    towards = np.flatnonzero(drawn.median_factors)
    if drawn.median_step is not None and len(towards):
        added = drawn.median_factors[towards, None] * drawn.median_step
        chosen[towards] += added.astype(chosen.dtype)
    return chosen


def _used_rows(rows: NDArray[np.floating], used: NDArray[np.intp]) -> NDArray[np.floating]:
    """Return the rows at these positions; ``rows`` itself, without a copy, if that is all."""
    return rows if len(used) == len(rows) else rows[used]


def _rule_of_round(spec: RuleSpec, assessment: Assessment | None, n: int) -> tuple[RuleSpec, str | None]:
    """Choose the rule for n updates; if it is the fallback, say why."""
    rule, reason = _rule_or_fallback(spec if assessment is None else assessment.rule, n)
    if assessment is None:
        return rule, reason
    if assessment.fallback_reason is not None and spec.fallback == ABANDON:
        raise TooFewUpdatesError(f"{assessment.fallback_reason}; no model is made, as aggregation_fallback says")
    return rule, reason or assessment.fallback_reason


def _rule_weights(
    spec: RuleSpec, rule: RuleSpec, weights: NDArray[np.float64], *, defended: bool
) -> NDArray[np.float64]:
    """Return the weights (n,) that the rule uses; a plain mean uses claimed interactions unchanged."""
    if rule.text != "mean":
        return capped_weights(weights, n_byzantine(rule, len(weights)))
    # Under the defence, a claim of many interactions must not be left to the evidence to catch.
    return capped_weights(weights, n_byzantine(spec, len(weights))) if defended else weights


def _result(
    rule: RuleSpec,
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    rng: np.random.Generator | None,
    with_shares: bool | None,
) -> RuleResult:
    if rule.text == "mean":
        return _plain_mean(rows, weights)
    shares_wanted = rows.size <= _SHARES_UP_TO if with_shares is None else with_shares
    return run_rule(rule, rows, weights, rng, with_shares=shares_wanted)


def _plain_mean(rows: NDArray[np.floating], weights: NDArray[np.float64]) -> RuleResult:
    """Return the mean, with the same bits as in a federation without a rule."""
    mean = RunningMean(rows.shape[1])
    for row, weight in zip(rows, weights.tolist(), strict=True):
        mean.add(row, weight)
    return RuleResult(mean.mean(), weights / weights.sum())


def _rule_or_fallback(spec: RuleSpec, n: int) -> tuple[RuleSpec, str | None]:
    """Return the rule for n updates and, if it is the fallback, why."""
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


def _fates(client_ids: Sequence[str], rule: RuleSpec, choice: _Choice, result: RuleResult) -> tuple[ClientFate, ...]:
    """Return each update's outcome, in order; empty for a mean of all, unchanged."""
    if rule.text == "mean" and not choice.dropped and not choice.shortened:
        return ()
    n = len(choice.positions)
    fates: dict[int, ClientFate] = {
        i: ClientFate(client_ids[i], Fate.DROPPED, 0.0, score, reason) for i, (reason, score) in choice.dropped.items()
    }
    shares = [None] * n if result.shares is None else result.shares.tolist()
    scores = [None] * n if result.scores is None else [_finite(x) for x in result.scores.tolist()]
    clipped = [False] * n if result.clipped is None else result.clipped.tolist()
    # Most updates are the median in no coordinate, and each has moved it all the same.
    drops = rule.rule != "median"
    for position, share, score, was_clipped in zip(choice.positions.tolist(), shares, scores, clipped, strict=True):
        fate, reason = Fate.KEPT, ""
        if drops and share == 0.0:
            fate, reason = Fate.DROPPED, _why_dropped(rule, score)
        elif was_clipped:
            fate, reason = Fate.CLIPPED, f"{score:.4g} long, clipped to {result.used['clip_norm']:.4g}"
        elif position in choice.shortened:
            fate, reason = Fate.CLIPPED, choice.shortened[position]
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
