"""The page docs/benchmarks.md, made from bench.py's results: every verdict follows from figures and bars."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bars import BARS, HISTORIES, LEARNERS, MEMORY, READING, ROUNDS, RULES, SECURE, START, UNLEARNING, JudgedBar, judge
from tables import distinct, number, table, table_of

Record = Mapping[str, Any]

BUSY = 0.1
"""Above this share of use by other processes a machine is not idle."""

_TOP = """# Benchmarks

This page shows how fast each part of foltr is, beside a comparable program (its **peer**) measured in the same run.
`make bench` measures everything and writes the page.

A **bar** is the figure we aim for (`research/benchmarks/bars.py`). A verdict compares the measured figure with its bar,
and a missed bar says where the time goes. Figures are medians. With a peer, trust the ratio ("x") more than
either time. Devices, broker, database and federator share one machine. n is the number of devices, clients or updates,
and d the number of weights in each update.
"""


Rows = Callable[[Any], Iterable[Mapping[str, Any]]]
"""Makes the rows of a table from a run's results."""


def _columns(titles: Mapping[str, str], part: str | None = None) -> Rows:
    """Return rows of a run with only these keys, under these titles; of one part of its results if it is named."""

    def rows(results: Any) -> Iterator[Mapping[str, Any]]:
        for one in results if isinstance(results, list) else results[part or "results"]:
            yield {title: one[key] for key, title in titles.items() if key in one}

    return rows


