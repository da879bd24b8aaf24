"""The cache of compiled kernels, which one process at a time fills."""

import os

import pytest

pytest.importorskip("numba", reason="only numba compiles kernels")

from foltr.core.numerics.kernel_cache import KernelCache


def test_threads_that_let_go_at_once_close_the_lock_once(monkeypatch, tmp_path):
    """A second close would fail, or close what another thread has just opened under the same number."""
    cache = KernelCache(test_threads_that_let_go_at_once_close_the_lock_once, "digest")
    cache._lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)  # noqa: SLF001 (as if this process compiled)
    closed, close = [], os.close

    def meanwhile(descriptor):
        closed.append(descriptor)
        if len(closed) == 1:
            cache._release()  # noqa: SLF001 (another thread, at the worst moment)
        close(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", meanwhile)
        cache._release()  # noqa: SLF001
    assert len(closed) == 1
