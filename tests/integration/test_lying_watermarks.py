"""What a federation says of a device costs it no participation: a real broker, helpers in processes of their own."""

from contextlib import AsyncExitStack

import pytest
from integration.deployment import on
from integration.recorder import Recorder
from integration.whole import N_DEVICES, click, closed, joined, running
from support.secure_cohorts import FEDERATION
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.core.protocol.signed_tickets import open_ticket
from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import ModelUpdate
from foltr.storage.queries import list_rounds

pytestmark = [on("sqlite")]

TOPICS = Topics(FEDERATION)
INBOX, UPDATES = (TOPICS.client("device-0", topic) for topic in (ClientTopic.INBOX, ClientTopic.UPDATES))


@pytest.fixture
async def whole(mosquitto_server, tmp_path):
    async with running(tmp_path, mosquitto_server.url, max_participations=3) as made:
        for name in ("north", "south"):
            made.start_helper(name)
        yield made


def participations(recorder: Recorder) -> list[tuple[int, int]]:
    """Of each update of the first device its participation, and where it leads the watermark."""
    updates = [open_envelope(payload).read(ModelUpdate) for payload in dict.fromkeys(recorder.heard.get(UPDATES, []))]
    return [(open_ticket(update.body.ticket).ticket.participation, update.through) for update in updates]


def marks(recorder: Recorder) -> list[int | None]:
    """The watermarks in the receipts for updates of the first device."""
    envelopes = [open_envelope(payload) for payload in recorder.heard.get(INBOX, [])]
    kind = UpdateReceipt.kind_name
    return [envelope.read(UpdateReceipt).counted_through for envelope in envelopes if envelope.kind == kind]


async def test_a_lie_about_the_mark_in_an_open_round_costs_a_device_nothing(whole, database) -> None:
    """Whoever has the federator's key says that two of three are spent; the device takes part in all three rounds."""
    async with AsyncExitStack() as stack:
        devices = await stack.enter_async_context(joined(whole))
        recorder = await stack.enter_async_context(Recorder(whole.url, INBOX, UPDATES).listening())
        await stack.enter_async_context(whole.federator(database, 3))
        for number in (1, 2, 3):
            if number == 2:
                # Only the receipt of the round says that no genuine one is to come with a newer number.
                await until(lambda: 1 in marks(recorder), "the receipt was not heard")
                newest = max(open_envelope(payload).sequence for payload in recorder.heard[INBOX])
                await _lie(whole, recorder, newest + 1)
                await until(lambda: devices[0].counted_through == 2, "the lie was not heard")
            for client in devices:
                click(client, 1)
            assert await closed(database, number) is RoundState.COMPLETED
            (row,) = [row for row in await list_rounds(database, FEDERATION) if row.round == number]
            assert row.n_updates == N_DEVICES
        assert participations(recorder) == [(1, 1), (2, 3), (3, 4)]


async def _lie(whole, recorder, sequence) -> None:
    receipt = UpdateReceipt(
        federation=FEDERATION,
        client_id="device-0",
        update_id="f" * 32,
        code=ReceiptCode.ROUND_ABANDONED,
        counted_through=2,
    )
    await recorder.say_again(INBOX, encode(receipt, INBOX, sequence, whole.federation.federator), retain=False)


async def test_a_device_that_loses_its_store_again_and_again_is_in_three_sums_at_most(whole, database) -> None:
    """It takes part at once with an empty store; the fourth time each helper has it out, whoever sends it."""
    async with Recorder(whole.url, UPDATES).listening() as recorder, whole.federator(database, 4):
        for number in (1, 2, 3, 4):
            async with joined(whole) as devices:  # all of them with a new store
                for client in devices:
                    # The row is there before the announcement: an update to the round before would be late.
                    await client.next_round(after=number - 1, timeout_s=PATIENCE_S)
                    click(client, 1)
                state = await closed(database, number)
            assert state is (RoundState.COMPLETED if number < 4 else RoundState.ABANDONED)
    (row,) = [row for row in await list_rounds(database, FEDERATION) if row.round == 4]
    assert row.reason == AbandonReason.COHORTS_TOO_SMALL
    assert participations(recorder) == [(1, 1), (1, 2), (1, 3), (1, 4)]
