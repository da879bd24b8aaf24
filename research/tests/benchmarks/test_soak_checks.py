"""The soak's checks find what they are for: a lost update, a double count, a stuck round, growing memory."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.states import RoundState
from foltr.storage.history_records import ClientHistoryRow, RoundHistoryRow
from foltr.storage.records import ModelRow

START = datetime(2026, 1, 1, tzinfo=UTC)


def row(of: type, **known: object) -> object:
    """A row of which nothing else matters."""
    return of(**{field.name: None for field in fields(of)} | {"federation": "f"} | known)


def round_row(number: int, lasted_s: float | None = 3.0) -> object:
    opened_at = START + timedelta(seconds=10 * number)
    closed = lasted_s is not None
    closed_at = opened_at + timedelta(seconds=lasted_s) if closed else None
    state = RoundState.COMPLETED if closed else RoundState.COLLECTING
    times = {"opened_at": opened_at, "closed_at": closed_at, "duration_s": lasted_s, "max_time_s": 20.0}
    made = number if closed else None
    return row(RoundHistoryRow, round=number, state=state, base_version=number - 1, model_version=made, **times)


def contribution(client: int, number: int) -> object:
    of = {"client_id": f"device-{client:05d}", "update_id": f"{client}-{number}", "n_interactions": 1}
    of |= {"round_state": RoundState.COMPLETED, "model_version": number, "base_version": number - 1}
    return row(ClientHistoryRow, round=number, received_at=START, **of)


def model(version: int, weights: list[float]) -> ModelRow:
    return ModelRow("f", version, version - 1, version, 3, pack_vector(weights), bytes(16), START, START)


@pytest.fixture
def checks(benchmark_module):
    return benchmark_module("soak_checks")


@pytest.fixture
def history(checks):
    """Two completed rounds and an open one; devices 0 and 1, then 4, in the column of 1, and 2."""
    return checks.History(
        rounds=[round_row(1), round_row(2), round_row(3, None)],
        models=[model(0, [0, 0, 0]), model(1, [0.5, 0.5, 0]), model(2, [0.5, 1.0, 0.5])],
        contributions=[contribution(0, 1), contribution(1, 1), contribution(4, 2), contribution(2, 2)],
    )


def accepted(history) -> dict[tuple[str, str], int]:
    return {(row.client_id, row.update_id): 1 for row in history.contributions}


def test_a_good_history_passes(checks, history):
    """Nothing is found where nothing is wrong."""
    assert checks.check_rounds(history, START + timedelta(seconds=35)) == []
    assert checks.check_receipts(history, accepted(history), set()) == []
    assert checks.check_models(history, 3) == []


@pytest.mark.parametrize("weights", [[0.5, 0.5, 0.5], [0.5, 1.5, 0.5], [1.0, 1.0, 0.5]])
def test_a_model_that_lost_or_doubled_an_update_is_found(checks, history, weights):
    """An update is missing from the second model, is in it twice, or one is in it that is not stored."""
    wrong = replace(history, models=[*history.models[:2], model(2, weights)])
    (failure,) = checks.check_models(wrong, 3)
    assert failure.startswith("round 2:")


def test_what_was_told_and_what_is_stored_must_be_the_same(checks, history):
    """Lost, never told, stored twice, told twice: each is named."""
    told = accepted(history)
    first, *_ = told
    assert "receipted accepted but not stored" in checks.check_receipts(history, {**told, ("x", "y"): 1}, set())[0]
    assert "receipted duplicate but not stored" in checks.check_receipts(history, told, {("x", "y")})[0]
    assert "receipted accepted more than once" in checks.check_receipts(history, {**told, first: 2}, set())[0]
    fewer = {update: 1 for update in told if update != first}
    assert "stored but never receipted accepted" in checks.check_receipts(history, fewer, set())[0]
    twice = replace(history, contributions=[*history.contributions, history.contributions[0]])
    assert "stored more than once" in checks.check_receipts(twice, told, set())[0]


def test_a_stuck_round_is_found(checks, history):
    """Open or closed, it lasted longer than its deadline and the slack."""
    (failure,) = checks.check_rounds(history, START + timedelta(seconds=30 + 26))
    assert failure.startswith("round 3 lasted 26.0 s")
    stuck = replace(history, rounds=[round_row(1, 25.5), round_row(2)])
    (failure,) = checks.check_rounds(stuck, START)
    assert failure.startswith("round 1 lasted 25.5 s")
    (failure,) = checks.check_rounds(replace(history, rounds=[round_row(2)]), START)
    assert failure == "round 1 is missing"


def test_the_slope_of_memory_is_that_after_the_warm_up(checks, rng):
    """A steep first third is left out; noise and single jumps do not hide a slope of 30 MB an hour."""
    times = np.arange(0, 1200, 2.0)
    megabytes = 100 + np.where(times < 400, times / 10, 40 + (times - 400) * 30 / 3600) + rng.normal(0, 0.2, len(times))
    megabytes[500] += 50
    slope = checks.theil_sen(times, megabytes)
    assert slope.low < slope.mb_per_hour < slope.high
    assert slope.mb_per_hour == pytest.approx(30, abs=3)
    assert slope.growth_mb == pytest.approx(slope.low * slope.hours)
    flat = checks.theil_sen(times, np.full(len(times), 80.0))
    assert (flat.low, flat.mb_per_hour, flat.high) == (0.0, 0.0, 0.0)
