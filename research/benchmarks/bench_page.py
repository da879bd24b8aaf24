"""The page docs/benchmarks.md, made from bench.py's results: every verdict follows from figures and bars."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bars import BARS, HISTORIES, LEARNERS, MEMORY, READING, ROUNDS, RULES, SECURE, START, UNLEARNING, JudgedBar, judge
from tables import distinct, number, table, table_of

Record = Mapping[str, Any]

BUSY = 0.1
"""Above this share of use by other processes a machine is not idle."""

_TOP = """# Benchmarks

`make bench` measures every part beside its peer in the same run and writes this page; nobody edits it. A bar is what is
good enough (`research/benchmarks/bars.py`), and a verdict is computed from it and the figure: a figure in x is a
ratio, "in" something else is how many of that it is, and a missed bar says where the time goes. Figures are medians;
where a peer stands beside, the ratio says more than either time. Devices, broker, database and federator share the
machine. n is how many devices or clients there are, or updates of as many, and d how many weights each update has.
"""


Rows = Callable[[Any], Iterable[Mapping[str, Any]]]
"""Makes the rows of a table from a run's results."""


def _all(results: Any) -> Iterable[Mapping[str, Any]]:
    return results if isinstance(results, list) else results.get("rows") or results["results"]


def _one(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{key: value for key, value in results.items() if key != "machine"}]


def _named(*names: str) -> Rows:
    return lambda results: [{"": name, **results[name]} for name in names or results if name in results]


def _reading(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in filter(results.__contains__, ("ours", "peer")):
        one = dict(results[name])
        above = (one.pop("peak") - one.pop("before")) / one.pop("array")
        yield {"": name, **one, "peak_above_a_ready_process_in_arrays": above}


def _profiles(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for process, profile in results["profiles"].items():
        for (folder, of), (function, by) in zip(profile["folders"], profile["functions"], strict=False):
            yield {
                "": process,
                "code of": folder,
                "share": f"{of:.0%}",
                "function": f"`{function}`",
                "by it": f"{by:.0%}",
            }


def _answered(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for part in ("serving", "forgetting", "retention"):
        yield {"an update is answered while": part, **results[part]["answered"]}


SECTIONS: dict[str, tuple[str, Sequence[tuple[str, Rows]]]] = {
    LEARNERS: (
        """
Interactions a second on one core: a query of 120 documents with 136 features is ranked, 10 are shown, clicked and
learned from. The peer is `research/benchmarks/plain_pdgd.py`, PDGD and FPDGD as their papers write them down. It leaves
out what costs the published programs time beside the method, so it is rather faster than they are, by whom the bars of
50 and 12 times were set. Then nDCG@10 of 200 queries, where the peer goes query by query.
""",
        [("learners", _all), ("learners", lambda results: [results["ndcg"]])],
    ),
    READING: (
        """
The peer is scikit-learn's `load_svmlight_file` into a dense array, which normalises nothing and checks less. Loading
machine code costs each process time beside that, and making it once on a machine.
""",
        [("reading", _reading)],
    ),
    ROUNDS: (
        """
A whole round over MQTT with QoS 1, divided by its updates, d = 136: each is made of a user's list and clicks, signed,
verified, stored with `synchronous=FULL` and receipted. All devices are in one process, so that what one takes of the
processor is most of what an update takes by the clock. Beside it stand the same bytes and an answer by bare paho and
Mosquitto, and rounds of Flower, which stores nothing and whose clients sign nothing: by its legacy gRPC server, and by
the SuperLink with SuperNodes that it runs by default. Rounds of two processes of devices are shorter:
[growth.md](growth.md#the-law) has them. `fixed` is what a round takes apart from its updates, where the line over n
begins. The last table is where the processor time goes in signed rounds of 1,000: what a function calls in C is its
own, what it calls in Python is not; other threads are mostly the database's.
""",
        [("rounds", _all), ("rounds-flower", _all), ("rounds-profile", _profiles)],
    ),
    RULES: (
        """
The mean and robust rules on float32 updates with a fifth of them hostile, on one core. The limit is the shortest
sequence of bare NumPy calls with the same result. byzfl and Flower (`flwr`) are the peers; a cell is empty where they
have no such rule, or need minutes for it. Memory is in the size of the updates.
""",
        [("aggregation", _all)],
    ),
    SECURE: (
        """
The arithmetic of a secure sum on one core beside Flower's SecAgg+ (`flwr`) without its network, norm proofs, and a
whole secure round over MQTT beside a trusted one. They are not the same thing: SecAgg+ needs no helpers and goes on
when clients vanish in the middle ([how long it takes](privacy.md#how-long-it-takes)).
""",
        [("secure-sums", _all), ("norm-proofs", _all), ("secure-round", _named("trusted", "secure"))],
    ),
    UNLEARNING: (
        """
Making a model without a client that left, by FedEraser with every tenth round and three of five interactions, beside
retraining without it, in the simulator. Nothing is sent; over a network there are ten times fewer rounds, too.
""",
        [("unlearning", _one)],
    ),
    HISTORIES: (
        """
The database, on SQLite, has past rounds with an update of every client in each. A hundred devices send an update for
each round meanwhile. `python research/benchmarks/histories.py` does it with ten million updates, and on PostgreSQL:
[history.md](history.md#how-long-it-takes).
""",
        [("histories", _one), ("histories", _answered), ("histories", lambda results: _named()(results["queries"]))],
    ),
    START: (
        "Each process is a fresh one, and the system has read its files before.",
        [("start-up", _one), ("rounds-flower", lambda results: [row for row in results if "link_s" in row])],
    ),
    MEMORY: (
        """
Resident memory of the federator at its most, in rounds of 1,000 clients. Beside the sum, which takes one vector, it
holds messages that have arrived and are not stored yet.
""",
        [("memory-mean", _all), ("memory-median", _all)],
    ),
}
"""By section: its description and tables, each a run and how to make rows of its results."""


def page_of(records: Mapping[str, Record]) -> str:
    """Return the page. A record is the result of `bench.make_run`; a failed run has no results."""
    results = {name: record["results"] for name, record in records.items() if record["results"] is not None}
    judged = [judge(bar, results) for bar in BARS]
    parts = [_TOP, _machine_part(records), "## Bars", _summary(judged), table(_BARS_TITLES, map(_bar_line, judged))]
    for section, (introduction, tables) in SECTIONS.items():
        parts += [f"## {section}", introduction]
        parts += [table_of(rows(results[run])) for run, rows in tables if run in results]
    parts += ["## Runs", _runs_part(records)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


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
        lines.append("Peers that need an environment of their own (`make bench-peers`) were not there for all runs.")
    return "\n".join(lines)


def machines_of(records: Sequence[Record]) -> list[str]:
    """Return a line for each machine in the records."""
    return [
        f"Measured on {one['cores']} cores of {one['cpu']}, {one['memory_gb']} GB, {one['system']}."
        for one in distinct(record["machine"] for record in records)
    ]


def _runs_part(records: Mapping[str, Record]) -> str:
    if not records:
        return ""
    rows = [
        {
            "run": name,
            "what `research/benchmarks/` has for it": f"`{record['command']}`",
            "on": record["began"],
            "commit": f"`{record['commit']}`",
            "took": f"{record['seconds']:.0f} s",
            "processors in use before": f"{record['busy']:.0%}",
        }
        for name, record in records.items()
    ]
    total = sum(record["seconds"] for record in records.values()) / 60
    versions = "\n".join(f"- {line}" for line in distinct(record["versions"] for record in records.values()))
    return f"{table_of(rows)}\n\nTogether {total:.0f} minutes. Versions:\n\n{versions}"
