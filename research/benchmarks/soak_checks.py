"""Checks after a soak: no stuck round, nothing lost, nothing counted twice, no growing memory."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.states import RoundState
from foltr.storage.database import Database
from foltr.storage.history_records import ClientHistoryRow, RoundHistoryRow
from foltr.storage.models import list_models
from foltr.storage.queries import list_contributions, list_rounds
from foltr.storage.records import ModelRow

_N_BLOCKS = 40
_Z_95 = 1.96


@dataclass(frozen=True)
class Slope:
    """Megabytes (10^6) an hour, with the bounds of a 95 % confidence interval."""

    mb_per_hour: float
    low: float
    high: float
    hours: float

    def __str__(self) -> str:
        return f"{self.mb_per_hour:+.2f} MB/hour [{self.low:+.2f}, {self.high:+.2f}]"

    @property
    def growth_mb(self) -> float:
        """The growth that is certain over the observed time."""
        return self.low * self.hours


def theil_sen(times: NDArray[np.float64], megabytes: NDArray[np.float64]) -> Slope:
    """Return the median slope between any two points, with Sen's (1968) interval from the variance of Kendall's tau.

    The first third of the time is warm-up and dropped. Neighbouring samples of memory are almost equal, which would
    make the interval far too narrow, so the points are medians of 40 blocks.
    """
    late = times >= times[0] + (times[-1] - times[0]) / 3
    blocks = min(_N_BLOCKS, int(late.sum()))
    hours = np.array([np.median(block) for block in np.array_split(times[late], blocks)]) / 3600
    values = np.array([np.median(block) for block in np.array_split(megabytes[late], blocks)])
    i, j = np.triu_indices(blocks, k=1)
    slopes = np.sort((values[j] - values[i]) / (hours[j] - hours[i]))
    spread = _Z_95 * math.sqrt(blocks * (blocks - 1) * (2 * blocks + 5) / 18)
    low = max(0, math.floor((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2))
    return Slope(float(np.median(slopes)), float(slopes[low]), float(slopes[high]), float(hours[-1] - hours[0]))


@dataclass(frozen=True)
class History:
    """The database's record of the federation."""

    rounds: list[RoundHistoryRow]
    models: list[ModelRow]
    contributions: list[ClientHistoryRow]


async def load_history(db_url: str, federation: str) -> History:
    async with await Database.connect(db_url) as database:
        return History(
            await list_rounds(database, federation, limit=10**6),
            await list_models(database, federation, limit=10**6),
            await list_contributions(database, federation),
        )


def check_rounds(history: History, stopped_at: datetime, slack_s: float = 5.0) -> list[str]:
    """Check that every round ended by its deadline, and that the open one had not missed it."""
    failures = []
    for i, row in enumerate(history.rounds, start=1):
        lasted = ((row.closed_at or stopped_at) - row.opened_at).total_seconds()
        if row.round != i:
            failures.append(f"round {i} is missing")
        if lasted > row.max_time_s + slack_s:
            failures.append(f"round {row.round} lasted {lasted:.1f} s ({row.state}); its deadline is {row.max_time_s}")
        if row.closed_at is None and i < len(history.rounds):
            failures.append(f"round {row.round} is {row.state} although others followed")
    if not any(row.state is RoundState.COMPLETED for row in history.rounds):
        failures.append("no round was completed")
    return failures


def check_receipts(
    history: History, accepted: Mapping[tuple[str, str], int], counted: set[tuple[str, str]]
) -> list[str]:
    """Check that the federator's receipts agree with its stored updates.

    Args:
        accepted: (client_id, update_id) to the number of ``accepted`` receipts.
        counted: those with a ``duplicate`` receipt, which says that they are stored.
    """
    stored = Counter((row.client_id, row.update_id) for row in history.contributions)
    findings = {
        "receipted accepted but not stored": accepted.keys() - stored.keys(),
        "receipted duplicate but not stored": counted - stored.keys(),
        "stored but never receipted accepted": stored.keys() - accepted.keys(),
        "stored more than once": {update for update, n in stored.items() if n > 1},
        "receipted accepted more than once": {update for update, n in accepted.items() if n > 1},
    }
    return [f"{len(found)} updates {what}, e.g. {min(found)}" for what, found in findings.items() if found]


def check_models(history: History, n_columns: int) -> list[str]:
    """Check that every model is its base plus the mean of the stored updates, each with a 1 in its client's column."""
    weights = {model.version: unpack_vector(model.weights).astype(np.float64) for model in history.models}
    expected: dict[int, NDArray[np.float64]] = {}
    for row in history.contributions:
        column = int(row.client_id.rpartition("-")[2]) % n_columns
        expected.setdefault(row.round, np.zeros(n_columns))[column] += 1
    failures = []
    for row in history.rounds:
        if row.state is not RoundState.COMPLETED or row.model_version is None:
            continue
        counts = expected.get(row.round, np.zeros(n_columns))
        change = (weights[row.model_version] - weights[row.base_version]) * counts.sum()
        wrong = np.flatnonzero(np.abs(change - counts) > 0.1)
        if len(wrong):
            i = int(wrong[0])
            failures.append(
                f"round {row.round}: column {i} counts {change[i]:.2f} times in the model, {counts[i]:.0f} are stored"
            )
    return failures


def longest_round_s(history: History, stopped_at: datetime) -> float:
    return max(((row.closed_at or stopped_at) - row.opened_at).total_seconds() for row in history.rounds)


def now() -> datetime:
    return datetime.now(UTC)
