"""Figures that bars are held against, and where the time goes, looked up in what the runs of bench.py wrote.

Each takes the results by the run's name, and raises the error of looking up what is not there.
"""

from collections.abc import Callable, Mapping
from typing import Any

Results = Mapping[str, Any]

RULES_OVER_LIMIT = 1.1
NEURAL, CENTRAL = "FPDGD, neural 64", "PDGD, linear, centralised, one interaction a round"
LINEAR = "FPDGD, linear, navigational"


def row(results: Results, run: str, **having: Any) -> Mapping[str, Any]:
    """Return the row of a run that has these values; StopIteration where there is none."""
    rows = results[run]
    rows = rows if isinstance(rows, list) else rows.get("rows") or rows["results"]
    return next(one for one in rows if all(one.get(key) == value for key, value in having.items()))


def signed(results: Results, n: int) -> Mapping[str, Any]:
    return row(results, "rounds", n=n, variant="signed")


def of_round(n: int) -> Callable[[Results], str]:
    def where(results: Results) -> str:
        line = signed(results, n)
        parts = {name: line[f"{name}_cpu_ms"] for name in ("federator", "device", "broker")}
        return "processor time of an update: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in parts.items())

    return where


def of_profile(process: str) -> Callable[[Results], str]:
    def where(results: Results) -> str:
        profile = results.get("rounds-profile", {}).get("profiles", {}).get(process, {"folders": []})
        return "in code of " + ", ".join(f"{owner(name)} {share:.0%}" for name, share in profile["folders"][:6])

    return where


def owner(folder: str) -> str:
    """Whose modules a profile has under this name: ours are called by their folder."""
    return _OTHERS.get(folder, folder)


# What profiled.py calls the modules of other packages, after the folder that they are in.
_OTHERS = {
    "bindings": "PyNaCl",
    "mqtt": "paho-mqtt",
    "_core": "NumPy",
    "python3.11": "Python's library",
    "<string> __create_fn__.<locals>.__init__": "dataclasses",
    "<string> <lambda>": "named tuples",
    "(other threads, while this one waits)": "other threads",
}


def rate(what: str) -> Callable[[Results], float]:
    return lambda results: row(results, "learners", what=what)["ours_per_s"]


def ratio(what: str) -> Callable[[Results], float]:
    return lambda results: row(results, "learners", what=what)["ratio"]


def of_product(what: str, product: str) -> Callable[[Results], str]:
    def where(results: Results) -> str:
        share = 1e-6 * results["learners"][product] * row(results, "learners", what=what)["ours_per_s"]
        return f"{share:.0%} of an interaction is scoring its 120 documents once"

    return where


def rules(results: Results, n: int, d: int) -> list[tuple[str, float]]:
    """By rule, how many times the limit's time; the worst first."""
    rows = [one for one in results["aggregation"]["results"] if (one["n"], one["d"]) == (n, d)]
    return sorted(((one["rule"], one["ratio"]) for one in rows if one["rule"] != "bulyan"), key=lambda pair: -pair[1])


def worst_rules(results: Results) -> str:
    over = [f"{rule} {ratio:.2f}" for rule, ratio in rules(results, 1000, 20000) if ratio > RULES_OVER_LIMIT]
    return "over it: " + ", ".join(over)


def peers_beaten(results: Results) -> float:
    """The least that a peer takes longer than ours, over rules and sizes."""
    ratios = [
        one[peer] / one["ours_ms"]
        for one in results["aggregation"]["results"]
        for peer in ("byzfl_ms", "flwr_ms")
        if peer in one
    ]
    return min(ratios)


def slowest_beside_peers(results: Results) -> str:
    slow = [
        f"{one['rule']} {one['n']} x {one['d']} beside {peer.removesuffix('_ms')} {one[peer] / one['ours_ms']:.2f}"
        for one in results["aggregation"]["results"]
        for peer in ("byzfl_ms", "flwr_ms")
        if peer in one and one[peer] < one["ours_ms"]
    ]
    return "faster than ours: " + ", ".join(slow)


def secure(results: Results) -> Mapping[str, Any]:
    return row(results, "secure-sums", clients=50, dim=20000, helpers=5)


def parts_of_sum(results: Results) -> str:
    line = secure(results)
    helpers = 50 * line["helpers"] * line["helper_ms_a_client"]
    return f"clients {50 * line['client_ms']:.0f} ms, helpers {helpers:.0f} ms, federator {line['federator_ms']:.0f} ms"


def growth(rule: str) -> Callable[[Results], float]:
    """Resident memory that 20,000 weights take more than 136 do, over what the updates of a round take together."""

    def figure(results: Results) -> float:
        rows = [row(results, f"memory-{rule}", dim=dim) for dim in (136, 20000)]
        return 1e6 * (rows[1]["federator_mb"] - rows[0]["federator_mb"]) / (4 * 20000 * rows[1]["n"])

    return figure


def grown(rule: str) -> Callable[[Results], str]:
    def where(results: Results) -> str:
        few, many = (row(results, f"memory-{rule}", dim=dim)["federator_mb"] for dim in (136, 20000))
        return f"{few:.0f} MB with 136 weights, {many:.0f} MB with 20,000"

    return where


def imports(of: str) -> Callable[[Results], str]:
    def where(results: Results) -> str:
        parts = results["start-up"][of]
        return "importing " + ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in parts.items())

    return where


def above_array(reading: Mapping[str, float]) -> float:
    return (reading["peak"] - reading["before"]) / reading["array"]


def secagg_ratio(results: Results) -> float:
    """How many times our time for a whole sum SecAgg+ takes, its clients one after the other like ours."""
    line = row(results, "secure-sums", clients=1000, dim=20000, helpers=5)
    return float(line["flwr_whole_ms"] / line["whole_ms"])


def longest_transactions(part: str) -> Callable[[Results], str]:
    """Which kinds of transactions took longest in a part of the benchmark of histories."""

    def where(results: Results) -> str:
        spent = {
            name: figures["most_ms"]
            for name, figures in results["histories"][part].items()
            if isinstance(figures, dict) and name not in ("usual", "answered")
        }
        longest = sorted(spent.items(), key=lambda one: -one[1])[:3]
        return "the longest transactions: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in longest)

    return where
