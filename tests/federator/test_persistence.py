"""A store whose database is away now and then."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from federator import persistence
from federator.persistence import patient
from federator.store import FederationStore
from foltr.errors import ProtocolViolationError, UnavailableError


class Failing:
    """Raises these errors, one a call, and answers then."""

    location, epoch = "here", 7

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.n_calls = list(errors), 0

    def unavailable(self, error: Exception) -> UnavailableError:
        return UnavailableError(f"The database cannot be used: {error}. Start it")

    async def newest_unlearned(self) -> int:
        self.n_calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return 3

    purge = newest_unlearned


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time that passes only with the pauses, which are noted."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    loop = SimpleNamespace(time=lambda: sum(slept))
    clock = SimpleNamespace(sleep=sleep, get_running_loop=lambda: loop)
    monkeypatch.setattr(persistence, "asyncio", clock)
    return slept


def patiently(failing: Failing, patience_s: float = 60.0) -> FederationStore:
    return patient(cast("Any", failing), patience_s)


async def test_a_transaction_is_done_again_until_it_is_through(pauses: list[float]) -> None:
    """After pauses that grow; what is no transaction is passed on as it is."""
    failing = Failing(*[OSError("away")] * 4)
    store = patiently(failing)
    assert await store.newest_unlearned() == 3
    assert failing.n_calls == 5
    assert all(0.5 * whole <= pause <= whole for pause, whole in zip(pauses, (0.1, 0.2, 0.4, 0.8), strict=True))
    assert (store.location, store.epoch) == ("here", 7)


async def test_patience_ends_and_says_what_to_do() -> None:
    """With what the database said, and for how long it was tried."""
    with pytest.raises(UnavailableError, match=r"away. Start it, then start the federator again: .*\(tried for 2 s\)"):
        await patiently(Failing(*[OSError("away")] * 99), patience_s=2.0).newest_unlearned()


async def test_what_would_fail_again_is_not_tried_again() -> None:
    """A contradiction is one the second time, too."""
    failing = Failing(ProtocolViolationError("no"))
    with pytest.raises(ProtocolViolationError):
        await patiently(failing).newest_unlearned()
    assert failing.n_calls == 1


async def test_a_purge_is_tried_once() -> None:
    """It is no transaction, and done again when it is due again."""
    failing = Failing(OSError("away"))
    with pytest.raises(OSError, match="away"):
        await patiently(failing).purge()
    assert failing.n_calls == 1
