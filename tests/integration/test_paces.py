"""Devices come by in turns, over real MQTT and a real database: nothing is lost, and nobody is known to be online."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import numpy as np
from integration.deployment import on
from integration.oracle import power_learner
from integration.peers import DIM, FEDERATION, Operator, eventually, make_plan, served
from support.device_options import grouped
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.codec import decode
from foltr.core.protocol.orders import ForgetClient
from foltr.core.protocol.paces import Pace
from foltr.core.protocol.signed_orders import issue_order
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.events import Resting
from foltr.federator.pace import PacePolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.queries import list_clients, list_contributions, list_events, list_rounds

pytestmark = on("sqlite")

TOPICS = Topics(FEDERATION)
ONE = np.ones((2, DIM), np.float32)


def paced(plan: FederationPlan, n: int, shortest_s: float = 1.0) -> FederationPlan:
    """A plan whose devices come by for rounds of ``n`` updates, for ever."""
    policy = replace(plan.policy, max_clients=n)
    return replace(plan, policy=policy, stop_after_round=None, pace=PacePolicy(n, shortest_s, 3600.0))


def plan_of(n: int, **options: float) -> FederationPlan:
    return paced(make_plan(RoundPolicy(1, n, 0, 4.0), n_rounds=1), n, **options)


def device(broker: str, i: int = 0, credentials: Credentials | None = None, **options: object) -> EdgeClient:
    options = {"store": ":memory:", "learner": power_learner(i), "broker": broker, **options}
    name = {} if credentials is not None else {"federation": FEDERATION, "client_id": f"oracle-{i:02d}"}
    return EdgeClient(credentials, **grouped(**name, **options))


@asynccontextmanager
async def heard_at(broker: str, *topics: str) -> AsyncIterator[dict[str, bytes]]:
    """What the broker retains or says on these topics, while the block lasts: the newest of each."""
    heard: dict[str, bytes] = {}

    def note(message: InboundMessage) -> None:
        heard[message.topic] = message.payload

    address, subscriptions = BrokerAddress.parse(broker), [*topics, "marker"]
    link = MqttLink(address, client_id="listener", subscriptions=subscriptions, on_message=note, persistent=False)
    async with link:
        await link.wait_connected(PATIENCE_S)
        # What is retained comes before what is said now.
        await link.publish("marker", b"here")
        await until(lambda: bool(heard.pop("marker", None)))
        yield heard


async def heartbeat(broker: str) -> None:
    """Wait until the federator's status is retained: rounds are announced before it, and who comes by would miss it."""
    async with heard_at(broker, TOPICS.federator_status) as heard:
        await until(lambda: heard, "there is no heartbeat")


async def rests(client: EdgeClient) -> None:
    """Wait until the device has disconnected until its next visit."""

    await until(lambda: client.next_visit_at is not None, "it stays connected")


async def test_devices_come_by_and_each_click_counts(mqtt_broker, database):
    """Devices that click all the time are connected for moments, hindered by nothing, and never said to be online."""

    async def use(i: int) -> None:
        rests: list[Resting] = []

        def note(event: object) -> None:
            if isinstance(event, Resting):
                rests.append(event)

        async with device(mqtt_broker, i, on_event=note) as client:
            for n in range(1, 4):
                client.record_clicks(client.rank(ONE), [0])
                await until(lambda n=n: len(rests) >= n, "it does not come by")
                assert client.blocker is None

    async with served(mqtt_broker, database, plan_of(3)), asyncio.TaskGroup() as group:
        await heartbeat(mqtt_broker)
        for i in range(6):
            group.create_task(use(i))
    updates = await list_contributions(database, FEDERATION)
    assert len(updates) >= 6 * 2
    assert sum(row.state == "completed" for row in await list_rounds(database, FEDERATION)) >= 4
    assert not any(client.online for client in await list_clients(database, FEDERATION))
    kinds = Counter(event.kind for event in await list_events(database, FEDERATION))
    assert (kinds["client_joined"], kinds["client_online"], kinds["client_offline"]) == (6, 0, 0)
    async with heard_at(mqtt_broker, f"{TOPICS.root}/#") as heard:
        retained = [topic for topic, payload in heard.items() if payload and topic.endswith("/status")]
    assert retained == []


