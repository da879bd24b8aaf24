"""Rounds of suspects only make no model until nobody else has come for long; what is stored says since when."""

from collections.abc import Iterable

import numpy as np
import pytest
from support.voting_devices import D

import foltr.core.aggregation.reference_clients
from foltr.core.aggregation.client_records import suspects_of
from foltr.core.aggregation.reference_clients import LEAST_TIME_ALONE
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.federator.round import RoundPolicy
from foltr.storage.evaluations import count_suspects_alone
from foltr.storage.models import latest_model
from foltr.storage.queries import get_round, list_events
from foltr.storage.rounds import latest_round

LONG = 8
ADAPTIVE = RoundPolicy(1, 20, 60.0, 60.0, rule=read_rule("adaptive"))
NAMES = tuple("abcdefghij")
HOSTILE = NAMES[:4]


@pytest.fixture
async def found(voting, operator, monkeypatch):
    """A federation of ten that has found out its four attackers; it takes fewer rounds to be away for long."""
    monkeypatch.setattr(foltr.core.aggregation.reference_clients, "_ACTIVE", LONG)
    served, devices = await voting(ADAPTIVE, anchor=False, evaluation=True)
    devices |= {name: operator.enrol(name) for name in NAMES[len(devices) :]}
    await served.join([devices[name] for name in NAMES[5:]])
    rng = np.random.default_rng(5)
    for _ in range(14):
        await play(served, devices, NAMES, rng, hostile=HOSTILE)
    assert await suspects(served) == set(HOSTILE)
    return served, devices, rng


async def play(served, devices, names: Iterable[str], rng, *, hostile: Iterable[str] = (), credited=None) -> None:
    """One round of these devices, which pull the same way but for the hostile ones.

    Args:
        credited: by name, the credits that a device reports; None: nobody reports.
    """
    opened = await latest_round(served.db, "mail")
    for name in names:
        values = np.ones(D) + 0.5 * rng.normal(size=D)
        body = DenseDelta(dim=D, values=pack_vector(-values if name in hostile else values))
        told = None if credited is None else reporting(credited[name])
        served.update(devices[name], opened.number, opened.base_version, body=body, evaluation=told)
    await served.turn()
    if served.actor.state.round.number == opened.number:
        served.clock.at += 100.0
        await served.turn()


def reporting(total: float) -> Evaluation:
    return Evaluation(clicked=1.0, reward=0.5, base_reward=0.5, credit_total=total, credit_squares=4.0)


async def suspects(served) -> set[str]:
    return set(suspects_of((await latest_model(served.db, "mail")).defence_state))


async def newest(served) -> int:
    return (await latest_model(served.db, "mail")).version


async def test_suspects_alone_come_back_after_long_and_every_round_can_be_replayed(found, restarted) -> None:
    """Over a restart in between; a round says why it made no model, and later ones follow from what is stored."""
    served, devices, rng = found
    before = await newest(served)
    for number in range(LONG):
        await play(served, devices, HOSTILE, rng)
        assert await newest(served) == before
        if number == LONG // 2:
            served = await restarted(served)
    opened = await latest_round(served.db, "mail")
    assert (await get_round(served.db, "mail", opened.number - 1)).reason == "only_suspects"
    assert await count_suspects_alone(served.db, "mail", opened.number) == 0, "a week has not passed"
    served.clock.at += LEAST_TIME_ALONE.total_seconds()
    await play(served, devices, (), rng)
    opened = await latest_round(served.db, "mail")
    assert await count_suspects_alone(served.db, "mail", opened.number) == LONG
    (told, *_) = await list_events(served.db, "mail", kind="round_abandoned")
    assert "4 updates, and each is of a suspected client" in told.detail
    for _ in range(3):
        await play(served, devices, HOSTILE, rng)
    assert await newest(served) == before + 3
    assert not await suspects(served)
    recipes = await load_recipes(served.db, "mail")
    for number in (opened.number - LONG - 2, opened.number, opened.number + 2):
        assert (await replay_round(served.db, recipes, number)).differs == ()


async def test_who_is_away_for_less_is_not_replaced(found) -> None:
    """A model in between, of whoever else came, begins the time anew; what is remembered is as if nothing had been."""
    served, devices, rng = found
    for _ in range(3):
        before = await latest_model(served.db, "mail")
        served.clock.at += LEAST_TIME_ALONE.total_seconds()
        for _ in range(LONG - 1):
            await play(served, devices, HOSTILE, rng, hostile=HOSTILE)
        assert await latest_model(served.db, "mail") == before
        await play(served, devices, NAMES, rng, hostile=HOSTILE)
        assert await suspects(served) == set(HOSTILE)
        assert await count_suspects_alone(served.db, "mail", (await latest_round(served.db, "mail")).number) == 0


async def test_full_rounds_do_not_count(found, restarted) -> None:
    """Whoever is faster than all others would be alone by that."""
    served, devices, rng = found
    served = await restarted(served, policy=RoundPolicy(1, 4, 60.0, 60.0, rule=read_rule("adaptive")))
    await play(served, devices, (), rng)  # the open round is of the policy of before
    before = await newest(served)
    served.clock.at += LEAST_TIME_ALONE.total_seconds()
    for _ in range(2 * LONG):
        await play(served, devices, HOSTILE, rng)
    assert await newest(served) == before
    number = (await latest_round(served.db, "mail")).number
    assert (await get_round(served.db, "mail", number - 1)).reason == "only_suspects"
    assert await count_suspects_alone(served.db, "mail", number) == 0


async def test_what_suspects_report_opens_no_gate(found, restarted) -> None:
    """They are too many to be left out as liars; the next federator knows them, too, and replays the round."""
    served, devices, rng = found
    number = (await latest_round(served.db, "mail")).number
    credited = {name: 4.0 if name in HOSTILE else -1.0 for name in NAMES}
    await play(served, devices, NAMES, rng, hostile=HOSTILE, credited=credited)
    assert await suspects(served) == set(HOSTILE)
    for following in (served, await restarted(served)):
        announced = following.shown.evaluation
        assert (announced.credit_total, announced.credit_squares) == (-6.0, 24.0)
    recipes = await load_recipes(served.db, "mail")
    assert (await replay_round(served.db, recipes, number)).differs == ()
