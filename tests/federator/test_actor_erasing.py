"""A client of whom much is stored is erased between others' updates, a few rows a turn."""

from functools import partialmethod

import pytest
from support.unlearning_steps import ask

from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode, UpdateReceipt
from foltr.core.protocol.states import Strategy
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy
from foltr.federator.store import FederationStore
from foltr.storage.erasure.client_rows import rows_of
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.queries import get_round

N_ROUNDS = 5
POLICY = RoundPolicy(2, 2, 0.0, 60.0)
ROLLBACK = UnlearningPolicy(Strategy.ROLLBACK, every_s=0.0, swap_every_s=0.0)
NAMES = ("alice", "bob", "carol")


@pytest.fixture
def one_row(monkeypatch):
    """A transaction deletes one row of whom is to be forgotten, as it deletes two hundred of who has sent much."""
    for name in ("erase_client", "erase_more"):
        monkeypatch.setattr(FederationStore, name, partialmethod(getattr(FederationStore, name), limit=1))


@pytest.fixture
async def taught(serve, unsigned, one_row):  # noqa: ARG001 (it is patched)
    """Starts an actor, with rounds that alice and bob have taught, and alice's update in the open one."""

    async def start(**plan):
        served = await serve(POLICY, **({"unlearning": ROLLBACK} | plan))
        devices = [unsigned(name) for name in NAMES]
        await served.join(devices)
        for number in range(1, N_ROUNDS + 1):
            for device in devices[:2]:
                served.update(device, number, number - 1)
            await served.turn()
        served.update(devices[0], N_ROUNDS + 1, N_ROUNDS)
        await served.turn()
        served.receipts.sent.clear()
        return served, devices

    return start


async def state_of(served) -> str:
    (row,) = await list_erasures(served.db, "mail")
    return row.state


async def until_erased(served) -> int:
    """Take turns until nothing is left to delete; how many it took."""
    for n in range(20):
        if not served.actor.eraser.is_erasing:
            return n
        assert served.actor.eraser.wake_at() <= served.clock.at + 1.0
        served.clock.at += 1.0
        await served.turn()
    raise AssertionError("it does not end")


async def test_others_are_answered_between_the_parts(taught):
    """The device is told at once; rounds end with the others' updates; the job begins once the last row is gone."""
    served, (alice, bob, carol) = await taught()
    ask(served, alice)
    await served.turn()
    (told,) = [one for one in served.receipts.sent if isinstance(one, ErasureNotice)]
    assert (told.client_id, told.code) == ("alice", ReceiptCode.ERASING)
    assert await state_of(served) == "erasing"
    n_left = (await rows_of(served.db, "mail", "alice"))["updates"]
    assert 1 < n_left <= N_ROUNDS
    served.receipts.sent.clear()
    served.update(bob, N_ROUNDS + 1, N_ROUNDS)
    served.update(carol, N_ROUNDS + 1, N_ROUNDS)
    await served.turn()
    assert len([one for one in served.receipts.sent if isinstance(one, UpdateReceipt)]) == 2
    closed = await get_round(served.db, "mail", N_ROUNDS + 1)
    assert (closed.state, closed.n_updates) == ("completed", 2)
    assert await until_erased(served) > 1
    assert "updates" not in await rows_of(served.db, "mail", "alice")
    served.clock.at += 1.0
    await served.turn()
    assert await state_of(served) == "unlearning"


async def test_who_asks_again_meanwhile_is_told_and_keeps_its_key_until_its_rows_are_gone(taught, monkeypatch):
    """Else the key that is destroyed with the last row would not be found, and its receipt would say so."""
    served, (alice, *_) = await taught()
    ask(served, alice)
    await served.turn()
    destroyed = []

    async def destroy(_store, client_id, _fingerprint):
        destroyed.append(client_id)
        return True

    monkeypatch.setattr("foltr.federator.store.FederationStore.destroy_key", destroy)
    served.receipts.sent.clear()
    ask(served, alice)
    await served.turn()
    assert [one.code for one in served.receipts.sent] == [ReceiptCode.ERASING]
    assert destroyed == []
    await until_erased(served)
    assert destroyed == ["alice"]
    (row,) = await list_erasures(served.db, "mail")
    assert row.key_destroyed
