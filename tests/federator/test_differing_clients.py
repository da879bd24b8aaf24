"""The option `differing` of the adaptive rule beside restarts, unlearning, quarantine and ingest workers."""

from dataclasses import replace

import numpy as np
import pytest
from support.databases import open_migrated
from support.federator_without_network import GENEROUS, Served
from support.leader_and_worker import TOPICS, new_worker
from support.unlearning_steps import forget, unlearn

from foltr.broker.link import InboundMessage
from foltr.core.aggregation.client_records import suspects_of
from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.rule_spec import RuleSpec, read_rule
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.federator.job import UnlearningPolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.keys import KeyStore
from foltr.storage.models import latest_model
from foltr.storage.queries import get_round, list_contributions, list_events, list_proposals, list_rounds

N_FEATURES = 4
USUAL = read_rule("adaptive", parameters={"patience": "3"})
DIFFERING = read_rule("adaptive", parameters={"differing": "1", "patience": "3"})
HOSTILE = ("mallory-1", "mallory-2")
LONG = ("archive-1", "archive-2")
NAMES = (*HOSTILE, *LONG, *(f"user-{i}" for i in range(1, 8)))
N_ROUNDS = 12
EAGER = UnlearningPolicy(Strategy.FED_ERASER, interval=4, every_s=0.0, swap_every_s=0.0, step_s=10.0)


def policy_of(rule: RuleSpec) -> RoundPolicy:
    return RoundPolicy(8, len(NAMES), 0.0, 60.0, rule=rule)


def honest(name: str, number: int) -> np.ndarray:
    """Nearly what the others send, in eight times as long steps of those who have long lists."""
    rng = np.random.default_rng([number, *name.encode()])
    step = 1.0 + 0.2 * rng.normal(size=N_FEATURES)
    return ((8.0 if name in LONG else 1.0) * step).astype(np.float32)


def body(name: str, number: int) -> DenseDelta:
    values = honest(name, number)
    return DenseDelta(dim=N_FEATURES, values=pack_vector(-values if name in HOSTILE else values))


async def play(served, devices, n_rounds: int) -> None:
    """Go on for so many rounds, which all of these devices are in."""
    for _ in range(n_rounds):
        opened = (await list_rounds(served.db, "mail"))[-1]
        for device in devices:
            served.update(device, opened.round, opened.base_version, body=body(device.client_id, opened.round))
        await served.turn()
        if len(devices) < len(NAMES):
            served.clock.at += 100.0
            await served.turn()


async def left_out(db, number: int) -> set[str]:
    rows = await list_contributions(db, "mail", round_number=number)
    return {row.client_id for row in rows if row.fate is Fate.DROPPED}


async def newest(db, n_rounds: int) -> list[int]:
    """The last rounds that made a model."""
    return [row.round for row in await list_rounds(db, "mail") if row.model_version is not None][-n_rounds:]


async def differences(db, *numbers: int) -> list[tuple[str, ...]]:
    recipes = await load_recipes(db, "mail")
    return [(await replay_round(db, recipes, number)).differs for number in numbers]


@pytest.fixture
async def federation(serve, operator):
    """Starts an actor with a rule, and has eleven devices play rounds: two are hostile, two have long lists."""

    async def start(rule: RuleSpec, strategy: Strategy = Strategy.FED_ERASER):
        served = await serve(
            policy_of(rule),
            n_features=N_FEATURES,
            unlearning=replace(EAGER, strategy=strategy),
            enrolment_key=operator.key.public,
        )
        devices = {name: operator.enrol(name) for name in NAMES}
        await served.join(devices.values())
        await play(served, devices.values(), N_ROUNDS)
        return served, devices

    return start


async def test_a_restart_lets_in_who_differs_from_the_next_round_on(federation, restarted) -> None:
    """The open round keeps the rule that it was opened with; a restart without the option leaves them out again."""
    served, devices = await federation(USUAL)
    assert await left_out(served.db, N_ROUNDS) == {*HOSTILE, *LONG}
    for rule, expected in ((DIFFERING, set(HOSTILE)), (USUAL, {*HOSTILE, *LONG})):
        before = await left_out(served.db, *await newest(served.db, 1))
        served = await restarted(served, policy=policy_of(rule))
        await play(served, devices.values(), 2)
        assert [await left_out(served.db, number) for number in await newest(served.db, 2)] == [before, expected]
    stored = [(await get_round(served.db, "mail", N_ROUNDS + n)).aggregation_parameters for n in range(1, 5)]
    assert ["differing" in parameters for parameters in stored] == [False, True, True, False]
    assert await differences(served.db, *range(N_ROUNDS, N_ROUNDS + 5)) == [()] * 5


