"""A stored round, aggregated again: the same bits for every rule and method, and no verdict where something is gone."""

from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import update
from support.federator_without_network import GENEROUS, Served
from support.unlearning_steps import forget, unlearn

from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.errors import DataError, SettingsError
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.states import Pacing, Strategy
from foltr.core.protocol.trainings import EvolutionTraining, FedIpsTraining
from foltr.core.protocol.updates import DenseDelta, EvolutionPair
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.federator.job import UnlearningPolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.aggregation_tables import trainings
from foltr.storage.database import Database
from foltr.storage.keys import KeyStore
from foltr.storage.model_tables import models
from foltr.storage.models import get_model, latest_model
from foltr.storage.queries import list_rounds
from foltr.storage.retention import delete_old_bodies

N_FEATURES = 6
NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace")
SEVEN = RoundPolicy(7, 7, 0.0, 60.0)
EVOLUTION = EvolutionTraining(noise_scale=0.1, server_learning_rate=0.5)
EAGER = UnlearningPolicy(Strategy.ROLLBACK, interval=1, every_s=0.0, swap_every_s=0.0, step_s=10.0)
ADAPTIVE = replace(SEVEN, rule=read_rule("adaptive"))
RULES = {
    "mean": read_rule("mean"),
    "krum": read_rule("krum", byzantine=1),
    "multi-krum": read_rule("multi-krum", byzantine=1),
    "trimmed-mean": read_rule("trimmed-mean", byzantine=1),
    "median": read_rule("median"),
    "bulyan": read_rule("bulyan", byzantine=1),
    "geometric-median": read_rule("geometric-median"),
    "centred-clipping": read_rule("centred-clipping"),
    "norm-bounding": read_rule("norm-bounding"),
    "adaptive": read_rule("adaptive"),
    "nnm+krum": read_rule("nnm+krum", byzantine=1),
    "bucketing+trimmed-mean": read_rule(
        "bucketing+trimmed-mean", byzantine=1, parameters={"bucket_size": 2, "beyond_bounds": True}
    ),
}


@pytest.fixture
async def joined(serve, unsigned):
    """Starts an actor and has seven devices join."""

    async def start(policy=SEVEN, **plan):
        served = await serve(policy, n_features=N_FEATURES, **({"unlearning": EAGER} | plan))
        devices = [unsigned(name) for name in NAMES]
        await served.join(devices)
        return served, devices

    return start


def body_of(training, rng):
    if isinstance(training, EvolutionTraining):
        plus, minus = rng.random(2)
        return EvolutionPair(seed=int(rng.integers(2**40)), plus=float(plus), minus=float(minus))
    return DenseDelta(dim=N_FEATURES, values=pack_vector(rng.normal(size=N_FEATURES) + 0.5))


async def play(served, devices, n_rounds, rng, training=None, *, closes=False):
    """So many rounds, the last device first; the order of arrival must not matter."""
    for number in range(1, n_rounds + 1):
        for device in reversed(devices):
            n_interactions = int(rng.integers(1, 6))
            served.update(device, number, number - 1, body=body_of(training, rng), n_interactions=n_interactions)
        await served.turn()
        if closes:
            served.clock.at += 1.0
            await served.turn()
    assert (await latest_model(served.db, "mail")).version == n_rounds


OFTEN = ("mean", "adaptive", "geometric-median", "bucketing+trimmed-mean")


@pytest.mark.parametrize(
    "rule", [rule if rule in OFTEN else pytest.param(rule, marks=pytest.mark.nightly) for rule in RULES]
)
async def test_every_rule_repeats_bit_for_bit(joined, rng, rule):
    """Also the draw of buckets, and what the adaptive rule remembers, which only the newest model has."""
    served, devices = await joined(replace(SEVEN, rule=RULES[rule]))
    await play(served, devices, 4, rng)
    recipes = await load_recipes(served.db, "mail")
    for number in (1, 3, 4):
        found = await replay_round(served.db, recipes, number)
        assert found.differs == ()
        assert pack_vector(found.made) == (await get_model(served.db, "mail", number)).weights
    assert ((await latest_model(served.db, "mail")).defence_state is not None) is (rule == "adaptive")


async def test_a_fallback_repeats_too(joined, rng):
    """Krum needs nine to withstand three; seven came."""
    served, devices = await joined(RoundPolicy(7, 9, 0.0, 60.0, rule=read_rule("krum", byzantine=3)))
    await play(served, devices, 2, rng)
    assert [row.rule for row in await list_rounds(served.db, "mail")] == ["median", "median", None]
    assert (await replay_round(served.db, await load_recipes(served.db, "mail"), 2)).differs == ()


