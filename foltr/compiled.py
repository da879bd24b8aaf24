"""One source for every numeric loop: plain NumPy on a device, machine code where numba is installed.

A device install has no numba (its compiler is larger than everything else a device needs), and importing
numba takes longer than the whole device agent may. So `compiled` decides by looking for the package without
importing it, and compiles at the first call. What is compiled is then cached on disk by numba, keyed by the
source.
"""

import functools
import importlib.util
import os
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

# NUMBA_DISABLE_JIT is numba's own switch; honouring it here keeps numba from being imported at all.
COMPILED: bool = importlib.util.find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT") in (
    None,
    "",
    "0",
)
"""Whether kernels run as machine code in this process."""


class _CompiledAtFirstCall:
    """A kernel that numba turns into machine code when it is first needed.

    Attributes:
        py_func: the plain Python function, named as numba names it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        self._dispatcher: Callable[..., Any] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        # No keyword arguments: positional calls keep the hand-over to machine code below a microsecond.
        dispatcher = self._dispatcher
        if dispatcher is None:
            dispatcher = self.dispatcher()
        return dispatcher(*args)

    def dispatcher(self) -> Callable[..., Any]:
        """Return numba's dispatcher, compiling on the first use.

        Two threads that meet here build it twice at worst; both results are the same.
        """
        if self._dispatcher is None:
            self._dispatcher = _compile(self.py_func)
        return self._dispatcher


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a module-level function on arrays and scalars as a kernel.

    Kernels release the interpreter lock, may call other kernels of their own module, take positional
    arguments only, and keep IEEE arithmetic (no fast-math), so both forms of one source agree.

    Args:
        function: written in the subset of Python and NumPy that numba compiles.

    Returns:
        the same function without numba, otherwise a wrapper that compiles at the first call.
    """
    if not COMPILED:
        return function
    return cast("Callable[P, R]", _CompiledAtFirstCall(function))


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    callee = types.FunctionType(
        function.__code__,
        _globals_for_numba(function),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    callee.__module__ = function.__module__
    callee.__qualname__ = function.__qualname__
    try:
        dispatcher: Callable[..., Any] = numba.njit(callee, cache=True, nogil=True, fastmath=False)
    except RuntimeError:
        # numba found no directory it may write a cache to: a read-only install without a home directory.
        dispatcher = numba.njit(callee, nogil=True, fastmath=False)
    return dispatcher


def _globals_for_numba(function: Callable[..., Any]) -> dict[str, Any]:
    """The function's globals, with the kernels it calls replaced by what numba can see through.

    Only kernels of the same module: numba's cache watches one source file, so a change to a kernel elsewhere
    would go unnoticed and the old machine code would stay in use.
    """
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        value = scope.get(name)
        if isinstance(value, _CompiledAtFirstCall):
            if value.py_func.__module__ != function.__module__:
                raise TypeError(f"kernel {function.__qualname__} calls {name}, a kernel of another module")
            scope[name] = value.dispatcher()
    return scope
