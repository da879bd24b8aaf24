"""Whether a broker shares updates out among workers, and whether somebody else takes some: found by messages."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest
from support.broker_links import link_to
from support.servers import MosquittoServer, NatsCluster
from support.waiting import PATIENCE_S, until

from foltr.broker import shared_subscriptions
from foltr.broker.address import BrokerAddress
from foltr.broker.group_probe import GroupProbe, ProbeAnswers
from foltr.broker.listed_users import provision_worker, withdraw_worker
from foltr.broker.provision import reload_broker
from foltr.broker.shared_subscriptions import SharedSubscriptionResult, judge_trial, probe_shared_subscription
from foltr.core.errors import UnavailableError
from foltr.core.protocol.topics import Topics

WORKERS = ("1", "2")


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """What is to come may take as long as it likes, and nothing is settled sooner on a busy machine."""
    monkeypatch.setattr("foltr.broker.shared_subscriptions._ANSWER_S", PATIENCE_S)
    monkeypatch.setattr("foltr.broker.shared_subscriptions._QUIET_S", PATIENCE_S)


@pytest.fixture
def impatient(monkeypatch):
    """Where nothing is to come, nobody waits long for it."""
    monkeypatch.setattr("foltr.broker.shared_subscriptions._QUIET_S", 0.2)


def tried(*urls, n_messages=12):
    return asyncio.run(probe_shared_subscription("fed", [BrokerAddress.parse(url) for url in urls], n_messages))


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        ([["a", "b"], ["c"]], (SharedSubscriptionResult.SHARED, (2, 1), 0, 0)),
        ([["a", "b", "c"]], (SharedSubscriptionResult.SHARED, (3,), 0, 0)),
        ([["a", "b", "c"], []], (SharedSubscriptionResult.ONE_TAKES_ALL, (3, 0), 0, 0)),
        ([["a", "b", "c"], ["c", "b", "a"]], (SharedSubscriptionResult.COPIED, (3, 3), 0, 3)),
        ([["a", "b", "b", "c"], []], (SharedSubscriptionResult.COPIED, (4, 0), 0, 1)),
        ([["a"], ["a", "c"]], (SharedSubscriptionResult.LOST, (1, 2), 1, 1)),
        ([[], []], (SharedSubscriptionResult.NONE, (0, 0), 3, 0)),
    ],
)
def test_what_was_received_is_judged(received, expected):
    """Of three messages; a loss matters more than a repetition."""
    trial = judge_trial(3, received)
    assert (trial.sharing, trial.n_received, trial.n_lost, trial.n_repeated) == expected
    assert trial.n_sent == 3


def test_brokers_that_share_out(mqtt_broker):
    """Mosquitto and iotcore: each message at one of three, each of which has some; and all of them at one alone."""
    trial = tried(*[mqtt_broker] * 3)
    assert (trial.sharing, trial.n_received) == (SharedSubscriptionResult.SHARED, (4, 4, 4))
    assert tried(mqtt_broker).n_received == (12,)


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_grants_and_delivers_nothing(tmp_path):
    """NATS: a plain subscription works, one of a group is granted, and nothing ever comes."""
    nats = NatsCluster(tmp_path)
    nats.start()
    try:
        trial = tried(*nats.urls * 2)
    finally:
        nats.stop()
    assert (trial.sharing, trial.n_lost) == (SharedSubscriptionResult.NONE, 12)
    assert not trial.sharing.may_be_used


def test_bridged_brokers_share_out_each_by_itself(mosquitto_server, tmp_path, monkeypatch):
    """A worker at each has every message, two at one of them share."""
    send, n_copies = shared_subscriptions._Trial.send, [24, 12]  # noqa: SLF001

    async def until_all_came(trial, links, n_messages):
        await send(trial, links, n_messages)
        n_expected = n_copies.pop(0)
        await until(lambda: sum(map(len, trial.received)) >= n_expected)

    monkeypatch.setattr(shared_subscriptions._Trial, "send", until_all_came)  # noqa: SLF001
    port = mosquitto_server.port
    lines = ["connection other", f"address 127.0.0.1:{port}", "topic # both 1", "bridge_protocol_version mqttv311"]
    bridged = MosquittoServer(tmp_path, "\n".join(lines))
    bridged.start()
    try:
        at_both = tried(mosquitto_server.url, bridged.url)
        at_one = tried(bridged.url, bridged.url)
    finally:
        bridged.stop()
    assert (at_both.sharing, at_both.n_received) == (SharedSubscriptionResult.COPIED, (12, 12))
    assert (at_one.sharing, at_one.n_received) == (SharedSubscriptionResult.SHARED, (6, 6))


@pytest.mark.usefixtures("impatient")
def test_two_brokers_are_not_one(mosquitto_server, iotcore_broker):
    """A message to one does not reach the other."""
    assert tried(mosquitto_server.url, iotcore_broker.url).sharing is SharedSubscriptionResult.UNHEARD


def test_workers_may_do_what_they_need(guarded):
    """Two that were let in share messages; a device is refused; one user is not two workers."""
    (device,) = guarded.enrol("device-1")
    workers = [BrokerAddress.of(provision_worker(guarded.operator_dir, name)) for name in WORKERS]
    assert reload_broker(guarded.operator_dir)
    trial = asyncio.run(probe_shared_subscription("fed", workers, 12))
    assert (trial.sharing, trial.n_received) == (SharedSubscriptionResult.SHARED, (6, 6))
    assert (
        asyncio.run(probe_shared_subscription("fed", [BrokerAddress.of(device)], 1)).sharing
        is SharedSubscriptionResult.REFUSED
    )
    with pytest.raises(UnavailableError):
        asyncio.run(probe_shared_subscription("fed", [workers[0]] * 2, 1))


def test_a_worker_that_was_withdrawn_gets_in_no_more(guarded):
    """Once the broker has read its files again; the other one has all updates then."""
    first, second = [BrokerAddress.of(provision_worker(guarded.operator_dir, name)) for name in WORKERS]
    withdraw_worker(guarded.operator_dir, WORKERS[0])
    assert reload_broker(guarded.operator_dir)

    async def is_refused():
        async with link_to(first) as link:
            await until(lambda: link.connected or link.failure_kind is not None)
            return not link.connected

    asyncio.run(until(is_refused))
    trial = asyncio.run(probe_shared_subscription("fed", [second], 4))
    assert (trial.sharing, trial.n_received) == (SharedSubscriptionResult.SHARED, (4,))


TOPICS = Topics("fed")
GROUP = f"$share/a-group/{TOPICS.client('+', 'updates')}"


@asynccontextmanager
async def worker(url, name):
    """A member of the group that answers; its link."""
    answers = None

    class Taking:
        def take(self, message):
            assert answers.accept_probe(message)

    async with link_to(url, name, Taking()) as link:
        answers = ProbeAnswers(TOPICS, link)
        await link.wait_connected(PATIENCE_S)
        answering = asyncio.create_task(answers.run())
        await link.subscribe([GROUP])
        yield link
        answering.cancel()


@asynccontextmanager
async def probing(url):
    """A probe with a link of its own, like a leader's."""
    probe = GroupProbe(TOPICS, "@federator")

    class Receiving:
        def take(self, message):
            probe.receive(message.payload)

    async with link_to(url, "prober", Receiving(), [probe.answers_on]) as link:
        await link.wait_connected(PATIENCE_S)
        yield probe, link


