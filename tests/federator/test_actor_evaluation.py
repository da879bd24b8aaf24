"""Updates say what their lists earned, and rounds show it; it goes with its client."""

from dataclasses import replace

import pytest
from support.voting_devices import NAMES, ONES, forget, said

from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.trainings import FpdgdPaperTraining
from foltr.storage.queries import get_round
from foltr.storage.rounds import latest_round

GOOD, BAD = 0.8, 0.4


def earned(mean: float, name: str = "c") -> Evaluation:
    """Means that differ a little from device to device, around this one."""
    return Evaluation(clicked=1.0, reward=mean + 0.01 * (ord(name) - ord("c")), base_reward=0.5)


async def play(served, devices, mean: float | None, *, names=NAMES, vote: int | None = None) -> None:
    """One round in which all send, and say that their lists earned so much."""
    opened, anchor = await latest_round(served.db, "mail"), served.actor.state.anchor
    for name in names:
        told = {} if mean is None else {"evaluation": earned(mean, name)}
        if vote is not None:
            told["vote"] = said(anchor.version, vote)
        served.update(devices[name], opened.number, opened.base_version, body=ONES, **told)
    await served.turn()
    served.clock.at += 100.0
    await served.turn()


async def test_the_same_update_again_counts_once(voting) -> None:
    """The first bytes count, whatever the second say."""
    served, devices = await voting(evaluation=True)
    for mean in (GOOD, BAD):
        served.update(devices["c"], 1, 0, body=ONES, evaluation=earned(mean))
        await served.turn()
    row = await get_round(served.db, "mail", 1)
    assert (row.n_evaluations, row.reward) == (1, GOOD)


async def test_who_does_not_ask_stores_nothing(voting, restarted) -> None:
    """By its setting, at any start, or as the method adds noise; the update counts."""
    served, devices = await voting(evaluation=True)
    await play(served, devices, GOOD)
    off = await restarted(served, evaluation=False)
    await play(off, devices, GOOD)
    on = await restarted(off, evaluation=True)
    await play(on, devices, GOOD)
    assert [(await get_round(on.db, "mail", number)).n_evaluations for number in (1, 2, 3)] == [5, 0, 5]
    noisy = replace(served.plan, training=FpdgdPaperTraining(n_clients=4))
    assert not noisy.asks_for_evaluation
    assert "fpdgd-paper adds noise" in noisy.no_evaluation_because(None)


async def test_what_a_client_said_goes_with_it(voting) -> None:
    """Of the open round, too; the others' stays."""
    served, devices = await voting(evaluation=True)
    await play(served, devices, GOOD)
    served.update(devices["a"], 2, 1, body=ONES, evaluation=earned(BAD))
    served.update(devices["b"], 2, 1, body=ONES, evaluation=earned(GOOD))
    await served.turn()
    await forget(served, devices["a"])
    rows = [await get_round(served.db, "mail", number) for number in (1, 2)]
    assert [(row.n_evaluations, row.reward) for row in rows] == [(4, pytest.approx(GOOD + 0.005)), (1, GOOD)]
