"""Progress reports, as a spinner on a terminal or lines on standard error, and handling of signals."""

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
    """Call ``stop`` in the running event loop on SIGTERM and Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


@contextmanager
def progress_reporter(
    text: str = "", *, after_s: float = 0.0, changes: bool = False
) -> Iterator[Callable[[str], None]]:
    """Yield a function that reports progress.

    Args:
        text: shown on a terminal from the beginning.
        after_s: print nothing if the block ends within so many seconds.
        changes: without a terminal, print each new text at once; else one line every 10 seconds.
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
