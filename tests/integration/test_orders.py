"""An operator's orders, each part a process, on a real broker: obeyed exactly once, whoever is killed in between."""

import asyncio
from itertools import product

import pytest
from integration.deployment import FEDERATION, client_name, died_by_sigkill, on, swept
from integration.users import contribute_once, oracle_device
from support.message_publisher import publish_once
from support.prepared_processes import with_defaults
from support.waiting import PATIENCE_S

from foltr.core.failpoints import Failpoint
from foltr.core.operator.credentials import OPERATOR_USER, BrokerAccess, read_credentials
from foltr.core.operator.folder import open_authority
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.codec import encode
from foltr.core.protocol.topics import Topics
from foltr.storage.orders import list_orders
from foltr.storage.queries import get_round, list_events

N_CLIENTS = 1
TOPICS = Topics(FEDERATION)
# Nothing ends a round but an order.
LONG = {"max_time_s": 600.0}
UNFILLED = ("--min-clients", "5", "--max-clients", "5")
_FEDERATOR = (
    Failpoint.BATCH_DECIDED,
    Failpoint.IN_BATCH_TRANSACTION,
    Failpoint.BATCH_COMMITTED,
    Failpoint.IN_ERASURE_TRANSACTION,
    Failpoint.ERASED,
    Failpoint.RECEIPT_SENT,
)
_USUAL = {
    ("sqlite", Failpoint.BATCH_DECIDED),
    ("postgresql", Failpoint.IN_ERASURE_TRANSACTION),
    ("postgresql", Failpoint.RECEIPT_SENT),
}
_COMMAND = (Failpoint.ORDER_WRITTEN, Failpoint.ORDER_SENT, Failpoint.ORDER_ANSWERED, Failpoint.ORDER_NOTED)


async def outcomes(deployment):
    return [(row.number, row.kind, str(row.outcome)) for row in await list_orders(deployment.database, FEDERATION)]


async def restarted(deployment, command):
    """The command's end, while a federator that dies is started again."""
    giving = asyncio.create_task(command)
    while not giving.done():
        if not deployment.is_alive:
            assert died_by_sigkill(deployment.federator.returncode), deployment.said()
            deployment.start_federator(1_000, *UNFILLED, **LONG)
        await asyncio.sleep(0.05)
    return await giving


@pytest.mark.parametrize(
    ("migrated_url", "place"), swept(product(("sqlite", "postgresql"), _FEDERATOR), _USUAL), indirect=["migrated_url"]
)
async def test_an_order_is_obeyed_once_wherever_the_federator_is_killed(deployment, operator, place):
    """Before it is stored, in between and after: the command hears of it in the end, and nothing is done twice."""
    deployment.start_federator(1_000, *UNFILLED, **LONG)
    await deployment.serves()
    async with oracle_device(deployment.devices[0]) as client:
        await contribute_once(client)
    for words in (("rounds", "deadline", "1", "--max-time", "500"), ("erasure", "request", client_name(0))):
        await deployment.kill_federator()
        deployment.start_federator(1_000, *UNFILLED, failpoints=f"{place}=kill", **LONG)
        done = await restarted(deployment, operator(*words))
        assert done.returncode == 0, done.stderr
    assert await outcomes(deployment) == [(1, "set_deadline", "obeyed"), (2, "forget_client", "obeyed")]
    assert len(await list_events(deployment.database, FEDERATION, kind="deadline_set")) == 1
    assert (await get_round(deployment.database, FEDERATION, 1)).max_time_s == 500.0
    assert [row.client_id for row in await list_orders(deployment.database, FEDERATION)] == [None, None]