@pytest.mark.parametrize("n_workers", [1, 3])
async def test_workers_answer_every_message(mosquitto_server, n_workers):
    """Of one or several; and it takes no longer than they need."""
    async with AsyncExitStack() as stack, probing(mosquitto_server.url) as (probe, link):
        for i in range(n_workers):
            await stack.enter_async_context(worker(mosquitto_server.url, f"worker-{i}"))
        async with asyncio.timeout(PATIENCE_S):
            assert await probe.count_unanswered(link, 24, 2 * PATIENCE_S) == 0


async def test_what_somebody_else_takes_is_not_answered(mosquitto_server):
    """Its turn comes as often as a worker's; once it is gone all are answered again."""
    url = mosquitto_server.url
    async with worker(url, "worker"), probing(url) as (probe, link):
        stolen = []
        async with link_to(url, "thief", SimpleNamespace(take=stolen.append)) as thief:
            await thief.wait_connected(PATIENCE_S)
            await thief.subscribe([GROUP])
            counting = asyncio.create_task(probe.count_unanswered(link, 24, PATIENCE_S))
            await until(lambda: len(stolen) == len(probe._unanswered) == 12)  # noqa: SLF001
            probe._all_came.set()  # noqa: SLF001 (in the place of the rest of the time)
            assert await counting == 12
        assert await probe.count_unanswered(link, 24, PATIENCE_S) == 0


async def test_nobody_answers_where_there_is_no_worker(mosquitto_server):
    """And who probes waits no longer than it was to."""
    async with probing(mosquitto_server.url) as (probe, link):
        assert await probe.count_unanswered(link, 24, 0.1) == 24


def test_a_client_is_no_prober():
    """Names that devices may have, other topics, and none that is endless."""
    probers = {topic: TOPICS.prober_of(topic) for topic in (TOPICS.probe("@federator"), TOPICS.probe("@ingest.1"))}
    assert list(probers.values()) == ["@federator", "@ingest.1"]
    for topic in (
        TOPICS.client("device-1", "updates"),
        TOPICS.probe_answer("@federator"),
        TOPICS.client("@a/b", "updates"),
        TOPICS.client("@" + 200 * "x", "updates"),
        Topics("other").probe("@federator"),
        TOPICS.model,
    ):
        assert TOPICS.prober_of(topic) is None, topic
