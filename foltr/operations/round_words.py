"""Sentences on how a round was decided: its rule, its votes, and how its lists performed. Pure functions."""

from collections.abc import Iterator
from json import loads

from foltr.storage.history_records import RoundAggregationRow, RoundHistoryRow


def round_in_words(row: RoundHistoryRow, made: RoundAggregationRow | None) -> Iterator[str]:
    """Describe the aggregation rule of a round, its votes, and how its lists performed."""
    if made is not None:
        yield rule_in_words(row.aggregation, made)
    if row.anchor_version not in {None, row.base_version}:
        votes = _votes_in_words(row)
        yield f"Votes on model {row.base_version} against model {row.anchor_version}, the anchor: {votes}"
    if row.reward is not None:
        yield _evaluation_in_words(row)


def _votes_in_words(row: RoundHistoryRow) -> str:
    if row.tally_worse is None:
        return f"{row.n_worse} worse, {row.n_none} none, {row.n_better} better"
    worse, better = round(row.tally_worse), round(row.tally_better or 0.0)
    found = f"about {worse} worse and {better} better of {row.tally_n_updates} updates"
    return f"{found}, with noise of standard deviation {row.tally_deviation:.1f} in each"


def _evaluation_in_words(row: RoundHistoryRow) -> str:
    """Compare the ranker's clicks in a round with the base order's."""
    noise = "" if row.evaluation_deviation is None else f", each with noise of deviation {row.evaluation_deviation:.3f}"
    found = f"reward {row.reward:.3f}, {row.base_reward:.3f} in the base order, {row.clicked:.1%} of lists clicked"
    return f"By {row.n_evaluations} updates: {found}{noise}"


def rule_in_words(configured: str, made: RoundAggregationRow) -> str:
    """Describe the rule that aggregated a round, its parameters, and why another was not used."""
    if configured == "adaptive" and made.rule == "mean":
        n_counted = made.n_kept + made.n_clipped
        if n_counted + made.n_dropped == made.n_kept:
            return f"adaptive: mean of all {made.n_kept}, nobody left out or shortened"
        n = n_counted + made.n_dropped
        return f"adaptive: mean of {n_counted} of {n}, {made.n_dropped} left out, {made.n_clipped} shortened"
    values = loads(made.parameters)
    parameters = ", ".join(f"{name} = {value:g}" for name, value in values.items() if value is not None)
    shown = f"Aggregated by {made.rule}" + (f" ({parameters})" if parameters else "")
    counts = f"{made.n_kept} kept, {made.n_clipped} shortened, {made.n_dropped} left out"
    because = "" if made.fallback_reason is None else f" Fallback: {made.fallback_reason}."
    return f"{shown}: {counts}.{because}"
