"""The adaptive rule and unlearning: to be forgotten lets nobody else back in, neither into rounds nor into steps."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from support.deaths import dying_at
from support.unlearning_steps import forget, unlearn

from foltr.core.aggregation.client_records import ClientRecords, suspects_of
from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.states import RoundState, Strategy
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.models import get_model, latest_model
from foltr.storage.queries import list_contributions, list_rounds

N_FEATURES = 4
ATTACKERS = ("mallory-1", "mallory-2", "mallory-3")
SYBIL = "sybil"
HONEST = tuple(f"user-{i}" for i in range(1, 8))
NAMES = (*ATTACKERS, SYBIL, *HONEST)
ADAPTIVE = RoundPolicy(10, 11, 0.0, 60.0, rule=read_rule("adaptive"))
EAGER = UnlearningPolicy(Strategy.FED_ERASER, interval=4, every_s=0.0, swap_every_s=0.0, step_s=10.0)
N_ROUNDS = 12


def honest(name: str, number: int) -> np.ndarray:
    """Nearly what all others send in a round, or answer to a step."""
    rng = np.random.default_rng([number, *name.encode()])
    return (1.0 + 0.2 * rng.normal(size=N_FEATURES)).astype(np.float32)


def hostile(name: str, number: int) -> np.ndarray:
    """The opposite, of those who attack."""
    return -honest(name, number) if name in ATTACKERS else honest(name, number)


def body_of(values: np.ndarray) -> DenseDelta:
    return DenseDelta(dim=N_FEATURES, values=pack_vector(values))


async def play(served, devices, n_rounds: int) -> None:
    """Go on for so many rounds, which all of these devices are in."""
    for _ in range(n_rounds):
        opened = (await list_rounds(served.db, "mail"))[-1]
        for device in devices:
            body = body_of(hostile(device.client_id, opened.round))
            served.update(device, opened.round, opened.base_version, body=body)
        await served.turn()
        if len(devices) < ADAPTIVE.max_clients:
            served.clock.at += 100.0
            await served.turn()


async def left_out(served, since: int) -> dict[int, set[str]]:
    """Whose updates were left out of each completed round from one on."""
    rows = [row for row in await list_contributions(served.db, "mail") if row.round >= since]
    completed = {row.round for row in rows if row.round_state == "completed"}
    return {
        number: {row.client_id for row in rows if row.round == number and row.fate is Fate.DROPPED}
        for number in completed
    }


async def evidence(served) -> ClientRecords:
    model = await latest_model(served.db, "mail")
    return ClientRecords.from_bytes(model.defence_state, N_FEATURES)


@pytest.fixture
def strategy() -> Strategy:
    return Strategy.FED_ERASER


@pytest.fixture
async def attacked(serve, unsigned, strategy):
    """Eleven devices, three of which are found to be hostile."""
    served = await serve(ADAPTIVE, n_features=N_FEATURES, unlearning=replace(EAGER, strategy=strategy))
    devices = {name: unsigned(name) for name in NAMES}
    await served.join(devices.values())
    await play(served, devices.values(), N_ROUNDS)
    assert served.actor.rounds.suspects() == set(ATTACKERS)
    return served, devices


@pytest.mark.parametrize(
    ("strategy", "restarts"),
    [
        (Strategy.ROLLBACK, True),
        (Strategy.FED_ERASER, False),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in product(Strategy, (False, True))
            if each not in {(Strategy.ROLLBACK, True), (Strategy.FED_ERASER, False)}
        ),
    ],
)
async def test_who_is_left_out_stays_left_out_when_an_accomplice_is_forgotten(
    attacked, serve, strategy, restarts
) -> None:
    """In every round after the swap, whoever is the federator by then, though they answer steps as all others."""
    served, devices = attacked
    await forget(served, devices.pop(SYBIL))
    if restarts:
        now = served.clock.at
        served = await serve(ADAPTIVE, n_features=N_FEATURES, unlearning=replace(EAGER, strategy=strategy))
        served.clock.at = now
        await served.turn()
    await unlearn(served, devices.values(), honest)
    await play(served, devices.values(), 5)
    swapped = (await list_jobs(served.db, "mail"))[0].model_version
    since = next(row.round for row in await list_rounds(served.db, "mail") if row.base_version >= swapped)
    assert list((await left_out(served, since)).values()) == [set(ATTACKERS)] * 5


async def test_no_step_has_what_the_suspected_answer(attacked) -> None:
    """The model is what the others' answers make, whatever comes of the suspected."""
    served, devices = attacked
    await forget(served, devices.pop(SYBIL))
    await unlearn(served, devices.values(), hostile)
    # There are so few rounds that each has its step, and all answer that with what they sent.
    expected = sum(np.mean([honest(name, step) for name in HONEST], axis=0) for step in range(1, N_ROUNDS + 1))
    (job,) = await list_jobs(served.db, "mail")
    model = await get_model(served.db, "mail", job.model_version)
    # What theirs would be worth is ten times the tolerance; of others' answers budgets may let through a little less.
    np.testing.assert_allclose(unpack_vector(model.weights), expected, rtol=0.02)
    assert job.coverage == 1.0  # of the others' updates that count


@pytest.mark.parametrize("strategy", [Strategy.ROLLBACK, Strategy.RELEARN])
async def test_a_federator_that_dies_in_the_swap_has_changed_nothing(attacked, serve, strategy) -> None:
    """The next one swaps, with the same evidence; and what follows can be replayed."""
    served, devices = attacked
    before = await evidence(served)
    with dying_at(Failpoint.IN_SWAP_TRANSACTION, "storage.erasure.unlearning_jobs"):
        await forget(served, devices.pop(SYBIL))
        await unlearn(served, devices.values(), honest)
    now = served.clock.at
    assert (await latest_model(served.db, "mail")).version == N_ROUNDS
    served = await serve(ADAPTIVE, n_features=N_FEATURES, unlearning=replace(EAGER, strategy=strategy))
    served.clock.at = now + 1.0
    await served.turn()
    await unlearn(served, devices.values(), honest)
    after = await evidence(served)
    assert after.clients.tobytes() == before.for_clients(after.client_ids).tobytes()
    await play(served, devices.values(), 2)
    last = [row.round for row in await list_rounds(served.db, "mail") if row.state is RoundState.COMPLETED][-2:]
    assert list((await left_out(served, last[0])).values()) == [set(ATTACKERS)] * 2
    recipes = await load_recipes(served.db, "mail")
    assert [(await replay_round(served.db, recipes, number)).differs for number in last] == [(), ()]


async def test_a_rule_that_judges_nobody_suspects_nobody(attacked, serve) -> None:
    """What another rule had against clients stays, for when it is chosen again, and leaves nobody out meanwhile."""
    served, _ = attacked
    plain = await serve(replace(ADAPTIVE, rule=read_rule("mean")), n_features=N_FEATURES, unlearning=EAGER)
    assert plain.actor.rounds.suspects() == set()
    assert suspects_of((await latest_model(served.db, "mail")).defence_state) == set(ATTACKERS)
