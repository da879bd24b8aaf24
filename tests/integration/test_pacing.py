"""When updates count, end to end: stragglers in a buffer, a random selection, and a deadline the operator orders."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from integration.peers import FEDERATION, TOPICS, HandMade, Operator, eventually, make_plan, served
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.client_selection import is_selected, round_seed
from foltr.core.protocol.codec import decode
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.orders import SetDeadline
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_orders import issue_order
from foltr.core.protocol.states import Pacing
from foltr.federator.round import RoundPolicy
from foltr.storage.models import list_models
from foltr.storage.queries import count_rejections, get_round, list_contributions, list_events, list_rounds


@pytest.fixture
def broker(mosquitto_server):
    return mosquitto_server.url


async def first_weights(database):
    models = await list_models(database, FEDERATION)
    return [float(unpack_vector(model.weights)[0]) for model in models]


async def peers(stack, broker, *names):
    return [await stack.enter_async_context(HandMade(broker, name).connected()) for name in names]


async def accepted(peer, value, number, base, update_id):
    receipt = await peer.send(peer.update(value, round=number, base_version=base, update_id=update_id * 32))
    assert receipt.code is ReceiptCode.ACCEPTED


async def test_a_straggler_counts_less_in_a_later_buffer(broker, database):
    """One model behind weighs 1 / sqrt(2), at the limit; two behind is stale. The sums are exact."""
    policy = RoundPolicy(2, 2, 0, 3600, pacing=Pacing.BUFFERED, staleness_limit=1, staleness_exponent=0.5)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(served(broker, database, make_plan(policy, n_rounds=3)))
        a, b, slow, slower = await peers(stack, broker, "a", "b", "slow", "slower")
        await accepted(a, 1.0, 1, 0, "1")
        await accepted(b, 3.0, 1, 0, "1")
        await accepted(slow, 8.0, 1, 0, "1")
        await accepted(a, 2.0, 2, 1, "2")
        receipt = await slower.send(slower.update(100.0))
        assert (receipt.code, receipt.update_id) == (ReceiptCode.STALE, "0" * 32)
        assert receipt.detail == "trained on model 0; round 3 is based on 2; at most 1 older"
        await accepted(a, 4.0, 3, 2, "3")
        await accepted(b, 6.0, 3, 2, "3")
        await running
    first = (1.0 + 3.0) / 2
    second = first + (8.0 * 2**-0.5 + 2.0) / 2
    assert await first_weights(database) == pytest.approx([0.0, first, second, second + (4.0 + 6.0) / 2])
    contributions = await list_contributions(database, FEDERATION, client_id="slow")
    assert [(row.round, row.base_version, row.model_version) for row in contributions] == [(2, 0, 2)]
    assert await count_rejections(database, FEDERATION) == {"stale": 1}
    assert {row.pacing for row in await list_rounds(database, FEDERATION)} == {"buffered"}


async def test_a_buffer_survives_a_restart(broker, database):
    """Half full, the federator ends; the next one counts on with the same policy."""
    policy = RoundPolicy(2, 2, 0, 3600, pacing=Pacing.BUFFERED, staleness_limit=3, staleness_exponent=1.0)
    plan = make_plan(policy, n_rounds=2)
    async with AsyncExitStack() as stack:
        async with served(broker, database, plan):
            a, b = await peers(stack, broker, "a", "b")
            await accepted(a, 1.0, 1, 0, "1")
            await accepted(b, 1.0, 1, 0, "1")
            await accepted(a, 6.0, 1, 0, "2")
        async with served(broker, database, plan) as running:
            assert (await a.send(a.update(6.0, update_id="2" * 32))).code is ReceiptCode.DUPLICATE
            await accepted(b, 4.0, 2, 1, "2")
            await running
    assert await first_weights(database) == pytest.approx([0.0, 1.0, 1.0 + (6.0 / 2 + 4.0) / 2])


async def test_a_round_asks_clients_by_lot(broker, database):
    """One of three: each can check from the announcement whether it is asked, and only it is taken."""
    policy = RoundPolicy(1, 1, 0, 3600, over_selection=0.0)
    announced: asyncio.Queue[RoundAnnouncement] = asyncio.Queue()
    listening = MqttLink(
        BrokerAddress.parse(broker),
        client_id="listening",
        subscriptions=[TOPICS.round],
        on_message=lambda message: announced.put_nowait(decode(message.payload, RoundAnnouncement)),
        persistent=False,
    )
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(served(broker, database, make_plan(policy, n_rounds=4)))
        everyone = await peers(stack, broker, "a", "b", "c")
        # Nobody was online when round 1 opened, so it asks all.
        await accepted(everyone[0], 1.0, 1, 0, "1")
        await stack.enter_async_context(listening)
        for number in range(2, 5):
            async with asyncio.timeout(PATIENCE_S):
                while (round_ := await announced.get()).round != number:
                    pass
            draw = round_.selection
            assert (draw.n_selected, draw.n_eligible) == (1, 3)
            seed = round_seed(draw.first_seed, number)
            asked = [peer for peer in everyone if is_selected(seed, draw.cutoff, peer.client_id)]
            assert len(asked) == 1
            for peer in everyone:
                if peer not in asked:
                    update = peer.update(round=number, base_version=number - 1, update_id=f"{number}" * 32)
                    assert (await peer.send(update)).code is ReceiptCode.NOT_SELECTED
            await accepted(asked[0], 1.0, number, number - 1, f"{number}")
        await running
    rounds = await list_rounds(database, FEDERATION)
    assert [(row.n_updates, row.n_selected, row.n_eligible) for row in rounds] == [(1, 1, 0), *[(1, 1, 3)] * 3]
    assert await count_rejections(database, FEDERATION) == {"not_selected": 6}


async def test_an_order_of_the_operator_ends_a_running_round(broker, database):
    """Ten minutes were left; the round ends at once with what it has, and the next one is as planned."""
    operator = Operator()
    plan = operator.plan(RoundPolicy(1, 5, 600, 600), n_rounds=2)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(served(broker, database, plan, operator.federator_key))
        peer = await stack.enter_async_context(operator.peer("peer", broker).connected())
        await accepted(peer, 2.0, 1, 0, "1")

        async def second_round():
            return await get_round(database, FEDERATION, 2)

        for number, max_time_s, sequence in ((1, 0.25, 1), (2, 0.5, 2)):
            order = SetDeadline(federation=FEDERATION, round=number, max_time_s=max_time_s)
            await peer.link.publish(TOPICS.operator, issue_order(operator.key, order, sequence).payload)
            assert (await eventually(second_round)).min_time_s in (600, 0.5)
        await running
    rounds = await list_rounds(database, FEDERATION)
    assert [(row.state, row.reason, row.max_time_s, row.min_time_s) for row in rounds] == [
        ("completed", None, 0.25, 0.25),
        ("abandoned", "no_updates", 0.5, 0.5),
    ]
    assert all(row.duration_s < PATIENCE_S for row in rounds)
    assert await first_weights(database) == [0.0, 2.0]
    assert [event.round for event in await list_events(database, FEDERATION, kind="deadline_set")] == [1, 2]
