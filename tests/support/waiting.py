"""How tests wait: for something that happens, with one limit that only a hang reaches."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

# Far beyond what a busy machine needs for anything a test waits for. A test that reaches it has found a hang.
PATIENCE_S = 240.0


async def until(condition: Callable[[], bool | Awaitable[bool]], otherwise: str = "it did not come true") -> None:
    """Wait until ``condition`` holds; where it never does, the test fails with ``otherwise``."""
    give_up_at = time.monotonic() + PATIENCE_S  # clock: patience
    while True:
        holds = condition()
        # A condition that asks a database takes a processor from those that the test waits for.
        pause_s = 0.01 if isinstance(holds, bool) else 0.05
        if not isinstance(holds, bool):
            holds = await holds
        if holds:
            return
        if time.monotonic() > give_up_at:  # clock: patience
            pytest.fail(otherwise)
        await asyncio.sleep(pause_s)


def wait_until(condition: Callable[[], bool], otherwise: str = "it did not come true") -> None:
    """As `until`, for tests without an event loop."""
    give_up_at = time.monotonic() + PATIENCE_S  # clock: patience
    while not condition():
        if time.monotonic() > give_up_at:  # clock: patience
            pytest.fail(otherwise)
        time.sleep(0.02)
