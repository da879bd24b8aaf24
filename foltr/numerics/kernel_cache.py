"""numba's cache of machine code, with a key that covers kernels of several files.

numba throws a cached kernel away when the file it is written in changes. What it calls is compiled into it, so a
change of another file would leave the old machine code in use. Imported only where numba is installed, at the
first compilation.
"""

from collections.abc import Callable
from typing import Any

from numba.core.caching import FunctionCache


class KernelCache(FunctionCache):
    """The cache of one kernel.

    Args:
        function: the plain function.
        digest: of all sources its machine code is made of; entries made with another are never loaded.
    """

    def __init__(self, function: Callable[..., Any], digest: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba ships no types
        self._digest = digest

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        key: tuple[Any, ...] = super()._index_key(sig, codegen)  # type: ignore[no-untyped-call]
        return (*key, self._digest)