async def test_the_pace_is_stored_and_the_next_start_keeps_it(mqtt_broker, database, tmp_path):
    """A device that ends between two visits does not come by sooner for being started again."""
    store = tmp_path / "device.sqlite"
    async with served(mqtt_broker, database, plan_of(5, shortest_s=300.0)):
        await heartbeat(mqtt_broker)
        async with device(mqtt_broker, store=store) as client:
            await rests(client)
            due_at = client.next_visit_at
            assert "between two visits" in str(client.state)
        async with device(mqtt_broker, store=store) as client:
            await asyncio.sleep(0.5)  # clock: silence
            assert client.next_visit_at == due_at
            assert client.blocker is None


async def test_who_wants_to_be_forgotten_comes_by_at_once(mqtt_broker, database):
    """Neither a wish to be forgotten nor a leave waits for the next visit, which is minutes away."""
    operator = Operator()
    plan = paced(operator.plan(RoundPolicy(1, 5, 0, 4.0), n_rounds=1), 5, shortest_s=300.0)
    async with served(mqtt_broker, database, plan, operator.federator_key):
        first, second = (device(mqtt_broker, i, operator.enrol(f"d-{i}", mqtt_broker)) for i in range(2))
        async with first, second:
            await rests(first)
            await rests(second)
            assert (await first.forget_me(timeout_s=PATIENCE_S)).state in ("forgetting", "forgotten")
            assert first.forgotten
            assert await second.leave(timeout_s=PATIENCE_S)
        async with heard_at(mqtt_broker, TOPICS.client("+", ClientTopic.FORGET)) as heard:
            assert [payload for payload in heard.values() if payload] == []


async def test_who_is_forgotten_between_two_visits_hears_of_it_at_the_next_which_is_the_last(
    mosquitto_server, database
):
    """By the operator; its application gets the receipt, for which the device comes once more, and then it rests."""
    operator, broker = Operator(), mosquitto_server.url
    plan = paced(operator.plan(RoundPolicy(1, 5, 0, 4.0), n_rounds=1), 5)
    forget = ForgetClient(federation=FEDERATION, client_id="d-0", serial=1)
    client = device(broker, 0, operator.enrol("d-0", broker))
    async with served(broker, database, plan, operator.federator_key), client:
        client.record_clicks(client.rank(ONE), [0])
        await rests(client)
        async with operator.peer("peer", broker).connected(join=False) as peer:
            await peer.link.publish(TOPICS.operator, issue_order(operator.key, forget, 1).payload)

        async def has_heard() -> bool:
            return client.forgotten and client.federator_online is None

        for _ in range(2):
            await eventually(has_heard)
            await asyncio.sleep(1.5)  # clock: silence (a period and more)
            assert await has_heard()
            assert client.next_visit_at is None
            assert (await client.forget_me(timeout_s=PATIENCE_S)).state == "forgotten"


async def test_devices_stay_connected_while_there_is_no_pace(mosquitto_server, database):
    """With a target no device is online from that start on, and without one devices are, again."""
    broker, plan = mosquitto_server.url, make_plan(RoundPolicy(1, 5, 0, 4.0), n_rounds=99)

    async def online() -> list[bool]:
        return [row.online for row in await list_clients(database, FEDERATION)]

    async with device(broker) as client:
        async with served(broker, database, plan):
            await eventually(online, lambda found: found == [True])
        async with served(broker, database, plan_of(5)):
            assert await online() == [False]
            await rests(client)
        async with served(broker, database, plan):
            await eventually(online, lambda found: found == [True])
            await asyncio.sleep(1)  # clock: silence
            assert client.next_visit_at is None
            assert await online() == [True]
        async with heard_at(broker, TOPICS.client("+", ClientTopic.STATUS)) as heard:
            assert len(heard) == 1


async def test_a_federator_that_starts_again_expects_who_came_before(mqtt_broker, database):
    """After a restart the pace is worked out from the clients that are stored, and nobody is told to hurry."""
    plan = paced(make_plan(RoundPolicy(1, 2, 0, 40.0), n_rounds=1), 2)
    devices = [device(mqtt_broker, i) for i in range(3)]
    async with served(mqtt_broker, database, plan), devices[0], devices[1], devices[2]:
        await eventually(partial(list_clients, database, FEDERATION), lambda found: len(found) == 3)
    async with heard_at(mqtt_broker, TOPICS.pace) as heard:
        before = heard.get(TOPICS.pace)
    async with served(mqtt_broker, database, plan), heard_at(mqtt_broker, TOPICS.pace) as heard:
        await until(lambda: heard.get(TOPICS.pace, before) != before, "no pace is announced")
        assert decode(heard[TOPICS.pace], Pace).period_s == 3 * 20.0 / 2
