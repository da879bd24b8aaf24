"""Hostile devices in a federation: what no message may hold is refused, and rounds go on without it."""

import asyncio

import numpy as np
import pytest
from cli.commands import foltr
from integration.peers import FEDERATION, served
from support.sampled_lists import sampled
from support.waiting import PATIENCE_S

from foltr.cli.fleet.fleet import Fleet
from foltr.core.data.sources import LoadedData
from foltr.core.data.synthetic import synthetic_dataset
from foltr.core.errors import SettingsError
from foltr.core.methods.registry import ranker_for
from foltr.core.protocol.fields import unpack_vector
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.models import list_models
from foltr.storage.queries import list_contributions, list_rounds
from foltr_research.attacks.registry import read_attack
from foltr_research.cli.collusion import run_attacked

D, N_DEVICES, N_ROUNDS, INTERACTIONS = 6, 4, 3, 2
NAMES = [f"device-{i}" for i in range(1, N_DEVICES + 1)]


def fleet_of(broker):
    dataset = synthetic_dataset(np.random.default_rng(3), n_queries=10, docs_per_query=8, n_features=D)
    return Fleet(
        broker_url=broker,
        federation=FEDERATION,
        data=LoadedData(dataset, dataset, "synthetic"),
        clicks="perfect",
        interactions=INTERACTIONS,
        seed=2,
        stores=dict.fromkeys(NAMES, ":memory:"),
        give_up_after_s=PATIENCE_S,
    )


def plan_of(method="fpdgd"):
    training, ranker = sampled(method, {}, INTERACTIONS), ranker_for("linear", D, 2)
    policy = RoundPolicy(N_DEVICES - 1, N_DEVICES, 0.2, PATIENCE_S)
    return FederationPlan(FEDERATION, D, policy, training, chosen_ranker=ranker, stop_after_round=N_ROUNDS)


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("attack", "parameters", "code"),
    [
        ("not-finite", {}, "not_finite"),
        ("not-finite", {"value": "-inf"}, "not_finite"),
        ("huge", {"size": 1e30}, "out_of_range"),
    ],
)
async def test_what_no_message_may_hold_is_refused_and_the_round_goes_on(
    mqtt_broker, database, attack, parameters, code
):
    """The attacker is told why, every round; the models are those of the honest, and finite."""
    fleet = fleet_of(mqtt_broker)
    async with served(mqtt_broker, database, plan_of()) as federator, asyncio.TaskGroup() as group:
        group.create_task(run_attacked(fleet, read_attack(attack, parameters), 1))
        await federator
    rounds = await list_rounds(database, FEDERATION)
    assert [(row.state, row.n_updates) for row in rounds] == [("completed", N_DEVICES - 1)] * N_ROUNDS
    assert {row.client_id for row in await list_contributions(database, FEDERATION)} == set(NAMES[1:])
    assert set(fleet.receipts) <= {"accepted", "late", code}
    assert (fleet.receipts["accepted"], fleet.receipts[code] >= 1) == (N_ROUNDS * (N_DEVICES - 1), True)
    for model in await list_models(database, FEDERATION):
        assert np.isfinite(unpack_vector(model.weights)).all()


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_an_attack_on_weights_makes_no_sense_where_none_are_sent(iotcore_broker, database):
    """The fleet ends at once, in words, although only the federator knew the method."""
    async with served(iotcore_broker.url, database, plan_of("foltr-es")):
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(SettingsError, match=r"attack: foltr-es .* choose attack = clicks"):
                await run_attacked(fleet_of(iotcore_broker.url), read_attack("sign-flip"), 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("attacks", "run", "nonsense"), "attack: unknown 'nonsense'; known are clicks, lie"),
        (("attacks", "run", "lie", "--count", "3", "--attackers", "4"), "--attackers: 4 of 3 devices"),
        (("attacks", "run", "launder"), "attack: launder is for the simulator"),
        (("attacks", "run", "bounded", "--attack-set", "against=model"), "against: bounded against the model is for"),
        (("attacks", "run", "lie", "--attack-set", "z"), "--attack-set: 'z' is not name=value"),
        (("attacks", "run", "lie", "--attack-set", "b=2"), "b: lie has no such parameter; it has z, "),
        (("attacks", "run", "lie", "--aggregation", "nonsense"), "nonsense"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_starts(arguments, said):
    """Exit code 2 and one line, with what is allowed."""
    done = foltr(*arguments, "--data", "synthetic")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
