"""Receipts are sent in order; notices that nobody waits for, which may be everybody's, a page at a time."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.waiting import PATIENCE_S

from foltr.core.errors import UnavailableError
from foltr.core.protocol.codec import Signer, open_envelope
from foltr.core.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.core.protocol.signing import EpochSequence
from foltr.core.protocol.states import Membership
from foltr.core.protocol.topics import Topics
from foltr.federator.deciding.state import FederationState
from foltr.federator.deciding.withdrawal import take_back_round
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.announcements import ReceiptSender
from foltr.federator.round import RecordedUpdate, Round, RoundPolicy
from foltr.storage.records import ClientRow

AT = datetime(2026, 1, 2, tzinfo=UTC)
A_MEMBER = ClientRow(
    "mail", "a", Membership.JOINED, True, AT, None, AT, None, None, None, None, 0, 0, None, None, counted_through=100
)
N_CLIENTS = 10_000
# A page of notices, and what is written at once.
MOST_AT_ONCE = 256 + 32


class SlowLink:
    """A broker that takes one message at a time, and tells how much was made of what it has not seen."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.made = 0
        self.most_waiting = 0
        self.gone = False
        self.begun = asyncio.Event()

    async def publish_at_most_once(self, messages: list[tuple[str, bytes]]) -> None:
        for topic, payload in messages:
            self.most_waiting = max(self.most_waiting, self.made - len(self.sent))
            await asyncio.sleep(0)
            if self.gone:
                raise UnavailableError("the broker is gone")
            receipt = open_envelope(payload).read(UpdateReceipt)
            assert topic == Topics("mail").client(receipt.client_id, "inbox")
            self.sent.append(f"{receipt.client_id} {receipt.code}")
            self.begun.set()

    def counted(self, notices):
        for notice in notices:
            self.made += 1
            yield notice


def receipt(client_id: str, code: ReceiptCode = ReceiptCode.ACCEPTED) -> UpdateReceipt:
    return UpdateReceipt(federation="mail", client_id=client_id, update_id="0" * 32, code=code, counted_through=5)


@pytest.fixture
async def sending():
    """A sender at work, and the link that it sends by."""
    link = SlowLink()
    sender = ReceiptSender(link, Topics("mail"), Signer(None, EpochSequence()))
    task = asyncio.create_task(sender.run())
    yield sender, link
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_ten_thousand_who_are_told_unasked_never_wait_all_at_once(sending) -> None:
    """Each hears of it once, in the order of the round; few notices are made before they can go."""
    sender, link = sending
    names = [f"device-{i:05d}" for i in range(N_CLIENTS)]
    sender.notify(link.counted(receipt(name, ReceiptCode.ROUND_ABANDONED) for name in names))
    await sender.wait_sent(PATIENCE_S)
    assert link.sent == [f"{name} round_abandoned" for name in names]
    assert link.most_waiting <= MOST_AT_ONCE


async def test_an_answer_does_not_wait_for_the_notices(sending) -> None:
    """A device waits for it; of the notices a page at most goes before."""
    sender, link = sending
    sender.notify(receipt(f"device-{i:05d}", ReceiptCode.ROUND_ABANDONED) for i in range(N_CLIENTS))
    await link.begun.wait()
    n_before = len(link.sent)
    sender.send([receipt("alice")])
    await sender.wait_sent(PATIENCE_S)
    assert link.sent.index("alice accepted") <= n_before + MOST_AT_ONCE
    assert len(link.sent) == N_CLIENTS + 1


async def test_rounds_are_told_of_one_after_another(sending) -> None:
    """Also one that nobody had contributed to: whoever waits for the last notice is not kept waiting."""
    sender, link = sending
    for names in ("ab", "", "c"):
        sender.notify(receipt(name, ReceiptCode.ROUND_ABANDONED) for name in names)
    await sender.wait_sent(PATIENCE_S)
    assert link.sent == ["a round_abandoned", "b round_abandoned", "c round_abandoned"]
    async with asyncio.timeout(PATIENCE_S):
        sender.notify(iter(()))
        await sender.wait_sent(PATIENCE_S)


async def test_what_a_broker_that_is_gone_does_not_take_is_let_go(sending) -> None:
    """A device that was not told learns the watermark from its next answer."""
    sender, link = sending
    link.gone = True
    sender.notify(receipt(f"device-{i}", ReceiptCode.ROUND_ABANDONED) for i in range(1000))
    await sender.wait_sent(PATIENCE_S)
    link.gone = False
    sender.send([receipt("alice")])
    await sender.wait_sent(PATIENCE_S)
    assert link.sent == ["alice accepted"]


def test_marks_go_back_at_once_and_a_notice_says_the_mark_that_there_is_by_then() -> None:
    """Nobody can count by an old watermark while notices wait; who was forgotten meanwhile is told nothing."""
    state = FederationState(FederationPlan("mail", 2))
    abandoned = Round.open(1, 0, RoundPolicy(1, N_CLIENTS, 0.0, 60.0), 0.0)
    names = [f"device-{i:05d}" for i in range(N_CLIENTS)]
    state.members.restore_forgotten(bytes(32), [])
    state.members.restore((replace(A_MEMBER, client_id=name) for name in names), None)
    abandoned.contributions = {name: RecordedUpdate("0" * 32, 40) for name in names}
    notices = take_back_round(state, abandoned)
    assert {state.members.counted_through(name) for name in names} == {40}
    assert next(notices).counted_through == 40
    state.members.move_watermark(names[1], 70)
    state.members.forget(names[2])
    later = list(notices)
    assert (later[0].client_id, later[0].counted_through) == (names[1], 70)
    assert [notice.client_id for notice in later] == [names[1], *names[3:]]
