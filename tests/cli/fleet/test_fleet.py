"""A fleet of simulated devices: each with its own streams and, where asked for, its own data and user."""

import asyncio

import numpy as np
import pytest
from support.federator_by_hand import TOPICS, Federator, announced
from support.sampled_lists import shown_by
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S

from foltr.cli.fleet.fleet import Fleet, FleetUser
from foltr.core.data.sources import LoadedData
from foltr.core.data.synthetic import synthetic_dataset
from foltr.core.errors import UnavailableError
from foltr.core.evaluation.click_models import ClickModel, click_model, examination_by_rank, personal
from foltr.core.learning.interaction import Interaction
from foltr.core.methods.base import DeviceContext
from foltr.core.numerics.streams import client_streams
from foltr.core.operator.credentials import BrokerAccess, device_identity
from foltr.core.protocol.codec import decode
from foltr.core.protocol.evaluations import EvaluationRequest
from foltr.core.protocol.membership import Join
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.trainings import FedIpsTraining, PdgdTraining
from foltr.core.protocol.updates import Vote
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Privacy, checked_propensities
from foltr.edge_client.training.working_model import device_for

N_FEATURES = 6
TRAINING = FedIpsTraining(min_interactions=2, max_interactions=2, learning_rate=0.1)


@pytest.fixture(autouse=True, scope="module")
def kernels():
    """Load, or compile, what devices learn with: the first one would make everybody in the loop stand still."""
    features, clicks = np.ones((8, N_FEATURES), np.float32), np.array([True, False, True, False, False])
    for propensities in (None, checked_propensities([1.0, 0.5, 0.3, 0.2, 0.1])):
        device = device_for(model(), TRAINING, DeviceContext(0, None, propensities))
        shown, _ = shown_by(device, TRAINING, features, len(clicks), np.random.default_rng(0))
        device.learn(Interaction(1, features, shown.ranking, clicks), np.random.default_rng(0))


@pytest.fixture(autouse=True)
def _nothing_is_sent_twice(monkeypatch):
    """A machine that stands still for seconds has no update sent again, and no device leave before its receipt."""
    for name in ("FIRST_RESEND_S", "RESEND_LIMIT_S", "ANSWER_TIME_S"):
        monkeypatch.setattr(f"foltr.edge_client.participation.{name}", 3600.0)
    monkeypatch.setattr("foltr.edge_client.simulated_user._SETTLE_S", PATIENCE_S)


@pytest.fixture
def data(rng):
    dataset = synthetic_dataset(rng, n_queries=10, docs_per_query=8, n_features=N_FEATURES)
    return LoadedData(dataset, dataset, "synthetic")


def model():
    return announced(0, [0.0] * N_FEATURES)


async def updates_of(federator, fleet, training=TRAINING):
    """The updates of one round, by device."""
    running = asyncio.create_task(fleet.run())
    await federator.announce(1, training=training, newest=model())
    updates = {}
    for _ in fleet.stores:
        update = await federator.update()
        updates[update.client_id] = update
        await federator.receipt(update, ReceiptCode.ACCEPTED)
    await running
    return updates


def fleet_of(url, data, names, clicks="perfect", **options):
    return Fleet(url, "mail", data, clicks, 2, 5, dict.fromkeys(names, ":memory:"), n_rounds=1, **options)


async def test_a_device_does_the_same_in_any_fleet(mqtt_broker, data):
    """Its name and the seed decide, not who else is there; two devices differ."""
    async with Federator(mqtt_broker) as federator:
        together = await updates_of(federator, fleet_of(mqtt_broker, data, ["one", "two"], "informational"))
        alone = await updates_of(federator, fleet_of(mqtt_broker, data, ["two"], "informational"))
    assert together["two"].body == alone["two"].body
    assert together["one"].body != together["two"].body


async def test_a_user_of_its_own(mqtt_broker, data):
    """Other data, other queries, other clicks and another number of interactions, for the device that is named."""
    never, always = (ClickModel(str(p), (p,) * 5, (0.0,) * 5) for p in (0.0, 1.0))
    users = {
        "one": FleetUser(data.train, None, (always,), n_interactions=2),
        "two": FleetUser(data.train, np.array([3]), (never,), n_interactions=2),
    }
    async with Federator(mqtt_broker) as federator:
        fleet = fleet_of(mqtt_broker, data, ["one", "two"], users=users)
        updates = await updates_of(federator, fleet)
    assert not np.frombuffer(updates["two"].body.values, "<f4").any()
    assert np.frombuffer(updates["one"].body.values, "<f4").any()
    assert fleet.receipts == {"accepted": 2}


@pytest.mark.parametrize("says", [True, False])
async def test_devices_vote_and_say_what_their_lists_earned_unless_they_are_not_to(mqtt_broker, data, says):
    """As the privacy of the fleet says."""
    training = PdgdTraining(min_interactions=2, max_interactions=2)
    async with Federator(mqtt_broker) as federator:
        await federator.say(TOPICS.anchor, model(), retain=True)
        await federator.say(TOPICS.evaluation, EvaluationRequest(federation="mail"), retain=True)
        fleet = fleet_of(mqtt_broker, data, ["one"], privacy=Privacy(votes=says, evaluation=not says))
        update = (await updates_of(federator, fleet, training))["one"]
    assert update.vote == (Vote(anchor_version=0, value=0) if says else None)
    assert (update.evaluation is None) == says


