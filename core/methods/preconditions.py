"""Whether a round can have as many updates as the federation's rule needs, and what to do if it cannot.

A rule that no round could follow is refused at start: otherwise an operator would rely on its protection.
"""

from dataclasses import replace

from foltr.core.aggregation.rule_spec import RuleSpec, least_clients, shortfall

LEAST_FOR_ADAPTIVE = 4
"""Fewer clients cannot be compared: such a round uses the mean, and a federation without larger ones has no defence."""

_MOST_CLIENTS = 100_000


def rule_problem(rule: RuleSpec, n: int) -> str | None:
    """Return why the rule is useless in a federation whose rounds have up to n updates; None if it is not."""
    if rule.rule == "adaptive" and n < LEAST_FOR_ADAPTIVE:
        return f"adaptive needs at least {LEAST_FOR_ADAPTIVE} updates to compare clients, and there are {n}"
    return shortfall(rule, n)


def least_updates(rule: RuleSpec) -> int:
    """Return the fewest updates with which the rule works."""
    return LEAST_FOR_ADAPTIVE if rule.rule == "adaptive" else least_clients(rule)


def remedies(rule: RuleSpec, n: int, raising: str) -> str:
    """Return what would help if n updates are too few: more clients, fewer hostile ones, or another rule.

    Args:
        raising: how to get more clients, e.g. "raise max_clients".
    """
    # Not the smallest: a share of the clients is rounded up, so that six may be too few although five are enough.
    enough = next((size for size in range(n + 1, _MOST_CLIENTS) if rule_problem(rule, size) is None), None)
    tolerated = next((m for m in range(n, 0, -1) if rule_problem(replace(rule, byzantine=float(m)), n) is None), None)
    ways = [] if enough is None else [f"{raising} to {enough}"]
    ways += [] if tolerated is None else [f"lower byzantine to {tolerated}"]
    return ", ".join([*ways, "or choose another aggregation"])
