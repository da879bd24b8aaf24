"""Transactions of a database that is away now and then."""

from types import SimpleNamespace
from typing import Any

import pytest

import foltr.federator.store
from foltr.core.errors import ProtocolViolationError, UnavailableError
from foltr.federator.store import FederationStore, Transactions
from foltr.storage import arrivals
from foltr.storage.records import Batch, NewEvent


class Failing(Transactions):
    """Raises these errors, one a call, and answers then."""

    def __init__(self, *errors: Exception, patience_s: float = 60.0) -> None:
        super().__init__("here", patience_s)
        self.errors, self.n_calls = list(errors), 0

    def unavailable(self, error: Exception) -> UnavailableError:
        return UnavailableError(f"The database cannot be used: {error}. Start it")

    async def answer(self) -> int:
        async def once() -> int:
            self.n_calls += 1
            if self.errors:
                raise self.errors.pop(0)
            return 3

        return await self.make(once)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time that passes only with the pauses, which are noted."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    loop = SimpleNamespace(time=lambda: sum(slept))
    clock = SimpleNamespace(sleep=sleep, get_running_loop=lambda: loop)
    monkeypatch.setattr(foltr.federator.store, "asyncio", clock)
    return slept


async def test_a_transaction_is_done_again_until_it_is_through(pauses: list[float]) -> None:
    """After pauses that grow."""
    failing = Failing(*[OSError("away")] * 4)
    assert await failing.answer() == 3
    assert failing.n_calls == 5
    assert all(0.5 * whole <= pause <= whole for pause, whole in zip(pauses, (0.1, 0.2, 0.4, 0.8), strict=True))


async def test_patience_ends_and_says_what_to_do() -> None:
    """With what the database said, and for how long it was tried."""
    with pytest.raises(UnavailableError, match=r"away. Start it, then start the federator again: .*\(tried for 20 s\)"):
        await Failing(*[OSError("away")] * 99, patience_s=20.0).answer()


async def test_what_would_fail_again_is_not_tried_again() -> None:
    """A contradiction is one the second time, too."""
    failing = Failing(ProtocolViolationError("no"))
    with pytest.raises(ProtocolViolationError):
        await failing.answer()
    assert failing.n_calls == 1


@pytest.mark.parametrize(("method", "n_calls"), [("commit_batch", 2), ("purge", 1)])
async def test_every_transaction_of_a_federation_is_tried_again_and_a_purge_is_not(method: str, n_calls: int) -> None:
    """A purge is no transaction, and is done again when it is due again."""
    calls: list[tuple[Any, ...]] = []

    async def fail_once(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 1:
            raise OSError("away")

    db: Any = SimpleNamespace(location="here", unavailable=UnavailableError, run=fail_once, purge=fail_once)
    store = FederationStore(db, "web")
    store.epoch = 7
    if method == "purge":
        with pytest.raises(OSError, match="away"):
            await store.purge()
    else:
        batch = Batch(events=[NewEvent(None, "client_joined")])
        await store.commit_batch(batch)
        assert calls[-1] == (arrivals.commit_batch, "web", 7, batch)
    assert len(calls) == n_calls