@pytest.mark.parametrize(
    ("strategy", "at_first"),
    [
        (Strategy.FED_ERASER, DIFFERING),
        (Strategy.RELEARN, USUAL),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in ((Strategy.ROLLBACK, DIFFERING), (Strategy.FED_ERASER, USUAL), (Strategy.RELEARN, DIFFERING))
        ),
    ],
)
async def test_who_differs_is_in_what_is_learned_again(federation, restarted, strategy, at_first) -> None:
    """The hostile ones are not, also if the option comes by a restart while a client is forgotten."""
    served, devices = await federation(at_first, strategy)
    await forget(served, devices.pop("user-7"))
    if at_first is USUAL:
        served = await restarted(served, policy=policy_of(DIFFERING))
    await unlearn(served, devices.values(), honest)
    await play(served, devices.values(), 3)
    assert [str(job.state) for job in await list_jobs(served.db, "mail")] == ["done"]
    numbers = await newest(served.db, 2)
    assert [await left_out(served.db, number) for number in numbers] == [set(HOSTILE)] * 2
    assert await differences(served.db, *numbers) == [(), ()]
    assert suspects_of((await latest_model(served.db, "mail")).defence_state) == set(HOSTILE)


async def test_nobody_is_proposed_for_quarantine_for_differing(federation, operator) -> None:
    """Only the hostile are; one that is let out again is left out at once, as what is known of it stays."""
    served, devices = await federation(DIFFERING)
    assert {row.client_id for row in await list_proposals(served.db, "mail")} == set(HOSTILE)

    async def order(statement) -> None:
        served.actor.receive(InboundMessage(statement.topic, statement.payload, retained=False))
        await served.turn()

    await order(operator.quarantines(HOSTILE[0], 1))
    await order(operator.quarantines(LONG[0], 2))
    rest = [device for name, device in devices.items() if name not in {HOSTILE[0], LONG[0]}]
    await play(served, rest, 2)
    assert await left_out(served.db, *await newest(served.db, 1)) == {HOSTILE[1]}
    await order(operator.lifts(HOSTILE[0], 3))
    await order(operator.lifts(LONG[0], 4))
    await play(served, devices.values(), 2)
    (number,) = await newest(served.db, 1)
    assert await left_out(served.db, number) == set(HOSTILE)
    assert await differences(served.db, number) == [()]
    raised = {event.client_id for event in await list_events(served.db, "mail", kind="defence_raised")}
    assert raised == set(HOSTILE)


async def test_several_workers_store_what_differs(tmp_path, operator, federation) -> None:
    """A leader that reads updates which two workers have stored judges as one that took them itself."""
    alone, _ = await federation(DIFFERING)
    expected = [await left_out(alone.db, number) for number in range(1, N_ROUNDS + 1)]
    assert expected[-1] == set(HOSTILE)
    made = (await latest_model(alone.db, "mail")).weights
    plan = FederationPlan("mail", N_FEATURES, policy_of(DIFFERING), enrolment_key=operator.key.public)
    async with await open_migrated(f"sqlite:///{tmp_path}/shared.sqlite", KeyStore(tmp_path / "others")) as db:
        leader = Served(db, plan, GENEROUS, shares=True)
        await leader.actor.start()
        devices = [operator.enrol(name) for name in NAMES]
        await leader.join(devices)
        await leader.sharing.start(leader.actor.state)
        workers = [(await new_worker(db, plan, leader.clock, name))[0] for name in ("one", "two")]
        for number in range(1, N_ROUNDS + 1):
            model = await latest_model(db, "mail")
            for place, device in enumerate(devices):
                update = device.update(number, number - 1, f"{number:032x}", 100 * (number - 1))
                update = update.model_copy(
                    update={"base_hash": model.weights_hash, "body": body(device.client_id, number)}
                )
                payload = device.payload(ClientTopic.UPDATES, update, number)
                topic = TOPICS.client(device.client_id, ClientTopic.UPDATES)
                workers[place % 2].receive(InboundMessage(topic, payload, False))
            for worker in workers:
                await worker.turn()
            await leader.actor.turn_if_due(leader.clock.now())
        assert [await left_out(db, number) for number in range(1, N_ROUNDS + 1)] == expected
        assert (await latest_model(db, "mail")).weights == made
        assert await differences(db, N_ROUNDS) == [()]
        await leader.actor.close()
