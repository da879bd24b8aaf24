"""Synchronous and asynchronous rounds on a small generated log: ``python research/benchmarks/late_updates.py``.

The table of research/results/late_updates.md: of each way to make rounds the models made, how stale their updates
were, the share of shown lists that counted, and MRR@20 at the end of the log, with the difference to the synchronous
run. Means over seeds, each of a log and a run; intervals are 95 % by Student's t over paired differences.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import foltr_research as fr
from foltr_research.reproductions.claims import difference_of

HOUR, DAY = 3_600.0, 86_400.0
MONTH = 30 * DAY
INTERACTIONS = 4
SYNCHRONOUS = "synchronous: in lockstep"


def of_day(days: float, **more: Any) -> dict[str, Any]:
    """Rounds of a fixed length, in which only updates of the round's model count."""
    return {"pacing": "deadline", "min_clients": 1, "min_time_s": days * DAY, "max_time_s": days * DAY, **more}


def buffer(size: int, **more: Any) -> dict[str, Any]:
    return {"min_clients": size, "max_time_s": MONTH, **more}


ROWS: Mapping[str, Mapping[str, Any]] = {
    SYNCHRONOUS: {"min_clients": 1},
    "deadline: a day": of_day(1),
    "deadline: a week": of_day(7),
    "deadline: a day, devices relearn": of_day(1, relearns=True),
    "buffer of 1": buffer(1),
    "buffer of 10": buffer(10),
    "buffer of 50": buffer(50),
    "buffer of 10, all weigh 1": buffer(10, staleness_exponent=0.0),
    "buffer of 10, weight 1 / (1 + s)": buffer(10, staleness_exponent=1.0),
    "buffer of 10, at most 2 models behind": buffer(10, staleness_limit=2),
    "buffer of 10, devices relearn": buffer(10, relearns=True),
    "buffer of 10, an hour on the way": buffer(10, delay_s=HOUR),
    "buffer of 10, a day on the way": buffer(10, delay_s=DAY),
    "buffer of 10, deadline 6 hours": buffer(10, max_time_s=6 * HOUR),
}


class KeptLog:
    """A generated log in memory, for many replays."""

    def __init__(self, log: fr.SyntheticLog) -> None:
        self.n_features, self.test, self._queries = log.n_features, log.test, list(log)

    def __iter__(self) -> Iterator[fr.LoggedQuery]:
        return iter(self._queries)


def replayed(row: str, log: KeptLog, seed: int) -> fr.Replay:
    """Replay a log with the settings of a row."""
    settings = {"interactions": INTERACTIONS, "metrics": "mrr@20", "eval_every": 1_000_000, "seed": seed}
    return fr.replay(fr.Lockstep(log, INTERACTIONS) if row == SYNCHRONOUS else log, **settings, **ROWS[row])


def table(rows: Sequence[str], users: int, share: float, seeds: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table. The first row must be the synchronous one."""
    yield "| rounds | models | staleness | lists counted | MRR@20 | difference |"
    yield "|---|---|---|---|---|---|"
    synchronous = np.empty(0)
    logs = {seed: KeptLog(fr.SyntheticLog(users=users, share=share, seed=seed)) for seed in seeds}
    for row in rows:
        runs = [replayed(row, log, seed) for seed, log in logs.items()]
        quality = np.array([run.points[-1].means["mrr@20"] for run in runs])
        difference = ""
        if row == SYNCHRONOUS:
            synchronous = quality
        else:
            found = difference_of(quality - synchronous)
            difference = f"{found.mean:+.3f} ± {found.margin():.3f}"
        models, staleness, counted = (
            float(np.mean(values))
            for values in (
                [run.points[-1].round for run in runs],
                [run.mean_staleness for run in runs],
                [run.lists_counted / run.lists_shown for run in runs],
            )
        )
        yield f"| {row} | {models:.0f} | {staleness:.1f} | {counted:.0%} | {quality.mean():.3f} | {difference} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--share", type=float, default=0.2, help="of the queries that a user of AOL4FOLTR has")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    for line in table(list(ROWS), given.users, given.share, range(1, given.seeds + 1)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