@pytest.mark.parametrize("training", [EVOLUTION, FedIpsTraining(server_learning_rate=0.25)], ids=["foltr-es", "fedips"])
async def test_a_methods_optimiser_and_step_repeat(joined, rng, training):
    """With the method's settings that are stored; others make another model."""
    served, devices = await joined(training=training)
    await play(served, devices, 3, rng, training)
    recipes = await load_recipes(served.db, "mail")
    for number in (1, 2, 3):
        assert (await replay_round(served.db, recipes, number)).differs == ()
    other = replace(recipes, trainings={1: training.model_copy(update={"server_learning_rate": 0.125})})
    (differs,) = (await replay_round(served.db, other, 2)).differs
    assert differs.startswith(f"{N_FEATURES} of {N_FEATURES} weights")


@pytest.mark.parametrize("rule", [pytest.param("mean", marks=pytest.mark.nightly), "adaptive"])
async def test_a_buffered_round_weighs_by_age_again(joined, rng, rule):
    """As the stored base versions say: the second buffer is filled with updates of the first model."""
    policy = RoundPolicy(4, 4, 0.0, 60.0, pacing=Pacing.BUFFERED, staleness_limit=9, staleness_exponent=0.5)
    served, devices = await joined(replace(policy, rule=RULES[rule]))
    for number, of_round in ((1, devices[:4]), (2, devices[3:])):
        for device in of_round:
            served.update(device, number, 0, body=body_of(None, rng))
        await served.turn()
    recipes = await load_recipes(served.db, "mail")
    for number in (1, 2):
        assert (await replay_round(served.db, recipes, number)).differs == ()


async def test_a_round_repeats_on_every_database(migrated_url, tmp_path, unsigned, rng):
    """The order of clients is the same on SQLite and PostgreSQL."""
    async with await Database.connect(migrated_url, keys=KeyStore(tmp_path / "keys")) as db:
        served = Served(db, FederationPlan("mail", N_FEATURES, ADAPTIVE), GENEROUS)
        await served.actor.start()
        devices = [unsigned(name) for name in ("Zoe", "a-1", "a_1", "a.1", "A", "b", "10")]
        await served.join(devices)
        await play(served, devices, 3, rng)
        told: list[int] = []
        assert (await replay_round(db, await load_recipes(db, "mail"), 3, told.append)).differs == ()
        assert told == [1, 2, 3]


async def test_a_model_that_was_changed_differs(joined, rng):
    """By how much is said."""
    served, devices = await joined()
    await play(served, devices, 2, rng)
    weights = unpack_vector((await get_model(served.db, "mail", 2)).weights).copy()
    weights[3] += 0.5
    async with served.db.transaction() as connection:
        await connection.execute(update(models).where(models.c.version == 2).values(weights=pack_vector(weights)))
    found = await replay_round(served.db, await load_recipes(served.db, "mail"), 2)
    assert found.differs == ("1 of 6 weights, by at most 0.5",)
    assert found.stored.tolist() == weights.tolist()


async def test_what_cannot_be_replayed_is_no_verdict(joined, rng):
    """An open round, one that never was, settings that make models of another size, and none that are stored."""
    served, devices = await joined()
    await play(served, devices, 1, rng)
    recipes = await load_recipes(served.db, "mail")
    with pytest.raises(DataError, match="round 2 is collecting and has made no model"):
        await replay_round(served.db, recipes, 2)
    with pytest.raises(SettingsError, match="has no round 9; see: foltr rounds list"):
        await replay_round(served.db, recipes, 9)
    estimated = replace(recipes, trainings={1: FedIpsTraining(propensities="estimated")})
    with pytest.raises(DataError, match=r"model 0 has 6 values, and with the settings .* it would have 13"):
        await replay_round(served.db, estimated, 1)
    async with served.db.transaction() as connection:
        await connection.execute(update(trainings).values(from_round=2))
    recipes = await load_recipes(served.db, "mail")
    with pytest.raises(DataError, match="what round 1 was computed with is not stored: restore the database"):
        await replay_round(served.db, recipes, 1)
    async with served.db.transaction() as connection:
        await connection.execute(update(trainings).values(training='{"kind":"of-tomorrow"}'))
    with pytest.raises(DataError, match=r"this foltr does not know the stored settings of a method: .*of-tomorrow"):
        await load_recipes(served.db, "mail")
    with pytest.raises(SettingsError, match="has no federation 'web'"):
        await load_recipes(served.db, "web")


async def test_a_thinned_round_says_so(joined, rng):
    """And the adaptive rule cannot judge a later one without it; a mean of a later one can be had."""
    served, devices = await joined(ADAPTIVE)
    await play(served, devices, 4, rng)
    await delete_old_bodies(served.db, "mail", served.actor.epoch, before_round=3, interval=10)
    recipes = await load_recipes(served.db, "mail")
    with pytest.raises(
        DataError, match="round 2 cannot be replayed: gone, because the round was thinned: 7 of its 7 updates"
    ):
        await replay_round(served.db, recipes, 2)
    with pytest.raises(DataError, match=r"adaptive rule used all rounds before it.*of round 2 gone.*thinned"):
        await replay_round(served.db, recipes, 4)
    assert (await replay_round(served.db, recipes, 1)).differs == ()


