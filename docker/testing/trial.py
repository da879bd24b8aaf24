"""Tests docker/compose.yaml: twenty devices learn, become five, then the same twenty, and then use workers."""

import time
from collections.abc import Iterator
from pathlib import Path

from learning import ndcg_of_model
from stack import PATIENCE_S, PROJECT, Stack, StackError, wait_until
from watching import look_at

TRIAL = "foltr-trial"
N_DEVICES = 20
N_FEWER = 5
N_WORKERS = 2
LEARN_WITHIN_S = 60.0
GOOD_NDCG = 0.6
"""On these data zeros have nDCG 0.23, a model of the first round about 0.5, after long training 0.9."""


def try_out(compose: Path) -> Iterator[str]:
    """Yield lines that describe the results. Raises StackError for a wrong one."""
    # With no least time twenty devices made seven rounds a second and left no processor for checks.
    stack = Stack(compose, PROJECT / "docker/compose.yaml", TRIAL, {"FOLTR_MIN_TIME_S": "1"})
    with stack.tried():
        yield from _look(stack)


def _look(stack: Stack) -> Iterator[str]:
    stack.once("setup")
    stack.up("mosquitto", "postgres")
    stack.wait_healthy("mosquitto", "postgres")
    stack.up("federator")
    stack.up("edge-client", scale={"edge-client": N_DEVICES})
    yield f"compose.yaml is up with {N_DEVICES} devices"
    yield learned(stack)
    stack.wait_healthy("federator", "edge-client")
    yield "the health checks of the federator and of all devices pass"
    yield look_at(stack, "federator")

    devices = stack.containers("edge-client")
    stack.remove_containers(devices[N_FEWER:])
    wait_for_updates(stack, N_FEWER)
    stack.up("edge-client", scale={"edge-client": N_DEVICES})
    wait_for_updates(stack, N_DEVICES)
    names = stack.query("SELECT client_id FROM clients ORDER BY client_id")
    if len(names) != N_DEVICES:
        raise StackError(f"{N_DEVICES} devices, stopped and started again, have {len(names)} names: {names}")
    yield f"scaled down to {N_FEWER} and up again: they are the same {N_DEVICES} devices"
    yield by_workers(stack)


def by_workers(stack: Stack) -> str:
    """Continue with a leader, which stores no updates, and two ingest workers. StackError if no update counts."""
    stack.remove_containers(stack.containers("federator"))
    stack.set(FOLTR_ROLE="leader")
    stack.up("federator")
    stack.wait_healthy("federator")
    stack.up("ingest", scale={"ingest": N_WORKERS})
    stack.wait_healthy("ingest")
    took = wait_for_updates(stack, N_DEVICES)
    ((n_workers,),) = stack.query("SELECT count(*) FROM ingest_workers")
    if int(n_workers) != N_WORKERS:
        raise StackError(f"{n_workers} workers are there, not {N_WORKERS}")
    return f"{N_WORKERS} ingest workers took updates of all {N_DEVICES} devices within {took:.0f} s"


def learned(stack: Stack) -> str:
    """Return how soon the devices have trained a good model. Raises StackError if it takes too long."""
    began = time.monotonic()
    wait_for_updates(stack, N_DEVICES, LEARN_WITHIN_S)
    left_s = LEARN_WITHIN_S - (time.monotonic() - began)
    wait_until(f"nDCG@10 of {GOOD_NDCG}", lambda: ndcg_of_model(stack) >= GOOD_NDCG, left_s, every_s=1.0)
    seconds = time.monotonic() - began
    return (
        f"{N_DEVICES} devices have learned {seconds:.0f} s after the last one started: nDCG@10 "
        f"{ndcg_of_model(stack, 0):.2f} at first, {ndcg_of_model(stack):.2f} after {len(completed(stack))} rounds"
    )


def wait_for_updates(stack: Stack, n_devices: int, timeout_s: float = PATIENCE_S) -> float:
    """Wait until completed rounds that open from now on have updates of so many devices. Return the seconds it took.

    Over several rounds: a round ends after its least time, and on a busy machine some devices come too late for it.
    """
    open_round = max(completed(stack), default=0) + 1
    rows = "SELECT DISTINCT round, client_id FROM client_history WHERE round_state = 'completed'"

    def devices() -> set[str]:
        return {client_id for number, client_id in stack.query(rows) if int(number) > open_round}

    what = f"updates of {n_devices} devices after round {open_round}"
    return wait_until(what, lambda: len(devices()) == n_devices, timeout_s)


def completed(stack: Stack) -> dict[int, int]:
    """Return the number of updates of each completed round, from PostgreSQL."""
    rows = stack.query("SELECT round, n_updates FROM round_history WHERE state = 'completed' ORDER BY round")
    return {int(number): int(n_updates) for number, n_updates in rows}


def after(rounds: dict[int, int], number: int) -> dict[int, int]:
    return {key: n_updates for key, n_updates in rounds.items() if key > number}