def _reading(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, key in (("foltr", "ours"), ("scikit-learn", "peer")):
        if one := results.get(key):
            above = (one["peak"] - one["before"]) / one["array"]
            yield {"reader": name, "seconds": one["seconds"], "memory, in arrays": above}


def _flower(results: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    names = {"legacy": "legacy gRPC", "deployment": "SuperLink and SuperNodes"}
    for one in results:
        row = {"Flower": names[one["kind"]], "n": one["n"], "round, ms": one["round_ms"]}
        yield {**row, "an update, ms": one["per_update_ms"]}


def _rules(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each rule with the times of the largest n, by number of weights."""
    lines = results["results"]
    most = [one for one in lines if one["n"] == max(line["n"] for line in lines)]
    titles = {"ours_ms": "ours", "limit_ms": "limit", "byzfl_ms": "byzfl", "flwr_ms": "Flower"}
    for rule in distinct(one["rule"] for one in most):
        row = {"rule": rule}
        for one in most:
            if one["rule"] == rule:
                row |= {f"d = {one['d']:,}: {title}": one.get(key) for key, title in titles.items()}
        yield row


def _secure_rounds(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for kind in ("trusted", "secure"):
        cpu = ", ".join(f"{name} {number(value)}" for name, value in results[kind]["cpu_ms"].items())
        yield {"round": kind, "median, s": results[kind]["median_s"], "processor time, ms": cpu}


def _answered(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    whiles = {"serving": "usual", "forgetting": "clients are forgotten", "retention": "old bodies are deleted"}
    for part, name in whiles.items():
        answered = results[part]["answered"]
        yield {"meanwhile": name, "median, ms": answered["median_ms"], "longest, ms": answered["most_ms"]}


def _peers_start(results: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in results:
        if "link_s" in one:
            yield {"Flower's SuperLink, s": one["link_s"], "its SuperNode, s": one["node_s"]}


SECTIONS: dict[str, tuple[str, Sequence[tuple[Sequence[str], Rows]]]] = {
    LEARNERS: (
        """
Interactions a second on one core. In each, a learner ranks a query of 120 documents with 136 features, shows 10, is
clicked and learns. The peer is `research/benchmarks/plain_pdgd.py`: PDGD and FPDGD as their papers describe them. The
bars of 50 and 12 times come from the published programs; that of FPDGD took 1.4 times as long as this peer.
""",
        [
            (
                ["learners"],
                _columns(
                    {"what": "learner", "ours_per_s": "ours, /s", "peer_per_s": "peer, /s", "ratio": "ratio"}, "rows"
                ),
            )
        ],
    ),
    READING: (
        """
The peer is scikit-learn's `load_svmlight_file` into a dense array, which does not normalise and checks less. Each
process also loads the machine code of our reader, and the first one on a machine makes it.
""",
        [(["reading"], _reading)],
    ),
    ROUNDS: (
        """
The time of a whole round over MQTT (QoS 1, d = 136), divided by its updates. Each update is made of a user's list and
clicks, signed, verified, stored with `synchronous=FULL` and receipted. All devices are in one process, so most of an
update's time is the device's processor time; rounds of two processes are shorter ([sizing.md](sizing.md#the-law)).
"Bare" sends the same bytes and an answer by paho and Mosquitto alone. Flower stores nothing and its clients sign
nothing; it runs by its legacy gRPC server and by its default, a SuperLink with SuperNodes.
""",
        [
            (
                ["rounds"],
                _columns(
                    {
                        "n": "n",
                        "variant": "variant",
                        "round_ms": "round, ms",
                        "per_update_ms": "an update, ms",
                        "bare_ms": "bare, ms",
                        "federator_cpu_ms": "federator CPU, ms",
                        "device_cpu_ms": "device CPU, ms",
                    }
                ),
            ),
            (["rounds-flower"], _flower),
        ],
    ),
    RULES: (
        """
Milliseconds of each aggregation rule on 1,000 float32 updates, a fifth of them hostile, on one core. The limit is the
shortest sequence of bare NumPy calls with the same result. A cell is empty if a peer (byzfl, Flower) does not have the
rule or needs minutes for it.
""",
        [(["aggregation"], _rules)],
    ),
    SECURE: (
        """
The arithmetic of a secure sum on one core, beside Flower's SecAgg+ without its network. SecAgg+ needs
no helpers and tolerates clients that vanish in the middle ([how long it takes](privacy.md#how-long-it-takes)). Then
norm proofs, and a whole secure round over MQTT beside a trusted one.
""",
        [
            (
                ["secure-sums"],
                _columns(
                    {
                        "clients": "n",
                        "dim": "d",
                        "helpers": "helpers",
                        "client_ms": "a client, ms",
                        "whole_ms": "whole, ms",
                        "flwr_client_ms": "SecAgg+: a client, ms",
                        "flwr_whole_ms": "whole SecAgg+, ms",
                    }
                ),
            ),
            (
                ["norm-proofs"],
                _columns(
                    {
                        "dim": "d",
                        "helpers": "helpers",
                        "client_ms": "a client's norm proof, ms",
                        "helper_ms": "a helper, ms",
                        "federator_ms": "the federator, ms",
                    }
                ),
            ),
            (["secure-round"], _secure_rounds),
        ],
    ),
    UNLEARNING: (
        """
Both bars compare two ways to make a model without a client that left, in the simulator: FedEraser, with every tenth
round and three of five interactions, and retraining. Over a network FedEraser also needs ten times
fewer rounds.
""",
        [],
    ),
    HISTORIES: (
        """
How long an update waits for its answer if the SQLite database has a million past updates of 300 clients. A hundred
devices send an update each round. `python research/benchmarks/histories.py` measures ten million updates, and
PostgreSQL ([history.md](history.md#how-long-it-takes)).
""",
        [(["histories"], _answered)],
    ),
    START: (
        "Each process is fresh; the system has read its files before. The peers:",
        [(["rounds-flower"], _peers_start)],
    ),
    MEMORY: (
        """
Peak resident memory in rounds of 1,000 clients. Beside the sum, which takes one vector, the federator holds messages
that have arrived and are not stored yet.
""",
        [
            (
                ["memory-mean", "memory-median"],
                _columns(
                    {"aggregation": "rule", "dim": "d", "federator_mb": "federator, MB", "broker_mb": "Mosquitto, MB"}
                ),
            )
        ],
    ),
}
"""By section: its description and tables, each the runs and how to make rows of the results of one."""


def page_of(records: Mapping[str, Record]) -> str:
    """Return the page. A record is the result of `bench.make_run`; a failed run has no results."""
    results = {name: record["results"] for name, record in records.items() if record["results"] is not None}
    judged = [judge(bar, results) for bar in BARS]
    parts = [_TOP, _machine_part(records), "## Bars", _summary(judged), table(_BARS_TITLES, map(_bar_line, judged))]
    for section, (introduction, tables) in SECTIONS.items():
        parts += [f"## {section}", introduction]
        for runs, rows in tables:
            lines = [row for run in runs if run in results for row in rows(results[run])]
            parts += [table_of(lines)] if lines else []
    parts += ["## Runs", _runs_part(records)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


_BARS_TITLES = ("part", "what", "measured", "bar", "verdict", "where the time goes")


def _bar_line(judged: JudgedBar) -> Sequence[str]:
    bar = judged.bar
    limit = f"{'≥' if bar.is_least else '≤'} {number(bar.limit)} {bar.unit}"
    figure = "" if judged.figure is None else f"{number(judged.figure)} {bar.unit}"
    return bar.section, bar.what, figure, limit, judged.verdict, judged.where


def _summary(judged: Sequence[JudgedBar]) -> str:
    n_met, n_missed = (sum(one.is_met is verdict for one in judged) for verdict in (True, False))
    n_open = len(judged) - n_met - n_missed
    return f"Of {len(judged)} bars {n_met} are met, {n_missed} are missed, {n_open} were not measured."


def _machine_part(records: Mapping[str, Record]) -> str:
    if not records:
        return "Nothing was measured yet."
    lines = machines_of(list(records.values()))
    if busy := [name for name, record in records.items() if record["busy"] > BUSY]:
        names = "any run" if len(busy) == len(records) else ", ".join(busy)
        lines.append(f"**The machine was not idle** before {names}: times are too long.")
    if failed := [name for name, record in records.items() if record["results"] is None]:
        lines.append(f"**Failed**: {', '.join(failed)}.")
    if not all(record["has_peers"] for record in records.values()):
        lines.append("Some runs had no peers, because their environment was missing (`make bench-peers`).")
    return "\n".join(lines)


def machines_of(records: Sequence[Record]) -> list[str]:
    """Return a line for each machine in the records."""
    return [
        f"Measured on {one['cores']} cores of {one['cpu']}, {one['memory_gb']} GB, {one['system']}."
        for one in distinct(record["machine"] for record in records)
    ]


def _runs_part(records: Mapping[str, Record]) -> str:
    """Return when and where the figures come from; `bench.RUNS` has the command of each run."""
    if not records:
        return ""
    commits = ", ".join(f"`{commit}`" for commit in distinct(record["commit"] for record in records.values()))
    days = ", ".join(distinct(record["began"] for record in records.values()))
    minutes = sum(record["seconds"] for record in records.values()) / 60
    versions = "\n".join(f"- {line}" for line in distinct(record["versions"] for record in records.values()))
    begun = f"{len(records)} runs took {minutes:.0f} minutes on {days}, at {commits}."
    return f"{begun} `research/benchmarks/bench.py` has their commands. Versions:\n\n{versions}"
