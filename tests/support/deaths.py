"""A process that dies at a failpoint: nothing on the way catches it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest

from foltr.core.failpoints import Failpoint


class Died(BaseException):
    """What stands for SIGKILL."""


@contextmanager
def dying_at(point: Failpoint, *modules: str) -> Iterator[None]:
    """Have what runs here die where one of these modules comes to a failpoint, which it has to."""

    def die(name: Failpoint) -> None:
        if name is point:
            raise Died(name)

    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch(f"foltr.{module}.failpoint", die))
        stack.enter_context(pytest.raises(Died, match=point.value))
        yield
