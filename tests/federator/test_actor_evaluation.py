"""Updates say what their lists earned: rounds show it, and three that earn less have a model taken back, if asked."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from backups import back_up, restore
from msgpack import unpackb
from voted import NAMES, ONES, STEPWISE, D, forget, order, origins, said, unlearn

import foltr.storage.anchors
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.orders import QuarantineClient
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.trainings import FpdgdPaperTraining
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.errors import WriterFencedError
from foltr.storage.models import get_anchor, latest_model
from foltr.storage.queries import get_round, list_events
from foltr.storage.rounds import latest_round

GOOD, BAD = 0.8, 0.4
RULED = {"evaluation": True, "evaluation_take_back": True}


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
    if len(names) < served.plan.policy.max_clients:
        served.clock.at += 100.0
        await served.turn()


async def decline(served, devices) -> None:
    """Rounds 1 to 6 that are good, and 7 to 9 that are bad: the last has model 8 taken back, for model 1."""
    for mean in (*[GOOD] * 6, *[BAD] * 3):
        await play(served, devices, mean)


async def taken_back(served) -> list[tuple[int, int]]:
    return [(version, restored) for version, _, restored in await origins(served) if restored is not None]


# --- what rounds show -------------------------------------------------------------------------------------------


async def test_a_round_shows_what_its_updates_said(voting) -> None:
    """One that is sent again counts once, as its update does; one that was refused does not."""
    served, devices = await voting(evaluation=True)
    await play(served, devices, GOOD, names="abc")
    row = await get_round(served.db, "mail", 1)
    assert (row.n_evaluations, row.clicked, row.reward) == (3, 1.0, pytest.approx(GOOD - 0.01))
    served.receipts.sent.clear()
    served.update(devices["d"], 1, 0, body=ONES, evaluation=earned(BAD))
    await served.turn()
    assert set(served.receipts.codes()) == {ReceiptCode.LATE}
    assert (await get_round(served.db, "mail", 1)).n_evaluations == 3


async def test_the_same_update_again_counts_once(voting) -> None:
    """The first bytes count, whatever the second say."""
    served, devices = await voting(evaluation=True)
    for mean in (GOOD, BAD):
        served.update(devices["c"], 1, 0, body=ONES, evaluation=earned(mean))
        await served.turn()
    row = await get_round(served.db, "mail", 1)
    assert (row.n_evaluations, row.reward) == (1, GOOD)


async def test_devices_that_say_nothing_take_part_as_ever(voting) -> None:
    """Older ones, or whose user has switched it off."""
    served, devices = await voting(evaluation=True)
    await play(served, devices, None)
    row = await get_round(served.db, "mail", 1)
    assert (row.state, row.n_updates, row.n_evaluations, row.reward) == ("completed", 5, 0, None)


async def test_who_does_not_ask_stores_nothing(voting, restarted_voting) -> None:
    """By its setting, at any start, or as the method adds noise; the update counts."""
    served, devices = await voting(evaluation=True)
    await play(served, devices, GOOD)
    off = await restarted_voting(served, evaluation=False)
    await play(off, devices, GOOD)
    on = await restarted_voting(off, evaluation=True)
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


# --- taking back ------------------------------------------------------------------------------------------------


async def test_three_rounds_that_earn_less_have_the_model_taken_back(voting) -> None:
    """The model of five rounds before them is served again, and the event has the figures."""
    served, devices = await voting(**RULED)
    await decline(served, devices)
    assert await taken_back(served) == [(9, 1)]
    assert served.shown.model.version == served.shown.anchor.version == 9
    assert (served.shown.round.round, served.shown.round.base_version) == (10, 9)
    ninth = await get_round(served.db, "mail", 9)
    assert (ninth.state, ninth.reason, ninth.n_evaluations) == ("abandoned", "model_taken_back", 5)
    (event,) = await list_events(served.db, "mail", kind="model_taken_back")
    assert "model 9 has the weights of model 1 again in the place of model 8: mean reward 0.400 in the " in event.detail
    assert "last 3 rounds, 0.800 in the 6 before" in event.detail
    assert "models 2 to 8" in event.detail


async def test_no_click_of_the_round_that_ends_is_lost(voting) -> None:
    """Devices hear that it was abandoned, and what they send again counts once."""
    served, devices = await voting(**RULED)
    for mean in (*[GOOD] * 6, *[BAD] * 2):
        await play(served, devices, mean)
    before = {name: served.actor.state.members.counted_through(name) for name in NAMES}
    served.receipts.sent.clear()
    await play(served, devices, BAD)
    assert served.receipts.codes()["round_abandoned"] == len(NAMES)
    assert {name: served.actor.state.members.counted_through(name) for name in NAMES} == before


async def test_unless_it_is_asked_nothing_is_taken_back(voting) -> None:
    """The curve is shown all the same."""
    served, devices = await voting(evaluation=True)
    await decline(served, devices)
    assert await taken_back(served) == []


async def test_after_it_all_begins_anew(voting) -> None:
    """It is not taken back round after round: the rounds that count are those since."""
    served, devices = await voting(**RULED)
    await decline(served, devices)
    for _ in range(8):
        await play(served, devices, BAD)
    assert await taken_back(served) == [(9, 1)]
    for _ in range(3):
        await play(served, devices, 0.05)
    assert len(await taken_back(served)) == 2


async def test_votes_begin_it_anew_too(voting) -> None:
    """What was taken back by votes is not compared with."""
    served, devices = await voting(**RULED)
    for mean in (*[GOOD] * 6, BAD, BAD):
        await play(served, devices, mean)
    await play(served, devices, BAD, vote=-1)
    (event,) = await list_events(served.db, "mail", kind="model_taken_back")
    assert "clients by their" in event.detail, "one rule in a round: votes come first"
    assert await taken_back(served) == [(9, 0)]
    for _ in range(3):
        await play(served, devices, 0.1)
    assert await taken_back(served) == [(9, 0)]


async def test_what_most_find_better_is_not_taken_back(voting) -> None:
    """Votes that move the anchor speak for the model; the next round may find otherwise."""
    served, devices = await voting(**RULED)
    for mean in (*[GOOD] * 14, BAD, BAD):
        await play(served, devices, mean)
    await play(served, devices, BAD, vote=1)
    assert await taken_back(served) == []
    assert len(await list_events(served.db, "mail", kind="anchor_moved")) == 1
    await play(served, devices, BAD)
    assert len(await taken_back(served)) == 1


async def test_it_needs_no_votes(voting) -> None:
    """Without an anchor none is restored, and none is announced."""
    served, devices = await voting(anchor=False, **RULED)
    await decline(served, devices)
    assert await taken_back(served) == [(9, 1)]
    assert served.shown.anchor is None
    await play(served, devices, GOOD)
    assert (await latest_model(served.db, "mail")).version == 10


async def test_a_client_in_quarantine_has_no_say(voting, operator) -> None:
    """Neither for what it said before: without the liar the rounds are as good as ever."""
    served, devices = await voting(**RULED)
    for _ in range(6):
        await play(served, devices, GOOD)
    for _ in range(2):
        opened = await latest_round(served.db, "mail")
        for name in NAMES:
            told = earned(0.02 if name == "e" else GOOD, name)
            served.update(devices[name], opened.number, opened.base_version, body=ONES, evaluation=told)
        await served.turn()
    await order(served, operator, QuarantineClient(client_id="e", reason="?", federation="mail"), 1)
    await play(served, devices, GOOD, names="abcd")
    assert await taken_back(served) == []


async def test_whoever_is_erased_is_in_nothing_that_is_served_again(voting) -> None:
    """The model that would be is tainted: the job's model takes the place of all, and rounds begin anew."""
    served, devices = await voting(**RULED, unlearning=STEPWISE[Strategy.RELEARN])
    for mean in (*[GOOD] * 6, BAD, BAD):
        await play(served, devices, mean)
    await forget(served, devices["a"])
    await play(served, devices, BAD, names="bcde")
    assert await taken_back(served) == []
    assert [job.state for job in await list_jobs(served.db, "mail")] == ["running"]
    await unlearn(served, devices, "a")
    job_model = await latest_model(served.db, "mail")
    assert job_model.unlearning_job is not None
    for mean in (*[GOOD] * 5, *[BAD] * 3):
        await play(served, devices, mean, names="bcde")
    assert await taken_back(served) == [(job_model.version + 8, job_model.version)]