@on("sqlite")
async def test_an_order_is_obeyed_once_wherever_its_command_is_killed(deployment, operator):
    """What was written is sent by the next command, and what was obeyed is answered from its row."""
    deployment.start_federator(1_000, **LONG)
    await deployment.serves()
    for seconds, place in enumerate(_COMMAND, start=500):
        killed = await operator("rounds", "deadline", "1", "--max-time", str(seconds), failpoints=f"{place}=kill")
        assert died_by_sigkill(killed.returncode), killed.stderr
        sent = await operator("operator", "send")
        assert sent.returncode == 0, sent.stderr
    assert await outcomes(deployment) == [(n, "set_deadline", "obeyed") for n in range(1, 5)]
    assert len(await list_events(deployment.database, FEDERATION, kind="deadline_set")) == 4
    assert (await get_round(deployment.database, FEDERATION, 1)).max_time_s == 503.0


@on("postgresql")
async def test_what_a_hostile_broker_replays_does_nothing(deployment, operator, tmp_path):
    """An order of the past, out of its turn; and a recorded answer is not taken for that of another order."""
    deployment.start_federator(1_000, **LONG)
    await deployment.serves()
    for seconds in ("500", "400"):
        assert (await operator("rounds", "deadline", "1", "--max-time", seconds)).returncode == 0
    with open_authority(tmp_path / "operator") as authority:
        first = authority.orders.get(1).payload
        recorded = (tmp_path / "operator" / "orders" / "00000001.answer").read_bytes()
    access = BrokerAccess(broker_url=deployment.broker_url)
    await asyncio.to_thread(publish_once, access, OPERATOR_USER, TOPICS.operator, first)
    await deployment.kill_federator()
    soon = with_defaults({"foltr.cli.history.rounds.send_order": {"timeout_s": 1.0}})  # clock: runs out
    giving = asyncio.create_task(operator("rounds", "deadline", "1", "--max-time", "300", **soon))
    while not giving.done():
        await asyncio.to_thread(publish_once, access, "mallory", TOPICS.operator_answers, recorded)
        await asyncio.sleep(0.05)
    silent = await giving
    assert (silent.returncode, "Order 3 is kept" in silent.stderr) == (3, True), silent.stderr
    deployment.start_federator(1_000, **LONG)
    assert (await operator("operator", "send")).returncode == 0
    assert await outcomes(deployment) == [(n, "set_deadline", "obeyed") for n in (1, 2, 3)]
    assert (await get_round(deployment.database, FEDERATION, 1)).max_time_s == 300.0


@on("postgresql")
async def test_a_device_that_was_off_during_two_rotations_comes_back(deployment, operator, tmp_path):
    """Nobody is enrolled anew; and what the stolen first key announces is believed by nobody any more."""
    stolen = read_credentials(tmp_path / "operator" / "federator.json", "federator").key
    store = tmp_path / "device.sqlite"
    deployment.start_federator(1_000, **LONG)
    await deployment.serves()
    async with oracle_device(deployment.devices[0], store) as client:
        newest = await contribute_once(client, 0)
    for number in (1, 2):
        rotated = await operator("federator", "rotate-key")
        assert rotated.returncode == 0, rotated.stderr
        assert f"Order {number} is obeyed. Devices learn of it now" in rotated.stdout
        assert await deployment.exit_code() == 2
        assert "has replaced the key" in deployment.said()
        deployment.start_federator(1_000, **LONG)
        done = await operator("operator", "send")
        assert done.returncode == 0, done.stderr
    async with oracle_device(deployment.devices[0], store) as client:
        newest = await contribute_once(client, newest)
        forged = RoundAnnouncement(
            federation=FEDERATION,
            round=newest + 50,
            open=False,
            base_version=0,
            base_hash=bytes(16),
            withdraws_below=0,
            opened_at=0.0,
            closes_at=1.0,
            training=(await client.next_round(timeout_s=PATIENCE_S)).training,
        )
        payload = encode(forged, TOPICS.round, 2**62, stolen)
        access = BrokerAccess(broker_url=deployment.broker_url)
        await asyncio.to_thread(publish_once, access, "thief", TOPICS.round, payload)
        assert await contribute_once(client, newest) == newest + 1
    assert await outcomes(deployment) == [(1, "rotate_key", "obeyed"), (2, "rotate_key", "obeyed")]
