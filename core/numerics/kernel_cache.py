"""numba's cache of machine code, with a key that covers kernels of several files.

numba throws a cached kernel away when the file it is written in changes. What it calls is compiled into it, so a
change of another file would leave the old machine code in use. Processes that start together, as those of a sweep,
would each compile what one of them could for all. Imported only where numba is installed, at the first compilation.
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
"""After so long a kernel is compiled here all the same: whoever compiles it may have been stopped."""
_POLL_S = 0.02


class KernelCache(FunctionCache):
    """The cache of one kernel, which one process at a time fills.

    Args:
        function: the plain function.
        digest: of all sources its machine code is made of; entries made with another are never loaded.
    """

    _lock: int | None = None

    def __init__(self, function: Callable[..., Any], digest: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba ships no types
        self._digest = digest

    def compiling(self, compile_one: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the dispatcher's ``compile``, which asks this cache, with the cache let go of when it ends."""

        def compile_and_release(sig: Any) -> Any:
            try:
                return compile_one(sig)
            finally:
                self._release()

        return compile_and_release

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is kept for a signature; None where this process is to compile it, and others wait for that."""
        # numba's lock on its compiler is held here: of one process, one thread.
        kept = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if kept is None and self._lock is None:
            self._acquire()
            kept = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return kept

    def _acquire(self) -> None:
        give_up_at = time.monotonic() + _LONGEST_WAIT_S
        # Without a folder that takes a lock's file, nothing is kept there either.
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
        # Several threads may come here at once, outside numba's lock: one of them takes it.
        lock = vars(self).pop("_lock", None)
        if lock is not None:
            os.close(lock)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        key: tuple[Any, ...] = super()._index_key(sig, codegen)  # type: ignore[no-untyped-call]
        return (*key, self._digest)
