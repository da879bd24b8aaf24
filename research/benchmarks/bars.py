"""The performance targets as data: each bar, its figure, and where the time goes if it is missed.

A figure is a function of the results that bench.py wrote, by the run's name. If a run or a line is missing, the bar is
not judged. Times assume an idle machine with two cores; ratios compare with peers in the same run.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tables import number

Results = Mapping[str, Any]
Figure = Callable[[Results], float]
Where = Callable[[Results], str]

LEARNERS, READING, ROUNDS, RULES, SECURE = "Learners", "Reading", "Rounds", "Rules", "Secure sums"
UNLEARNING, HISTORIES, START, MEMORY = "Unlearning", "Histories", "Start-up", "Memory"
_PEERS = {"byzfl": "byzfl_ms", "Flower": "flwr_ms"}


@dataclass(frozen=True)
class Bar:
    """A promise about a figure.

    Attributes:
        section: of the page.
        what: describes the measurement.
        limit: upper limit of the figure, or lower if ``is_least``.
        unit: behind the figures; "x" is a ratio.
        figure: computes it from the results; raises a lookup error if they lack it.
        where: explains the time with figures of the results; "" without an explanation.
    """

    section: str
    what: str
    limit: float
    unit: str
    figure: Figure
    is_least: bool = False
    where: Where = lambda _results: ""


@dataclass(frozen=True)
class JudgedBar:
    """A bar and its figure; None if it was not measured."""

    bar: Bar
    figure: float | None
    where: str

    @property
    def is_met(self) -> bool | None:
        if self.figure is None:
            return None
        return self.figure >= self.bar.limit if self.bar.is_least else self.figure <= self.bar.limit

    @property
    def verdict(self) -> str:
        """met, missed with the excess as a share of the limit, or not measured."""
        if self.figure is None:
            return "not measured"
        if self.is_met:
            return "met"
        excess = abs(self.figure / self.bar.limit - 1)
        if not self.bar.is_least and excess >= 1:
            return f"**missed**: {1 + excess:.1f} times the bar"
        # Rounded up, so a miss never shows as 0.
        return f"**missed** by {max(1, math.ceil(100 * excess - 1e-9))} %"


def judge(bar: Bar, results: Results) -> JudgedBar:
    """Hold one bar against the results."""
    try:
        figure = bar.figure(results)
    except (KeyError, IndexError, StopIteration, ValueError):
        return JudgedBar(bar, None, "")
    judged = JudgedBar(bar, figure, "")
    return JudgedBar(bar, figure, bar.where(results)) if judged.is_met is False else judged


# --- figures --------------------------------------------------------------------------------------------------


def at(run: str, *path: str, times: float = 1.0) -> Figure:
    """Return the figure at these keys of a run's results, times a factor."""

    def figure(results: Results) -> float:
        found = results[run]
        for key in path:
            found = found[key]
        return times * float(found)

    return figure


def row(run: str, key: str, **having: Any) -> Figure:
    """Return the figure ``key`` of the row of a run that has these values."""

    def figure(results: Results) -> float:
        rows = results[run]
        rows = rows if isinstance(rows, list) else rows.get("rows") or rows["results"]
        line = next(one for one in rows if all(one.get(name) == value for name, value in having.items()))
        return float(line[key])

    return figure


def ratio(above: Figure, below: Figure) -> Figure:
    return lambda results: above(results) / below(results)


def _signed(n: int, key: str) -> Figure:
    return row("rounds", key, n=n, variant="signed")


def _sum_of(clients: int, key: str) -> Figure:
    return row("secure-sums", key, clients=clients, dim=20000, helpers=5)


def _above_array(results: Results) -> float:
    """Return the peak memory of reading above that of a ready process, relative to the data's size."""
    ours = results["reading"]["ours"]
    return float((ours["peak"] - ours["before"]) / ours["array"])


def _rules(results: Results) -> list[tuple[str, float]]:
    """Return, for 1,000 x 20,000 and each rule except Bulyan, the time relative to the limit, the worst first."""
    rows = [one for one in results["aggregation"]["results"] if (one["n"], one["d"]) == (1000, 20000)]
    return sorted(((one["rule"], one["ratio"]) for one in rows if one["rule"] != "bulyan"), key=lambda pair: -pair[1])


def _beside_peers(results: Results) -> list[tuple[float, str]]:
    """Return the peers' times relative to ours over rules, sizes and peers, with their names, the least first."""
    rows = results["aggregation"]["results"]
    return sorted(
        (one[key] / one["ours_ms"], f"{one['rule']} {one['n']} x {one['d']} beside {peer}")
        for one in rows
        for peer, key in _PEERS.items()
        if key in one
    )


