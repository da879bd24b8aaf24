"""How far something is: beside the spinner of a terminal, else in a line on standard error; and what ends it."""

import asyncio
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.text import Text

from foltr.cli.output import errors

LINE_EVERY_S = 10.0


def stop_on_signal(stop: Callable[[], object]) -> None:
    """Have SIGTERM and Ctrl-C call this in the running event loop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


@contextmanager
def telling(text: str = "", *, after_s: float = 0.0, changes: bool = False) -> Iterator[Callable[[str], None]]:
    """Give a function to tell how far something is.

    Args:
        text: shown on a terminal from the beginning.
        after_s: what ends within so many seconds prints nothing.
        changes: without a terminal, print another text at once; else a line every 10 seconds.
    """
    began = time.monotonic()
    told, told_at = "", -math.inf
    status = errors.status(text)
    if text:
        status.start()

    def tell(text: str) -> None:
        nonlocal told, told_at
        now = time.monotonic()
        if now - began < after_s:
            return
        if errors.is_terminal:
            status.update(Text(text))
            status.start()
        elif (changes and text != told) or now >= told_at + LINE_EVERY_S:
            told, told_at = text, now
            errors.print(text, markup=False, highlight=False, soft_wrap=True)

    try:
        yield tell
    finally:
        status.stop()
