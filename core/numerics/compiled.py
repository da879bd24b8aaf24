"""One source for every numeric loop: plain NumPy on a device, machine code if numba is installed.

A device install has no numba (its compiler is larger than everything else a device needs), and importing numba takes
longer than the whole device agent may. So `compiled` decides by looking for the package without importing it, and
compiles at the first call. numba then caches compiled code on disk, keyed by the source of the kernel and of every
kernel it calls.

If somebody waits for a single call, e.g. in an application's thread, even loading machine code takes too long: under
`plain_functions` a thread calls the plain functions, as if numba were not installed.

For loops that would be too slow without numba, two sources give the same numbers, and a test checks that: a loop, and a
function on whole arrays (`compiled_instead_of`).
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from foltr.core.logs import get_logger

P = ParamSpec("P")
R = TypeVar("R")
log = get_logger(__name__)

# numba takes matrix products from scipy's BLAS and has none without it. NUMBA_DISABLE_JIT is numba's own switch;
# honouring it here keeps numba from being imported at all.
COMPILED: bool = all(importlib.util.find_spec(name) for name in ("numba", "scipy")) and os.environ.get(
    "NUMBA_DISABLE_JIT"
) in (None, "", "0")
"""Whether kernels run as machine code in this process."""


class _Form(threading.local):
    """The form in which this thread calls kernels."""

    plain = False


_form = _Form()


@contextlib.contextmanager
def plain_functions() -> Iterator[None]:
    """Let this thread call kernels as plain functions: numba is neither loaded nor used."""
    before, _form.plain = _form.plain, True
    try:
        yield
    finally:
        _form.plain = before


def calls_machine_code() -> bool:
    """Whether this thread calls kernels as machine code."""
    return COMPILED and not _form.plain


class _CompiledAtFirstCall:
    """A kernel that numba turns into machine code when it is first needed.

    Attributes:
        py_func: the plain Python function, under numba's name for it.
        plain: called instead if machine code is not wanted: usually the function itself.
    """

    def __init__(self, function: Callable[..., Any], plain: Callable[..., Any]) -> None:
        self.py_func = function
        self.plain = plain
        self._dispatcher: Callable[..., Any] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        # No keyword arguments: positional calls keep the hand-over to machine code below a microsecond.
        if _form.plain:
            return self.plain(*args)
        dispatcher = self._dispatcher
        if dispatcher is None:
            dispatcher = self.dispatcher()
        return dispatcher(*args)

    def dispatcher(self) -> Callable[..., Any]:
        """Return numba's dispatcher, compiling on the first use; the plain function if numba cannot be imported.

        Two threads that meet here build it twice at worst; both results are the same.
        """
        if self._dispatcher is None:
            try:
                self._dispatcher = _compile(self.py_func)
            except ImportError as error:
                _say_that_numba_is_unusable(str(error))
                self._dispatcher = self.plain
        return self._dispatcher


@functools.cache
def _say_that_numba_is_unusable(cause: str) -> None:
    """Warn once per process if numba is installed but cannot be imported, e.g. beside a NumPy it does not know."""
    log.warning("numba_unusable", cause=cause, hint="Install a numba that fits this NumPy, or uninstall it.")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a module-level function on arrays and scalars as a kernel.

    Kernels release the interpreter lock, may call other kernels by their imported names, take positional
    arguments only, and keep IEEE arithmetic (no fast-math), so both forms of one source agree. Sums that BLAS
    makes agree to rounding: the two forms may use different libraries.

    Args:
        function: written in the subset of Python and NumPy that numba compiles.

    Returns:
        the same function without numba, otherwise a wrapper that compiles at the first call.
    """
    if not COMPILED:
        return function
    return cast("Callable[P, R]", _CompiledAtFirstCall(function, function))


def compiled_instead_of(plain: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a loop as a kernel (`compiled`) that replaces a function on whole arrays if numba is installed.

    Args:
        plain: called without numba, and under `plain_functions`. It must return the same.
    """

    def mark(loop: Callable[P, R]) -> Callable[P, R]:
        return cast("Callable[P, R]", _CompiledAtFirstCall(loop, plain)) if COMPILED else plain

    return mark


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    from foltr.core.numerics.kernel_cache import KernelCache

    callee = types.FunctionType(
        function.__code__,
        _globals_for_numba(function),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    callee.__module__ = function.__module__
    callee.__qualname__ = function.__qualname__
    dispatcher: Any = numba.njit(callee, nogil=True, fastmath=False)
    # In a read-only install without a home directory numba has no cache directory; each process then compiles the
    # kernel.
    with contextlib.suppress(RuntimeError):
        # Like njit(cache=True), but the cache knows all sources of the machine code.
        dispatcher._cache = cache = KernelCache(callee, source_digest(function))  # noqa: SLF001
        dispatcher.compile = cache.compiling(dispatcher.compile)
    return cast("Callable[..., Any]", dispatcher)


def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of all sources of a kernel's machine code; numba itself only looks at one file.

    These are the files of all kernels reached from this one, and the numbers that they take from other modules, since
    numba compiles a global number in as a constant.

    Args:
        function: the plain function of a kernel.
    """
    reached = [function, *_reached(function, {function})]
    files = sorted({kernel.__code__.co_filename for kernel in reached})
    constants = sorted(
        f"{kernel.__module__}.{name}={value!r}"
        for kernel in reached
        for name, value in _named_globals(kernel)
        if isinstance(value, int | float)
    )
    digest = hashlib.sha256("\n".join(constants).encode())
    for file in files:
        digest.update(_file_digest(file))
    return digest.hexdigest()


def _reached(function: Callable[..., Any], seen: set[Callable[..., Any]]) -> Iterator[Callable[..., Any]]:
    """The plain functions of all kernels called from this one, directly or indirectly, each once."""
    for _, value in _named_globals(function):
        if isinstance(value, _CompiledAtFirstCall) and value.py_func not in seen:
            seen.add(value.py_func)
            yield value.py_func
            yield from _reached(value.py_func, seen)


@functools.cache
def _file_digest(file: str) -> bytes:
    # Once per process: imported code does not change with its file.
    try:
        return hashlib.sha256(Path(file).read_bytes()).digest()
    except OSError:  # no file, so numba finds no place for a cache beside it either
        return b""


def _named_globals(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    scope = function.__globals__
    return [(name, scope[name]) for name in function.__code__.co_names if name in scope]


def _globals_for_numba(function: Callable[..., Any]) -> dict[str, Any]:
    """The function's globals, with the kernels it calls replaced by objects that numba understands."""
    kernels = {name: value for name, value in _named_globals(function) if isinstance(value, _CompiledAtFirstCall)}
    return function.__globals__ | {name: kernel.dispatcher() for name, kernel in kernels.items()}
