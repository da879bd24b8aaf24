"""A sizing sheet follows from its constants: what grows with the fleet, what does not, and what does not go."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.completed_process import completed

BENCHMARKS = Path(__file__).parents[3] / "research/benchmarks"


@pytest.fixture
def sizing(benchmark_module) -> ModuleType:
    return benchmark_module("sizing")


def constants(sizing: ModuleType, **changed: float) -> Any:
    """Round numbers, near to what was measured."""
    names = sizing.Constants.__dataclass_fields__
    known = dict.fromkeys(names, 0.0) | {
        "broker_delivery_ms": 0.01, "broker_byte_ms": 1e-6, "broker_connect_ms": 1.0,
        "broker_connect_ms_per_connection": 1e-3, "broker_visit_ms": 2.0,
        "broker_ping_ms": 0.003, "heard_messages": 2.0, "heard_bytes": 600.0, "heard_bytes_per_weight": 4.0,
        "federator_visit_ms": 1.0, "federator_update_ms": 0.3, "stored_bytes": 400.0, "stored_bytes_per_weight": 4.0,
    }  # fmt: skip
    return sizing.Constants(**known | changed)


def test_announcements_grow_with_connected_devices(sizing: ModuleType) -> None:
    """A message costs something, and each of its bytes; heartbeats and keepalives are there without any round."""
    known = constants(sizing)
    sheet = sizing.connected_sheet(sizing.Plan(100_000, dim=100, updates=500, every_s=600), known)
    assert sheet.sent_bytes == pytest.approx(100_000 * 1000)
    assert sheet.announcing_s == pytest.approx(100_000 * (2 * 0.01 + 1000 * 1e-6) / 1000)
    idle = 100_000 * (0.01 + sizing.HEARTBEAT_BYTES * 1e-6 + 0.003) / 30 / 1000
    assert sheet.broker_share == pytest.approx(idle + sheet.announcing_s / 600)
    # The more have subscribed, the longer it takes: with the square of the fleet.
    assert sheet.return_s == pytest.approx(100_000 * (1 + 100_000 * 1e-3) / 1000)


def test_a_fleet_that_takes_turns_costs_what_its_rounds_do(sizing: ModuleType) -> None:
    """Ten times the devices come a tenth as often, up to once a day; fewer devices than updates are all in a round."""
    known = constants(sizing)
    small, large, huge = (
        sizing.paced_sheet(sizing.Plan(n, updates=500, every_s=600), known) for n in (5_000, 50_000, 5_000_000)
    )
    assert small.period_s == pytest.approx(6_000)
    assert large.period_s == pytest.approx(60_000)
    assert small.visits_per_s == large.visits_per_s == pytest.approx(500 / 600)
    assert small.broker_share == pytest.approx(large.broker_share)
    assert large.every_s == pytest.approx(600)
    assert huge.period_s == 86_400
    assert huge.every_s == pytest.approx(500 / (5_000_000 / 86_400))
    known = constants(sizing)
    plan = sizing.Plan(100, dim=100, updates=500, every_s=600)
    for sheet in (sizing.connected_sheet(plan, known), sizing.paced_sheet(plan, known)):
        assert sheet.stored_bytes_per_day == pytest.approx(800 * 100 * 144)


def test_what_does_not_go_is_said(sizing: ModuleType) -> None:
    """Nothing of a small fleet; of a large one that a core is busy, that memory may fill, that rounds are too long."""
    known = constants(sizing)

    def words(*plan: float) -> str:
        return " ".join(sizing.advice(sizing.Plan(*plan), known))

    assert words(1000, 136, 500, 600) == ""
    assert "more than half busy; have devices take turns" in words(2_000_000, 136, 500, 600)
    assert "memory_limit" in words(100_000, 20_000, 500, 600)
    assert "longer than the round may" in words(1_000_000, 20_000, 500, 60)
    assert "ingest workers" in words(100_000_000, 136, 500, 600)


def test_the_program_prints_a_sheet(sizing: ModuleType, tmp_path: Path) -> None:
    """By constants from a file; numbers that are none are refused."""
    file = tmp_path / "growth.json"
    file.write_text(json.dumps({"constants": vars(constants(sizing))}))
    command = [sys.executable, str(BENCHMARKS / "sizing.py"), "--constants", str(file), "--devices"]
    printed = completed([*command, "2000000"], check=True).stdout
    assert re.search(r"\| a device visits every \|  \| 24 h \|", printed)
    assert "have devices take turns" in printed
    refused = completed([*command, "0"])
    assert refused.returncode == 2
    assert "above 0" in refused.stderr