def _growth(rule: str) -> Figure:
    """Return the additional resident memory of 20,000 weights over 136, relative to a round's updates."""

    def figure(results: Results) -> float:
        # No generator: it would turn a missing line's StopIteration into a RuntimeError.
        few, many = [row(f"memory-{rule}", "federator_mb", dim=dim)(results) for dim in (136, 20000)]
        return 1e6 * (many - few) / (4 * 20000 * row(f"memory-{rule}", "n", dim=20000)(results))

    return figure


# --- where the time goes --------------------------------------------------------------------------------------


def listed(pairs: Iterable[tuple[str, float]], unit: str) -> str:
    return ", ".join(f"{name} {number(value)}{unit}" for name, value in pairs)


def _of_product(what: str, product: str) -> Where:
    def where(results: Results) -> str:
        share = 1e-6 * at("learners", product)(results) * row("learners", "ours_per_s", what=what)(results)
        return f"a whole product of 120 documents takes {share:.0%} as long"

    return where


def _of_round(n: int) -> Where:
    names = ("federator", "device", "broker")
    return lambda results: (
        "processor time for an update: "
        + listed(((name, _signed(n, f"{name}_cpu_ms")(results)) for name in names), " ms")
    )


def _of_profile(process: str) -> Where:
    def where(results: Results) -> str:
        profile = results.get("rounds-profile", {}).get("profiles", {}).get(process, {"folders": []})
        return "processor time by code: " + listed(
            ((name, 100 * share) for name, share in profile["folders"][:6]), " %"
        )

    return where


def _parts_of_sum(results: Results) -> str:
    client, helper, federator = (
        _sum_of(50, key)(results) for key in ("client_ms", "helper_ms_a_client", "federator_ms")
    )
    return listed((("clients", 50 * client), ("helpers", 50 * 5 * helper), ("federator", federator)), " ms")


def _imports(of: str) -> Where:
    return lambda results: (
        "importing " + listed(((name, 1e3 * s) for name, s in results["start-up"][of].items()), " ms")
    )


def _longest_transactions(part: str) -> Where:
    """Describe the kinds of transactions that took longest in a part of the benchmark of histories."""

    def where(results: Results) -> str:
        spent = [
            (name, figures["most_ms"])
            for name, figures in results["histories"][part].items()
            if isinstance(figures, dict) and name not in ("usual", "answered")
        ]
        return "the longest transactions: " + listed(sorted(spent, key=lambda one: -one[1])[:3], " ms")

    return where


_RULES_OVER_LIMIT = 1.1
_NEURAL, _CENTRAL = "FPDGD, neural 64", "PDGD, linear, centralised, one interaction a round"
_LINEAR = "FPDGD, linear, navigational"
_LINEAR_PRODUCT, _NEURAL_PRODUCT = _of_product(_LINEAR, "linear_product_us"), _of_product(_NEURAL, "neural_product_us")
_CENTRAL_PRODUCT = _of_product(_CENTRAL, "linear_product_us")
_SECURE_S, _TRUSTED_S = at("secure-round", "secure", "median_s"), at("secure-round", "trusted", "median_s")


def _rate(what: str, key: str = "ours_per_s") -> Figure:
    return row("learners", key, what=what)