async def test_a_job_that_is_open_fails_with_the_models(voting) -> None:
    """It has gone through rounds that count no more; the next one does without them."""
    served, devices = await voting(**RULED, unlearning=STEPWISE[Strategy.RELEARN])
    for _ in range(6):
        await play(served, devices, GOOD, names="bcde")
    for _ in range(2):
        await play(served, devices, BAD)
    await forget(served, devices["a"])
    await play(served, devices, BAD, names="bcde")
    assert await taken_back(served) == [(9, 1)]
    await unlearn(served, devices, "a")
    failed, *_ = await list_jobs(served.db, "mail")
    assert (failed.state, "models 2 to 8 were taken back" in failed.reason) == ("failed", True)


async def test_rounds_are_made_again_where_what_was_served_was_no_anchor(voting) -> None:
    """Of it the adaptive rule remembers no progress, in the round as in its replay; of clients all they have sent."""
    served, devices = await voting(RoundPolicy(1, 5, 60.0, 60.0, rule=read_rule("adaptive")), **RULED)
    await decline(served, devices)
    for _ in range(3):
        await play(served, devices, GOOD)
    assert await taken_back(served) == [(9, 1)]
    recipes = await load_recipes(served.db, "mail")
    for number in (1, 8, 10, 11, 12):
        assert (await replay_round(served.db, recipes, number)).differs == ()
    kept = [await get_anchor(served.db, "mail", version) for version in range(13)]
    held = [row.version for row in kept if row.defence_state is not None]
    assert held == [9, 12], "of the anchor and the newest model alone is anything remembered"