async def test_a_client_that_is_forgotten_later_is_gone_from_what_was_kept(joined, rng):
    """Also one that has sent nothing since the swap. What judged it beside the others cannot be repeated then."""
    served, devices = await joined(RoundPolicy(5, 7, 0.0, 60.0, rule=RULES["adaptive"]))
    await play(served, devices, 2, rng)
    await forget(served, devices[0])
    await unlearn(served, devices[1:], np.ones(N_FEATURES))
    await play_on(served, devices[2:], rng, 4, 5)
    recipes = await load_recipes(served.db, "mail")
    assert (await replay_round(served.db, recipes, 5)).differs == ()
    await forget(served, devices[1])
    with pytest.raises(DataError, match="what it had been given with model 3 is not whole, as clients were erased"):
        await replay_round(served.db, recipes, 5)


async def test_a_swap_takes_no_evidence_from_rounds_before_another(joined, rng):
    """Each round is judged by what the newest swap before it was given, however many there were since."""
    served, devices = await joined(RoundPolicy(4, 7, 0.0, 60.0, rule=RULES["adaptive"]))
    await play(served, devices[:6], 2, rng, closes=True)
    await forget(served, devices[0])
    await unlearn(served, devices[1:], np.ones(N_FEATURES))
    await play_on(served, devices[1:6], rng, 4, 5)
    await play_on(served, devices[1:], rng, 6)
    await forget(served, devices[6])
    await unlearn(served, devices[1:6], np.ones(N_FEATURES))
    newest = (await list_rounds(served.db, "mail"))[-1].round
    await play_on(served, devices[1:6], rng, newest, newest + 1)
    recipes = await load_recipes(served.db, "mail")
    for number in (4, 5, newest, newest + 1):
        assert (await replay_round(served.db, recipes, number)).differs == ()


async def play_on(served, devices, rng, *numbers):
    """These rounds, which do not wait for all."""
    for number in numbers:
        base = (await latest_model(served.db, "mail")).version
        for device in devices:
            served.update(device, number, base, body=body_of(None, rng))
        await served.turn()
        served.clock.at += 1.0
        await served.turn()


async def test_settings_may_change_with_the_federator(joined, serve, rng):
    """Each round repeats with those of the federator that ended it, also one that another had opened."""
    at_first = EVOLUTION.model_copy(update={"server_learning_rate": 0.25})
    served, devices = await joined(training=at_first)
    await play(served, devices, 2, rng, at_first)
    for device in devices[:3]:
        served.update(device, 3, 2, body=body_of(at_first, rng))
    await served.turn()
    for first, training in ((3, EVOLUTION), (4, EVOLUTION), (5, at_first)):
        served = await serve(SEVEN, n_features=N_FEATURES, unlearning=EAGER, training=training)
        for device in devices[3:] if first == 3 else devices:
            served.update(device, first, first - 1, body=body_of(training, rng))
        await served.turn()
    recipes = await load_recipes(served.db, "mail")
    assert recipes.trainings == {1: at_first, 3: EVOLUTION, 5: at_first}
    for number in range(1, 6):
        assert (await replay_round(served.db, recipes, number)).differs == ()


@pytest.mark.parametrize("rule", [pytest.param("mean", marks=pytest.mark.nightly), "adaptive"])
async def test_after_unlearning_rounds_repeat_again(joined, rng, rule):
    """From the unlearned model on, and by what the adaptive rule was given with it; those before need who is gone."""
    served, devices = await joined(RoundPolicy(5, 7, 0.0, 60.0, rule=RULES[rule]))
    await play(served, devices, 2, rng)
    await forget(served, devices[0])
    await unlearn(served, devices[1:], np.ones(N_FEATURES))
    await play_on(served, devices[1:], rng, 4, 5)
    states = [(row.round, row.state, row.base_version) for row in await list_rounds(served.db, "mail")]
    assert states[2:] == [(3, "abandoned", 2), (4, "completed", 3), (5, "completed", 4), (6, "collecting", 5)]
    recipes = await load_recipes(served.db, "mail")
    for number in (4, 5):
        told: list[int] = []
        assert (await replay_round(served.db, recipes, number, told.append)).differs == ()
        assert told == ([4, 5][: number - 3] if rule == "adaptive" else [number])
    for number, why in (
        (1, "gone, because clients were erased: 1 of its 7"),
        (2, "gone, because an erased client was in it: model 1"),
    ):
        with pytest.raises(DataError, match=f"round {number} cannot be replayed: .*{why}"):
            await replay_round(served.db, recipes, number)
