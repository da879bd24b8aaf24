"""numba's cache of machine code, with a key that covers kernels of several files.

numba drops a cached kernel when its own file changes. But the kernels it calls are compiled into it, so a change of
another file would leave the old machine code in use. And processes that start together, like those of a sweep, would
all compile what one of them could compile for all. Imported only if numba is installed, at the first compilation.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache

_LONGEST_WAIT_S = 60.0
"""How long to wait for another process to compile a kernel before compiling it here: it may have been stopped."""
_POLL_S = 0.02


class KernelCache(FunctionCache):
    """The cache of one kernel, which one process at a time fills.

    Args:
        function: the plain function.
        digest: of all sources of its machine code; entries with another digest are never loaded.
    """

    _lock: int | None = None

    def __init__(self, function: Callable[..., Any], digest: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba ships no types
        self._digest = digest

    def compiling(self, compile_one: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the dispatcher's ``compile``, which uses this cache, and releases the cache when it ends."""

        def compile_and_release(sig: Any) -> Any:
            try:
                return compile_one(sig)
            finally:
                self._release()

        return compile_and_release

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the cached code for a signature; None if this process should compile it while others wait."""
        # numba's compiler lock is held here, so only one thread of each process waits.
        kept = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if kept is None and self._lock is None:
            self._acquire()
            kept = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return kept

    def _acquire(self) -> None:
        give_up_at = time.monotonic() + _LONGEST_WAIT_S
        # A folder that cannot hold a lock file cannot hold a cache either.
        with contextlib.suppress(OSError):
            self._impl.locator.ensure_cache_path()
            path = Path(self._cache_path) / f"{self._impl.filename_base}.lock"
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            while time.monotonic() < give_up_at:
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(_POLL_S)
                else:
                    break

    def _release(self) -> None:
        # Several threads may come here at once, outside numba's lock: one of them releases the lock.
        lock = vars(self).pop("_lock", None)
        if lock is not None:
            os.close(lock)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        key: tuple[Any, ...] = super()._index_key(sig, codegen)  # type: ignore[no-untyped-call]
        return (*key, self._digest)
