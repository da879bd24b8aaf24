"""Updates say what their lists earned, and rounds show it; it goes with its client."""

from dataclasses import replace

import pytest
from support.backups import back_up, restore
from support.voting_devices import BACK, NAMES, ONES, forget, said, unlearn

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


def credited(total: float, squares: float) -> Evaluation:
    return Evaluation(clicked=1.0, reward=0.5, base_reward=0.5, credit_total=total, credit_squares=squares)


async def credit(served, devices, totals: dict[str, float], vote: int | None = None) -> None:
    """One round in which devices say what their interleaved lists, of which each has four, credited."""
    opened, anchor = await latest_round(served.db, "mail"), served.actor.state.anchor
    for name, total in totals.items():
        told = {"evaluation": credited(total, 4.0)} if vote is None else {"vote": said(anchor.version, vote)}
        served.update(devices[name], opened.number, opened.base_version, body=ONES, **told)
    await served.turn()
    served.clock.at += 100.0
    await served.turn()


def shared(served) -> tuple[float, float]:
    return served.shown.evaluation.credit_total, served.shown.evaluation.credit_squares


GIVEN = {"a": 3.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0}


async def test_the_credits_of_all_but_the_most_favourable_client_are_announced(voting, restarted) -> None:
    """After each round with a model, and by the next federator; none before, and none of who does not ask."""
    served, devices = await voting(evaluation=True)
    assert shared(served) == (0.0, 0.0)
    await credit(served, devices, GIVEN)
    await credit(served, devices, GIVEN)
    assert shared(served) == (8.0, 40.0)
    assert shared(await restarted(served)) == (8.0, 40.0)
    assert (await restarted(served, evaluation=False)).shown.evaluation is None


async def test_credits_of_models_that_were_taken_back_count_no_more(voting) -> None:
    """Devices send none of these, either; an update that trained from one is refused anyway."""
    served, devices = await voting(evaluation=True)
    await credit(served, devices, GIVEN)
    await credit(served, devices, GIVEN)
    assert served.shown.evaluation.credits_since == 0
    await credit(served, devices, dict.fromkeys(NAMES, 0.0), vote=-1)
    assert served.actor.state.restored
    assert shared(served) == (0.0, 0.0)
    assert served.shown.evaluation.credits_since == served.shown.model.version
    await credit(served, devices, GIVEN)
    assert shared(served) == (4.0, 20.0)


async def test_the_credits_of_an_erased_client_go_with_it(voting) -> None:
    """Before the next round ends; those of the rest stay until the model without it is served."""
    served, devices = await voting(evaluation=True, unlearning=BACK)
    await credit(served, devices, GIVEN)
    await forget(served, devices.pop("b"))
    assert shared(served) == (3.0, 16.0)
    await unlearn(served, devices)
    assert shared(served) == (0.0, 0.0)
    assert served.shown.evaluation.credits_since == served.shown.model.version > 1


async def test_an_update_that_is_heard_again_credits_once(voting, restarted) -> None:
    """Whichever federator hears it, in its round and later."""
    served, devices = await voting(evaluation=True)
    heard, receive = [], served.actor.receive
    served.actor.receive = lambda message: (heard.append(message), receive(message))
    await credit(served, devices, GIVEN)
    once = shared(served)
    for message in heard * 2:
        receive(message)
    await served.turn()
    await credit(served, devices, GIVEN)
    twice = shared(served)
    assert twice == (2 * once[0], 2 * once[1])
    following = await restarted(served)
    for message in heard:
        following.actor.receive(message)
    await following.turn()
    assert shared(following) == twice
    await credit(following, devices, GIVEN)
    assert shared(following) == (3 * once[0], 3 * once[1])


async def test_credits_of_rounds_that_a_restore_undoes_count_once_they_are_sent_again(voting, restarted) -> None:
    served, devices = await voting(evaluation=True)
    await credit(served, devices, GIVEN)
    once, copy = shared(served), await back_up(served.db)
    await credit(served, devices, GIVEN)
    twice = shared(served)
    await restore(served.db, copy)
    following = await restarted(served)
    assert shared(following) == once
    await credit(following, devices, GIVEN)
    assert shared(following) == twice