BARS = (
    Bar(LEARNERS, "FPDGD, linear", 100_000, "/s", _rate(_LINEAR), True, _LINEAR_PRODUCT),
    Bar(
        LEARNERS,
        "FPDGD, linear: speed relative to plain FPDGD",
        50,
        "x",
        _rate(_LINEAR, "ratio"),
        True,
        _LINEAR_PRODUCT,
    ),
    Bar(LEARNERS, "FPDGD, neural 64", 25_000, "/s", _rate(_NEURAL), True, _NEURAL_PRODUCT),
    Bar(
        *(LEARNERS, "FPDGD, neural 64: speed relative to plain linear FPDGD", 12, "x"),
        *(_rate(_NEURAL, "ratio"), True, _NEURAL_PRODUCT),
    ),
    Bar(LEARNERS, "FOLtR-ES, linear", 50_000, "/s", _rate("FOLtR-ES, linear"), True),
    Bar(LEARNERS, "PDGD, linear, one interaction a round", 60_000, "/s", _rate(_CENTRAL), True, _CENTRAL_PRODUCT),
    Bar(LEARNERS, "nDCG@10 of 200 queries", 1.3, "ms", at("learners", "ndcg", "ours_ms")),
    Bar(READING, "192 MB of LETOR text", 3, "s", at("reading", "ours", "seconds")),
    Bar(
        *(READING, "the same: speed relative to scikit-learn", 1, "x"),
        *(ratio(at("reading", "peer", "seconds"), at("reading", "ours", "seconds")), True),
    ),
    Bar(READING, "memory for reading, in arrays of what was read", 2, "x", _above_array),
    Bar(READING, "the same file again, from the cache", 50, "ms", at("reading", "ours", "again", times=1e3)),
    Bar(
        *(ROUNDS, "a signed, durable update, n = 100", 0.5, "ms"),
        *(_signed(100, "per_update_ms"), False, _of_round(100)),
    ),
    Bar(
        *(ROUNDS, "a signed, durable update, n = 1,000", 0.5, "ms"),
        *(_signed(1000, "per_update_ms"), False, _of_round(1000)),
    ),
    Bar(
        *(ROUNDS, "the federator's processor time for one, n = 1,000", 0.15, "ms"),
        *(_signed(1000, "federator_cpu_ms"), False, _of_profile("federator")),
    ),
    Bar(
        *(ROUNDS, "a device's processor time for one, n = 1,000", 0.4, "ms"),
        *(_signed(1000, "device_cpu_ms"), False, _of_profile("devices")),
    ),
    Bar(
        *(ROUNDS, "a signed round without its updates", 6, "ms"),
        *(_signed(1000, "fixed_ms"), False, _of_round(10)),
    ),
    Bar(
        *(ROUNDS, "an unsigned update, n = 100, in updates of Flower's legacy gRPC", 1, "x"),
        ratio(
            row("rounds", "per_update_ms", n=100, variant="unsigned"),
            row("rounds-flower", "per_update_ms", kind="legacy", n=100),
        ),
    ),
    Bar(
        *(RULES, "the slowest rule except Bulyan, 1,000 x 20,000, in times of bare NumPy", _RULES_OVER_LIMIT, "x"),
        *(lambda results: _rules(results)[0][1], False),
        lambda results: "over the bar: " + listed((one for one in _rules(results) if one[1] > _RULES_OVER_LIMIT), ""),
    ),
    Bar(
        *(RULES, "Bulyan, 1,000 x 136, in times of bare NumPy", 1.5, "x"),
        row("aggregation", "ratio", n=1000, d=136, rule="bulyan"),
    ),
    Bar(
        *(RULES, "a peer's time relative to ours, in its best rule", 1, "x"),
        *(lambda results: _beside_peers(results)[0][0], True),
        lambda results: (
            "faster than ours: " + listed(((name, one) for one, name in _beside_peers(results) if one < 1), "")
        ),
    ),
    Bar(
        *(SECURE, "a sum of 50 clients, 20,000 weights, 5 helpers", 200, "ms"),
        *(_sum_of(50, "whole_ms"), False, _parts_of_sum),
    ),
    Bar(
        *(SECURE, "a secure round over MQTT, relative to 1.5 trusted ones plus 0.5 s", 1, "x"),
        *(lambda results: _SECURE_S(results) / (1.5 * _TRUSTED_S(results) + 0.5), False),
        lambda results: "processor time: " + listed(results["secure-round"]["secure"]["cpu_ms"].items(), " ms"),
    ),
    Bar(
        *(SECURE, "SecAgg+'s sum of 1,000 clients, 20,000 weights, in our sums with 5 helpers", 1, "x"),
        *(ratio(_sum_of(1000, "flwr_whole_ms"), _sum_of(1000, "whole_ms")), True),
    ),
    Bar(UNLEARNING, "times fewer local steps than retraining", 16.6, "x", at("unlearning", "steps_ratio"), True),
    Bar(
        *(UNLEARNING, "times faster than retraining", 16.6, "x", at("unlearning", "ratio"), True),
        lambda results: f"a local step takes {at('unlearning', 'step_ratio')(results):.2f} times that of retraining",
    ),
    Bar(
        *(HISTORIES, "the longest wait of an update while clients of every round are forgotten", 1000, "ms"),
        *(at("histories", "forgetting", "answered", "most_ms"), False, _longest_transactions("forgetting")),
    ),
    Bar(
        *(HISTORIES, "the same while the bodies of old rounds are deleted", 1000, "ms"),
        *(at("histories", "retention", "answered", "most_ms"), False, _longest_transactions("retention")),
    ),
    Bar(
        *(START, "a federator, until its first announcement", 1, "s"),
        *(at("start-up", "federator_s"), False, _imports("federator_parts")),
    ),
    Bar(START, "importing a device", 0.35, "s", at("start-up", "import_s"), False, _imports("import_parts")),
    Bar(START, "foltr --help", 0.25, "s", at("start-up", "help_s")),
    Bar(START, "a device's first list, with numba installed", 20, "ms", at("start-up", "rank_ms")),
    Bar(
        *(MEMORY, "added by a round of 1,000 x 20,000, mean, in the size of its updates", 0.5, "x"),
        _growth("mean"),
    ),
    Bar(
        *(MEMORY, "added by a round of 1,000 x 20,000, median, in the size of its updates", 2, "x"),
        _growth("median"),
    ),
)
