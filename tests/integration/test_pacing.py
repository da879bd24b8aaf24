"""When updates count, end to end: stragglers in a buffer, a random selection, and a deadline the operator orders."""

from contextlib import AsyncExitStack

import pytest
from integration.peers import FEDERATION, HandMade, make_plan, served

from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import Pacing
from foltr.federator.round import RoundPolicy
from foltr.storage.models import list_models
from foltr.storage.queries import count_rejections, list_contributions, list_rounds


@pytest.fixture
def broker(mosquitto_server):
    return mosquitto_server.url


async def first_weights(database):
    models = await list_models(database, FEDERATION)
    return [float(unpack_vector(model.weights)[0]) for model in models]


async def peers(stack, broker, *names):
    return [await stack.enter_async_context(HandMade(broker, name).connected()) for name in names]


async def accepted(peer, value, number, base, update_id):
    await peer.knows(base)
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