async def test_devices_know_their_users_examination(mqtt_broker, data, monkeypatch):
    """FedIPS weighs clicks by the propensities of this very user, drawn from the user's stream."""
    given = {}

    class Recording(EdgeClient):
        def __init__(self, *args, **options):
            given[options["connection"].client_id] = options["ranking"].propensities
            super().__init__(*args, **options)

    monkeypatch.setattr("foltr.cli.fleet.fleet.EdgeClient", Recording)
    async with Federator(mqtt_broker) as federator:
        await updates_of(federator, fleet_of(mqtt_broker, data, ["one", "two"], "fedips-1"))
        own = personal(click_model("fedips-1", 5), client_streams(5, "one").user)
        np.testing.assert_array_equal(given["one"][:5], examination_by_rank(own.examination_exponent, 5))
        assert given["one"][1] != given["two"][1]
        await updates_of(federator, fleet_of(mqtt_broker, data, ["one"], "perfect"))
        assert given["one"] is None


async def test_a_fleet_goes_on_without_a_device_that_was_forgotten(mqtt_broker, data, tmp_path):
    """It is no error, in the run in which it happens or in the next; the others have their rounds."""
    stores = {name: str(tmp_path / name) for name in ("one", "two")}
    for number in (1, 2):
        async with Federator(mqtt_broker) as federator:
            fleet = Fleet(mqtt_broker, "mail", data, "perfect", 2, 5, stores, n_rounds=2)
            running = asyncio.create_task(fleet.run())
            await federator.announce(2 * number - 1, training=TRAINING, newest=model())
            for _ in range(3 - number):
                update = await federator.update()
                gone = update.client_id == "one"
                await federator.receipt(update, ReceiptCode.FORGOTTEN if gone else ReceiptCode.ACCEPTED)
            await federator.announce(2 * number, training=TRAINING, newest=model())
            update = await federator.update()
            assert update.client_id == "two"
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            await running
            await federator.nothing_on("updates")
        assert fleet.receipts == ({"accepted": 2, "forgotten": 1} if number == 1 else {"accepted": 2})


async def test_whoever_is_not_taken_in_ends_with_an_error_and_the_others_go_on(mqtt_broker, data):
    """It does not go through the rounds as if it took part, nor wait for ever; the fleet says so at its end."""
    async with Federator(mqtt_broker, takes_joins=False) as federator:
        fleet = fleet_of(mqtt_broker, data, ["one", "two"])
        running = asyncio.create_task(fleet.run())
        await federator.announce(1, training=TRAINING, newest=model())
        for _ in fleet.stores:
            join = decode(await federator.next("join"), Join)
            code = ReceiptCode.REVOKED if join.client_id == "one" else ReceiptCode.JOINED
            await federator.membership(join.client_id, code)
        update = await federator.update()
        assert update.client_id == "two"
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        why = r"^1 of 2 devices could not take part; one: .*revoked.*foltr device enrol"
        with pytest.raises(UnavailableError, match=why):
            await running
    assert fleet.receipts == {"accepted": 1}


async def test_a_device_that_nobody_answered_has_not_taken_part(mqtt_broker, data, monkeypatch):
    """A round that the broker retains is not taken for a federator."""
    monkeypatch.setattr("foltr.edge_client.simulated_user._SETTLE_S", 0.1)
    async with Federator(mqtt_broker, takes_joins=False) as federator:
        await federator.announce(1, training=TRAINING, newest=model())
        with pytest.raises(UnavailableError, match="the broker has no message of the federator of 'mail'"):
            await fleet_of(mqtt_broker, data, ["one"]).run()


async def test_a_device_that_is_not_let_in_ends_when_its_rounds_are_counted(tmp_path, data, monkeypatch):
    """And says what the broker said; the wait is as long as a broker needs to hear of a new device."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    server.start()
    monkeypatch.setattr("foltr.cli.fleet.fleet._LOCKED_OUT_S", 0.4)
    monkeypatch.setattr("foltr.cli.fleet.fleet._LOOK_S", 0.2)
    try:
        known = server.service("operator")
        access = BrokerAccess(broker_url=known.broker_url, username="device-7", password="wrong", ca=known.ca)  # noqa: S106
        wrong = device_identity(SigningKey.generate(), SigningKey.generate().public, "mail", "device-7", 1, access)
        fleet = fleet_of(None, data, ["device-7"], credentials={"device-7": wrong})
        with pytest.raises(UnavailableError, match="refuses this user"):
            await fleet.run()
    finally:
        server.stop()
    assert list(fleet.refused) == ["device-7"]


async def test_of_rounds_that_take_long_there_is_ever_less_to_say(data, monkeypatch):
    """A round may take ten minutes: the second line of its devices waits twice as long, and a new round begins anew."""
    for name, seconds in {"_LOOK_S": 0.01, "_SILENCE_S": 0.02, "_LONGEST_SILENCE_S": 0.08}.items():
        monkeypatch.setattr(f"foltr.cli.fleet.fleet.{name}", seconds)
    fleet = Fleet("mqtt://localhost", "mail", data, "perfect", 1, seed=1, stores={})
    looks, said = 0, []

    async def look(_):
        nonlocal looks
        looks += 1
        if looks == 31:
            fleet.newest_round = 1
        if looks > 35:
            raise asyncio.CancelledError

    monkeypatch.setattr("foltr.cli.fleet.fleet.asyncio.sleep", look)
    monkeypatch.setattr("foltr.cli.fleet.fleet.log.warning", lambda _, newest, **__: said.append((looks, newest)))
    with pytest.raises(asyncio.CancelledError):
        await fleet._say_when_waiting()  # noqa: SLF001 (devices of their own would only add noise)
    assert said == [(2, 0), (6, 0), (14, 0), (22, 0), (30, 0), (33, 1)]
