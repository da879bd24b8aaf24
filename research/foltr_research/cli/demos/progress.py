"""Progress of a demonstration: beside a terminal's spinner, else in lines."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from foltr.cli.output import console

T = TypeVar("T")

_POLL_S = 0.2
LINE_S = 1.5
"""Interval of progress lines without a terminal."""


async def wait_until(holds: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
    """Wait until the condition holds, at most ``timeout_s``. A failure shows in later checks."""
    for _ in range(math.ceil(timeout_s / _POLL_S)):
        if await holds():
            return
        await asyncio.sleep(_POLL_S)


async def watch(work: Coroutine[Any, Any, T], words: Callable[[], Awaitable[str]]) -> T:
    """Return the result of ``work``. Show progress meanwhile."""
    task, text, said, said_at = asyncio.create_task(work), "", "", -math.inf
    try:
        with console.status("") as status:
            while not task.done():
                text = await words()
                status.update(text)
                if not console.is_terminal and time.monotonic() >= said_at + LINE_S:
                    said, said_at = text, time.monotonic()
                    say(text)
                await asyncio.wait({task}, timeout=_POLL_S)
        if not console.is_terminal and (text := await words()) != said:
            say(text)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return task.result()


def always(words: str) -> Callable[[], Awaitable[str]]:
    async def say() -> str:
        return words

    return say


def say(text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