async def test_of_what_was_an_anchor_no_progress_is_remembered(voting, restarted_voting) -> None:
    """Nor where the setting went while a round was abandoned: a model that is restored begins as its replay does."""
    served, devices = await voting(RoundPolicy(1, 5, 60.0, 60.0, rule=read_rule("adaptive")), **RULED)
    for _ in range(2):
        await play(served, devices, GOOD, vote=1)
    assert served.actor.state.anchor.version == 1
    off = await restarted_voting(served, anchor=False)
    off.clock.at += 100.0
    await off.turn()
    assert (await get_round(off.db, "mail", 3)).state == "abandoned"
    assert (await get_anchor(off.db, "mail", 1)).defence_state is None
    assert (await get_anchor(off.db, "mail", 2)).defence_state is not None, "the newest goes on"
    for mean in (*[GOOD] * 4, *[BAD] * 3):
        await play(off, devices, mean)
    assert await taken_back(off) == [(9, 1)]
    progress = unpackb((await latest_model(off.db, "mail")).defence_state)["progress"]
    assert not any(progress)


# --- ending and beginning again ---------------------------------------------------------------------------------


async def test_a_death_before_the_commit_leaves_the_round_as_it_was(voting, restarted_voting) -> None:
    """The next federator decides the same, from what is stored."""
    served, devices = await voting(**RULED)
    for mean in (*[GOOD] * 6, BAD, BAD):
        await play(served, devices, mean)

    def die(name: Failpoint) -> None:
        raise RuntimeError(name)

    with patch.object(foltr.storage.anchors, "failpoint", die), pytest.raises(RuntimeError, match="in_restoration"):
        await play(served, devices, BAD)
    assert await taken_back(served) == []
    following = await restarted_voting(served)
    assert await taken_back(following) == [(9, 1)]
    assert following.shown.model.version == 9


async def test_a_death_after_the_commit_takes_nothing_back_twice(voting, restarted_voting) -> None:
    """The next federator announces the restored model, and counts from there."""
    served, devices = await voting(**RULED)
    for mean in (*[GOOD] * 6, BAD, BAD):
        await play(served, devices, mean)

    def die(name: Failpoint) -> None:
        if name is Failpoint.MODEL_TAKEN_BACK:
            raise RuntimeError(name)

    with patch("foltr.federator.rounds.failpoint", die), pytest.raises(RuntimeError, match="taken_back"):
        await play(served, devices, BAD)
    following = await restarted_voting(served)
    assert (following.shown.model.version, following.shown.round.round) == (9, 10)
    for _ in range(4):
        await play(following, devices, BAD)
    assert await taken_back(following) == [(9, 1)]


async def test_the_rule_may_be_switched_at_any_start(voting, restarted_voting) -> None:
    """What is stored says what rounds earned, whichever federator asked."""
    served, devices = await voting(evaluation=True)
    for mean in (*[GOOD] * 14, *[BAD] * 3):
        await play(served, devices, mean)
    assert await taken_back(served) == []
    ruled = await restarted_voting(served, **RULED)
    await play(ruled, devices, BAD)
    assert len(await taken_back(ruled)) == 1


async def test_of_two_federators_one_takes_back(voting, restarted_voting) -> None:
    """The other has lost the federation, and writes nothing."""
    served, devices = await voting(**RULED)
    for mean in (*[GOOD] * 6, BAD, BAD):
        await play(served, devices, mean)
    for name in NAMES[:-1]:
        served.update(devices[name], 9, 8, body=ONES, evaluation=earned(BAD, name))
    await served.turn()
    await restarted_voting(served)
    served.clock.at += 100.0
    with pytest.raises(WriterFencedError):
        await served.turn()
    assert await taken_back(served) == []


async def test_a_copy_from_before_is_put_back(voting, restarted_voting) -> None:
    """What was taken back since then is not, and is again where rounds say so."""
    served, devices = await voting(**RULED)
    for mean in (*[GOOD] * 6, BAD, BAD):
        await play(served, devices, mean)
    copy = await back_up(served.db)
    await play(served, devices, BAD)
    await restore(served.db, copy)
    following = await restarted_voting(served)
    assert await taken_back(following) == []
    await play(following, devices, BAD)
    assert await taken_back(following) == [(9, 1)]
    assert len(following.shown.model.weights) == 4 * D
