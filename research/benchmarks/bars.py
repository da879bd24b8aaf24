"""What is good enough, as data: each bar, the figure that it is held against, and where the time goes if it is missed.

A figure is a function of what the runs of bench.py wrote, by the run's name. A run that is missing, or has no such
line, leaves the bar unjudged. Times are of an idle machine with two cores, and ratios of peers in the same run.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from bar_figures import (
    CENTRAL,
    LINEAR,
    NEURAL,
    RULES_OVER_LIMIT,
    Results,
    above_array,
    grown,
    growth,
    imports,
    longest_transactions,
    of_product,
    of_profile,
    of_round,
    parts_of_sum,
    peers_beaten,
    rate,
    ratio,
    row,
    rules,
    secagg_ratio,
    secure,
    signed,
    slowest_beside_peers,
    worst_rules,
)


@dataclass(frozen=True)
class Bar:
    """A promise about a figure.

    Attributes:
        section: of the page.
        what: is measured, in words.
        limit: the figure is at most this, or at least if ``is_least``.
        unit: behind the figures; "x" is a ratio.
        figure: of the results; an error of looking it up where they do not have it.
        where: the time goes, in words with figures of the results; "" where nothing tells.
    """

    section: str
    what: str
    limit: float
    unit: str
    figure: Callable[[Results], float]
    is_least: bool = False
    where: Callable[[Results], str] = lambda _results: ""


@dataclass(frozen=True)
class Judged:
    """A bar and its figure; None where it was not measured."""

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
        """met, missed with the share of the limit that is lacking or too much, or not measured."""
        if self.figure is None:
            return "not measured"
        if self.is_met:
            return "met"
        excess = abs(self.figure / self.bar.limit - 1)
        if not self.bar.is_least and excess >= 1:
            return f"**missed**: {1 + excess:.1f} times the bar"
        # Rounded up: what is missed is never missed by nothing.
        return f"**missed** by {max(1, math.ceil(100 * excess - 1e-9))} %"


def judge(bar: Bar, results: Results) -> Judged:
    """Hold one bar against the results."""
    try:
        figure = bar.figure(results)
    except (KeyError, IndexError, StopIteration, ValueError):
        return Judged(bar, None, "")
    judged = Judged(bar, figure, "")
    return Judged(bar, figure, bar.where(results)) if judged.is_met is False else judged


LEARNERS, READING, ROUNDS, RULES, SECURE, UNLEARNING, HISTORIES, START, MEMORY = (
    "Learners",
    "Reading",
    "Rounds",
    "Rules",
    "Secure sums",
    "Unlearning",
    "Histories",
    "Start-up",
    "Memory",
)

BARS = (
    Bar(LEARNERS, "FPDGD, linear", 100_000, "/s", rate(LINEAR), True, of_product(LINEAR, "linear_product_us")),
    Bar(
        LEARNERS,
        "the same, times as fast as plain FPDGD",
        50,
        "x",
        ratio(LINEAR),
        True,
        of_product(LINEAR, "linear_product_us"),
    ),
    Bar(LEARNERS, "FPDGD, neural 64", 25_000, "/s", rate(NEURAL), True, of_product(NEURAL, "neural_product_us")),
    Bar(
        LEARNERS,
        "the same, times as fast as plain linear FPDGD",
        12,
        "x",
        ratio(NEURAL),
        True,
        of_product(NEURAL, "neural_product_us"),
    ),
    Bar(LEARNERS, "FOLtR-ES, linear", 50_000, "/s", rate("FOLtR-ES, linear"), True),
    Bar(
        LEARNERS,
        "PDGD, linear, one interaction a round",
        60_000,
        "/s",
        rate(CENTRAL),
        True,
        of_product(CENTRAL, "linear_product_us"),
    ),
    Bar(LEARNERS, "nDCG@10 of 200 queries", 1.3, "ms", lambda results: results["learners"]["ndcg"]["ours_ms"]),
    Bar(READING, "192 MB of LETOR text", 3.0, "s", lambda results: results["reading"]["ours"]["seconds"]),
    Bar(
        READING,
        "the same, times as fast as scikit-learn",
        1.0,
        "x",
        lambda results: results["reading"]["peer"]["seconds"] / results["reading"]["ours"]["seconds"],
        is_least=True,
    ),
    Bar(
        READING,
        "memory that reading takes, in arrays of what was read",
        2.0,
        "x",
        lambda results: above_array(results["reading"]["ours"]),
    ),
    Bar(
        READING,
        "the same file again, from the cache",
        50.0,
        "ms",
        lambda results: 1e3 * results["reading"]["ours"]["again"],
    ),
    Bar(
        ROUNDS,
        "an update of 100, signed and durable",
        0.5,
        "ms",
        lambda results: signed(results, 100)["per_update_ms"],
        where=of_round(100),
    ),
    Bar(
        ROUNDS,
        "an update of 1,000, signed and durable",
        0.5,
        "ms",
        lambda results: signed(results, 1000)["per_update_ms"],
        where=of_round(1000),
    ),
    Bar(
        ROUNDS,
        "the federator's processor time for one of 1,000",
        0.15,
        "ms",
        lambda results: signed(results, 1000)["federator_cpu_ms"],
        where=of_profile("federator"),
    ),
    Bar(
        ROUNDS,
        "a device's processor time for one of 1,000",
        0.4,
        "ms",
        lambda results: signed(results, 1000)["device_cpu_ms"],
        where=of_profile("devices"),
    ),
    Bar(
        ROUNDS,
        "what a signed round takes apart from its updates",
        6.0,
        "ms",
        lambda results: signed(results, 1000)["fixed_ms"],
        where=of_round(10),
    ),
    Bar(
        ROUNDS,
        "the time of an unsigned update of 100, in such times of Flower's legacy gRPC",
        1.0,
        "x",
        lambda results: (
            row(results, "rounds", n=100, variant="unsigned")["per_update_ms"]
            / row(results, "rounds-flower", kind="legacy", n=100)["per_update_ms"]
        ),
    ),
    Bar(
        RULES,
        "the slowest rule but Bulyan, 1,000 x 20,000, in times of bare NumPy",
        RULES_OVER_LIMIT,
        "x",
        lambda results: rules(results, 1000, 20000)[0][1],
        where=worst_rules,
    ),
    Bar(
        RULES,
        "Bulyan, 1,000 x 136, in times of bare NumPy",
        1.5,
        "x",
        lambda results: row(results, "aggregation", n=1000, d=136, rule="bulyan")["ratio"],
    ),
    Bar(
        RULES,
        "the rule in which a peer does best: its time, in ours",
        1.0,
        "x",
        peers_beaten,
        True,
        slowest_beside_peers,
    ),
    Bar(
        SECURE,
        "a sum of 50 clients, 20,000 weights, 5 helpers",
        200.0,
        "ms",
        lambda results: secure(results)["whole_ms"],
        where=parts_of_sum,
    ),
    Bar(
        SECURE,
        "a secure round over MQTT, in 1.5 trusted ones plus 0.5 s",
        1.0,
        "x",
        lambda results: (
            results["secure-round"]["secure"]["median_s"] / (1.5 * results["secure-round"]["trusted"]["median_s"] + 0.5)
        ),
        where=lambda results: (
            "processor time in ms: "
            + ", ".join(f"{name} {ms:.0f}" for name, ms in results["secure-round"]["secure"]["cpu_ms"].items())
        ),
    ),
    Bar(
        SECURE,
        "a sum of 1,000 clients, 20,000 weights, 5 helpers: the time of SecAgg+, in ours",
        1.0,
        "x",
        secagg_ratio,
        is_least=True,
    ),
    Bar(
        UNLEARNING,
        "times fewer local steps than retraining",
        16.6,
        "x",
        lambda results: results["unlearning"]["steps_ratio"],
        True,
    ),
    Bar(
        UNLEARNING,
        "times faster than retraining",
        16.6,
        "x",
        lambda results: results["unlearning"]["ratio"],
        True,
        lambda results: f"a local step takes {results['unlearning']['step_ratio']:.2f} times as long as in retraining",
    ),
    Bar(
        HISTORIES,
        "the longest wait of an update while clients are forgotten who were in every round",
        1000.0,
        "ms",
        lambda results: results["histories"]["forgetting"]["answered"]["most_ms"],
        where=longest_transactions("forgetting"),
    ),
    Bar(
        HISTORIES,
        "the same while the bodies of old rounds go",
        1000.0,
        "ms",
        lambda results: results["histories"]["retention"]["answered"]["most_ms"],
        where=longest_transactions("retention"),
    ),
    Bar(
        START,
        "from a federator's start to its first announcement",
        1.0,
        "s",
        lambda results: results["start-up"]["federator_s"],
        where=imports("federator_parts"),
    ),
    Bar(
        START,
        "import of a device",
        0.35,
        "s",
        lambda results: results["start-up"]["import_s"],
        where=imports("import_parts"),
    ),
    Bar(START, "foltr --help", 0.25, "s", lambda results: results["start-up"]["help_s"]),
    Bar(
        START,
        "a device's first list, with numba installed",
        20.0,
        "ms",
        lambda results: results["start-up"]["rank_ms"],
        where=lambda results: f"the second list takes {results['start-up']['again_ms']:.1f} ms",
    ),
    Bar(
        MEMORY,
        "what a round of 1,000 x 20,000 adds by the mean, in the size of its updates",
        0.5,
        "x",
        growth("mean"),
        where=grown("mean"),
    ),
    Bar(
        MEMORY,
        "what a round of 1,000 x 20,000 adds by the median, in the size of its updates",
        2.0,
        "x",
        growth("median"),
        where=grown("median"),
    ),
)
