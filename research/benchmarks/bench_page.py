"""The page docs/benchmarks.md, from what bench.py's runs wrote: every verdict follows from figures and bars."""

from collections.abc import Mapping, Sequence
from typing import Any

from bars import (
    BARS,
    HISTORIES,
    LEARNERS,
    MEMORY,
    READING,
    ROUNDS,
    RULES,
    SECURE,
    START,
    UNLEARNING,
    Judged,
    judge,
)
from page_figures import FIGURES
from page_text import distinct, number, table

Record = Mapping[str, Any]

_BUSY = 0.1
"""A machine whose processors are used more than that by others is not idle."""

_TOP = """# Benchmarks

`make bench` measures every part beside its peer in the same run and writes this page; nobody edits it. A bar is what is
good enough (`research/benchmarks/bars.py`), and a verdict is computed from it and the figure: a figure in x is a
ratio, "in" something else is how many of that it is, and a missed bar says where the time goes. Figures are medians;
where a peer stands beside, the ratio says more than either time. Devices, broker, database and federator share the
machine. n is how many devices or clients there are, or updates of as many, and d how many weights each update has.
"""

_INTRODUCTIONS = {
    LEARNERS: """
Interactions a second on one core: a query of 120 documents with 136 features is ranked, 10 are shown, clicked and
learned from. The peer is `research/benchmarks/plain_pdgd.py`, PDGD and FPDGD as their papers write them down. It leaves
out what costs the published programs time beside the method, so it is rather faster than they are, by whom the bars of
50 and 12 times were set.
""",
    READING: """
The peer is scikit-learn's `load_svmlight_file` into a dense array, which normalises nothing and checks less.
""",
    ROUNDS: """
A whole round over MQTT with QoS 1, divided by its updates, d = 136: each is made of a user's list and clicks, signed,
verified, stored with `synchronous=FULL` and receipted. All devices are in one process, so that what one takes of the
processor is most of what an update takes by the clock. Beside it stand the same bytes and an answer by bare paho and
Mosquitto, and rounds of Flower, which stores nothing and whose clients sign nothing: by its legacy gRPC server, and by
the SuperLink with SuperNodes that it runs by default. Rounds of two processes of devices are shorter:
[growth.md](growth.md#the-law) has them.
""",
    RULES: """
The mean and robust rules on float32 updates with a fifth of them hostile, on one core. The limit is the shortest
sequence of bare NumPy calls with the same result. byzfl and Flower are the peers; a cell is empty where they have no
such rule, or need minutes for it.
""",
    SECURE: """
The arithmetic of a secure sum on one core beside Flower's SecAgg+ without its network, and a whole secure round over
MQTT beside a trusted one.
""",
    UNLEARNING: """
Making a model without a client that left, by FedEraser with every tenth round and three of five interactions, beside
retraining without it, in the simulator.
""",
    HISTORIES: """
The database, on SQLite, has past rounds with an update of every client in each. A hundred devices send an update for
each round meanwhile. `python research/benchmarks/histories.py` does it with ten million updates, and on PostgreSQL:
[history.md](history.md#how-long-it-takes).
""",
    START: """
Each process is a fresh one, and the system has read its files before.
""",
    MEMORY: """
Resident memory of the federator at its most, in rounds of 1,000 clients. Beside the sum, which takes one vector, it
holds messages that have arrived and are not stored yet.
""",
}


def page_of(records: Mapping[str, Record]) -> str:
    """Return the page; a record is what `bench.make_run` wrote, and a run that failed has no results."""
    results = {name: record["results"] for name, record in records.items() if record["results"] is not None}
    judged = [judge(bar, results) for bar in BARS]
    parts = [_TOP, _machine_part(records), "## Bars", _summary(judged), table(_BARS_TITLES, map(_bar_line, judged))]
    for section, introduction in _INTRODUCTIONS.items():
        parts += [f"## {section}", introduction, *FIGURES[section](results)]
    parts += ["## Runs", _runs_part(records)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


_BARS_TITLES = ("part", "what", "measured", "bar", "verdict", "where the time goes")


def _bar_line(judged: Judged) -> Sequence[str]:
    bar = judged.bar
    limit = f"{'≥' if bar.is_least else '≤'} {number(bar.limit)} {bar.unit}"
    figure = "" if judged.figure is None else f"{number(judged.figure)} {bar.unit}"
    return bar.section, bar.what, figure, limit, judged.verdict, judged.where


def _summary(judged: Sequence[Judged]) -> str:
    n_met, n_missed = (sum(one.is_met is verdict for one in judged) for verdict in (True, False))
    n_open = len(judged) - n_met - n_missed
    return f"Of {len(judged)} bars {n_met} are met, {n_missed} are missed, {n_open} were not measured."


def _machine_part(records: Mapping[str, Record]) -> str:
    if not records:
        return "Nothing was measured yet."
    lines = [
        f"Measured on {machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, {machine['system']}."
        for machine in distinct(record["machine"] for record in records.values())
    ]
    busy = [name for name, record in records.items() if record["busy"] > _BUSY]
    if busy:
        names = "any run" if len(busy) == len(records) else ", ".join(busy)
        lines.append(f"**The machine was not idle** before {names}: times are too long.")
    failed = [name for name, record in records.items() if record["results"] is None]
    if failed:
        lines.append(f"**Failed**: {', '.join(failed)}.")
    if not all(record["has_peers"] for record in records.values()):
        lines.append("Peers that need an environment of their own (`make bench-peers`) were not there for all runs.")
    return "\n".join(lines)


def _runs_part(records: Mapping[str, Record]) -> str:
    rows = [
        (
            name,
            f"`{record['command']}`",
            record["began"],
            f"`{record['commit']}`",
            f"{record['seconds']:.0f} s",
            f"{record['busy']:.0%}",
        )
        for name, record in records.items()
    ]
    total = sum(record["seconds"] for record in records.values()) / 60
    versions = distinct(record["versions"] for record in records.values())
    titles = ("run", "what `benchmarks/` has for it", "on", "commit", "took", "processors in use before")
    lists = "\n".join(f"- {line}" for line in versions)
    return "\n\n".join([table(titles, rows), f"Together {total:.0f} minutes. Versions:", lists] if rows else [])
