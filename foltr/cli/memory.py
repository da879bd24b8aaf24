"""How a process that runs for long keeps its memory together."""

import ctypes
import os
import sys
from typing import Final

_M_ARENA_MAX: Final = -8  # of glibc's malloc.h
# By these whoever runs a process says it, and is not contradicted.
_SAID_BY: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


def share_one_heap() -> bool:
    """Let all threads have their memory from one heap; before there is another thread.

    glibc gives new threads heaps of their own, each of which keeps for itself what was freed in it. Large updates are
    unpacked in one thread and stored in another, so what a batch of them takes was there several times. Threads of
    Python hardly ever ask for memory at the same moment.

    Returns:
        Whether it was done: it is another system's business, or was said by the environment, otherwise.
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in _SAID_BY):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_ARENA_MAX, 1) == 1
