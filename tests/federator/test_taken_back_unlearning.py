"""Taking back and erasure: the unlearned ranker comes of the rounds that lead somewhere, and its receipts hold."""

from unittest.mock import patch

import numpy as np
import pytest
from support.deaths import dying_at
from support.voting_devices import BACK, STEPWISE, D, done, forget, origins, play, ruin, unlearn, weights_of

from foltr.core.aggregation.client_records import ClientRecords
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.errors import DataError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.states import Pacing, Strategy
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.federator.publishing.unlearning import step_announcement
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.models import get_anchor, get_model, latest_model, list_models
from foltr.storage.queries import get_round
from foltr.storage.rounds import latest_round


async def test_who_taught_what_is_served_is_unlearned_without_what_was_taken_back(voting) -> None:
    """The others' updates of live rounds make the model, bit for bit; what was taken back is in it for nobody."""
    served, devices = await voting(unlearning=BACK)
    await play(served, devices)
    await play(served, devices, "+++++")  # model 1 is the anchor
    await play(served, devices, by=-50.0)
    await play(served, devices, "-----")  # model 4 is model 1 again
    await play(served, devices)  # model 5
    assert await origins(served) == [(0, None, None), (1, 0, None), (2, 1, None), (3, 2, None), (4, 1, 1), (5, 4, None)]
    await forget(served, devices["a"])
    await unlearn(served, devices)
    (row,) = await done(served)
    assert (row.first_round, row.n_rounds) == (1, 4)
    mean = sum(np.eye(D)[ord(name) % D] for name in "bcde") / 4
    np.testing.assert_array_equal(await weights_of(served, 6), (2 * mean).astype(np.float32))
    assert served.shown.anchor.version == served.shown.model.version == 6
    withdrawn = [model.version for model in await list_models(served.db, "mail") if model.withdrawn_at is not None]
    assert withdrawn == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("policy", STEPWISE.values(), ids=[str(strategy) for strategy in STEPWISE])
async def test_steps_stand_for_live_rounds_alone(voting, policy) -> None:
    """Nobody is asked to learn again what was taken back."""
    served, devices = await voting(unlearning=policy)
    await play(served, devices)
    await play(served, devices, "+++++")
    await play(served, devices)
    await play(served, devices, "-----")
    await play(served, devices)
    with patch("foltr.federator.job_driver.step_announcement", wraps=step_announcement) as announced:
        await forget(served, devices["a"])
        await unlearn(served, devices, "a")
    asked = list(dict.fromkeys(call.args[2].round for call in announced.call_args_list))
    assert asked == [1, 5]
    await done(served)
    assert (await list_jobs(served.db, "mail"))[-1].strategy == policy.strategy


async def test_a_job_under_way_begins_again_when_models_are_taken_back(voting) -> None:
    """It may have gone through rounds that lead nowhere; and the next one is done with its receipts."""
    served, devices = await voting(unlearning=STEPWISE[Strategy.RELEARN])
    await play(served, devices, names="bcde")
    await play(served, devices, "++++", names="bcde")
    await play(served, devices)
    await forget(served, devices["a"])
    assert (await list_jobs(served.db, "mail"))[-1].state == "running"
    await play(served, devices, "----", names="bcde")
    jobs = await list_jobs(served.db, "mail")
    assert [(job.state, job.number) for job in jobs][:1] == [("failed", 1)]
    assert "were rolled back" in jobs[0].reason
    assert (4, 1, 1) in await origins(served)
    await unlearn(served, devices, "a")
    (row,) = await done(served)
    assert row.job == 2


@pytest.mark.parametrize("dies_at", [Failpoint.IN_RESTORATION_TRANSACTION, Failpoint.MODEL_ROLLED_BACK])
async def test_a_death_on_the_way_leaves_no_job_of_what_was_taken_back(voting, restarted, dies_at) -> None:
    """Before the commit it goes on, and fails with the next decision; after it those in it wait again."""
    served, devices = await voting(unlearning=STEPWISE[Strategy.RELEARN])
    await play(served, devices, names="bcde")
    await play(served, devices, "++++", names="bcde")
    await play(served, devices)
    await forget(served, devices["a"])

    with dying_at(dies_at, "federator.rounds", "storage.anchors"):
        await play(served, devices, "----", names="bcde")
    following = await restarted(served)
    assert (4, 1, 1) in await origins(served)
    await unlearn(following, devices, "a")
    (row,) = await done(following)
    assert (row.job, [job.state for job in await list_jobs(served.db, "mail")]) == (2, ["failed", "done"])


async def test_a_swap_begins_all_opinions_anew(voting) -> None:
    """Votes on the anchor of before are not counted, and nothing from before can be restored."""
    served, devices = await voting(unlearning=BACK)
    await play(served, devices)
    await play(served, devices, "--000")
    await forget(served, devices["a"])
    await unlearn(served, devices, "a")
    newest = await latest_model(served.db, "mail")
    assert (newest.unlearning_job, served.shown.anchor.version) == (1, newest.version)
    await play(served, devices, "--+ ", names="bcde")
    await play(served, devices, "---0", names="bcde")
    restored = await latest_model(served.db, "mail")
    assert (restored.restored_version, restored.weights) == (newest.version, newest.weights)


async def test_rounds_after_a_restored_model_are_replayed(voting) -> None:
    """Each from its own base; a round whose models were rolled back has none to make again."""
    served, devices = await voting()
    await ruin(served, devices)
    await play(served, devices)
    recipes = await load_recipes(served.db, "mail")
    for number in (1, 2, 4):
        assert (await replay_round(served.db, recipes, number)).differs == ()
    with pytest.raises(DataError, match="round 3 is abandoned"):
        await replay_round(served.db, recipes, 3)


async def test_what_the_adaptive_rule_remembers_goes_on_from_the_anchor(voting) -> None:
    """Of each client all it has sent, of progress the anchor's: replayed rounds come to the same, bit for bit."""
    served, devices = await voting(RoundPolicy(1, 5, 60.0, 60.0, rule=read_rule("adaptive")))
    await play(served, devices)
    await play(served, devices, "+++++")
    anchored = ClientRecords.from_bytes((await latest_model(served.db, "mail")).defence_state, D)
    await play(served, devices)
    before = ClientRecords.from_bytes((await latest_model(served.db, "mail")).defence_state, D)
    await play(served, devices, "-----")
    restored = ClientRecords.from_bytes((await latest_model(served.db, "mail")).defence_state, D)
    assert (restored.n_rounds, restored.clients.tobytes()) == (before.n_rounds, before.clients.tobytes())
    assert not np.array_equal(restored.progress, before.progress)
    assert anchored.n_rounds == 2
    np.testing.assert_allclose(restored.progress, anchored.progress / 2, atol=1e-6)  # after model 1, of equal steps
    for votes in ("", "", "-----", "", ""):
        await play(served, devices, votes)
    assert [row[2] for row in await origins(served)].count(None) == len(await origins(served)) - 2
    recipes = await load_recipes(served.db, "mail")
    for number in range(1, (await latest_round(served.db, "mail")).number):
        if (await get_round(served.db, "mail", number)).state == "completed":
            assert (await replay_round(served.db, recipes, number)).differs == ()


async def test_rounds_repeat_where_models_were_taken_back_under_another_rule(voting, restarted) -> None:
    """What `adaptive` remembers goes along with the models while another rule makes them, in a replay as well."""
    adaptive = RoundPolicy(1, 5, 60.0, 60.0, rule=read_rule("adaptive"))
    served, devices = await voting(adaptive)
    for votes in ("", "+++++", ""):
        await play(served, devices, votes)
    served = await restarted(served, policy=RoundPolicy(1, 5, 60.0, 60.0))
    for votes in ("", "-----", "", "-----"):
        await play(served, devices, votes)
    served = await restarted(served, policy=adaptive)
    for votes in ("", "", ""):
        await play(served, devices, votes)
    assert len([row for row in await origins(served) if row[2] is not None]) == 2
    recipes = await load_recipes(served.db, "mail")
    newest = (await latest_model(served.db, "mail")).round
    assert (await replay_round(served.db, recipes, newest)).differs == ()


async def test_of_an_anchor_that_a_swap_replaces_nothing_is_remembered(voting) -> None:
    """It was made before the erased client came, so that its weights stay; its rule's memory is nobody's any more."""
    served, devices = await voting(RoundPolicy(1, 5, 60.0, 60.0, rule=read_rule("adaptive")), unlearning=BACK)
    await play(served, devices, names="bcde")
    await play(served, devices, " ++++")
    assert (await get_anchor(served.db, "mail", 1)).defence_state is not None
    await forget(served, devices["a"])
    await unlearn(served, devices, "a")
    await done(served)
    assert served.shown.anchor.version == served.shown.model.version == 3
    assert (await get_anchor(served.db, "mail", 1)).defence_state is None


async def test_a_buffered_round_takes_nothing_that_was_made_on_what_was_taken_back(voting) -> None:
    """It is as new as the buffer asks for, and adds what the restored model is to be rid of."""
    policy = RoundPolicy(1, 5, 60.0, 60.0, pacing=Pacing.BUFFERED, staleness_limit=5)
    served, devices = await voting(policy)
    await ruin(served, devices)
    served.receipts.sent.clear()
    body = DenseDelta(dim=D, values=pack_vector([1.0] * D))
    served.update(devices["a"], 4, 2, body=body)
    served.update(devices["b"], 4, 0, body=body)
    await served.turn()
    assert dict(served.receipts.codes()) == {"stale": 1, "accepted": 1}
    stale = next(one for one in served.receipts.sent if one.code == "stale")
    assert stale.detail == "trained on model 2, which was rolled back since"


async def test_a_job_is_not_given_up_for_a_round_that_makes_no_model(voting) -> None:
    """The newest model was restored long ago; that a round is given up since has nothing to do with it."""
    krum = read_rule("krum", byzantine=1, fallback="abandon")
    served, devices = await voting(RoundPolicy(1, 5, 60.0, 60.0, rule=krum), unlearning=STEPWISE[Strategy.RELEARN])
    await play(served, devices)
    await play(served, devices, "+++++")
    await play(served, devices)
    await play(served, devices, "-----")
    await forget(served, devices["a"])
    assert [job.state for job in await list_jobs(served.db, "mail")] == ["running"]
    await play(served, devices, names="bc")
    assert (await get_round(served.db, "mail", 5)).reason == "too_few_for_rule"
    assert [job.state for job in await list_jobs(served.db, "mail")] == ["running"]
    await unlearn(served, devices, "a")
    await done(served)


async def test_thinned_history_stays_consistent(voting) -> None:
    """What retention leaves of rounds that lead nowhere is gone through by nobody; the anchor's weights stay."""
    served, devices = await voting(unlearning=BACK, history_rounds=1)
    for votes in ("", "+++++", "", "-----", "", ""):
        await play(served, devices, votes)
    assert unpack_vector((await get_model(served.db, "mail", 1)).weights).any()
    await forget(served, devices["a"])
    await unlearn(served, devices, "a")
    await done(served)
    assert (await latest_model(served.db, "mail")).tainted_at is None


@pytest.mark.parametrize("other", [{"over_selection": 0.0}, {"pacing": Pacing.BUFFERED, "staleness_limit": 2}], ids=str)
async def test_rounds_of_every_kind_can_be_taken_back(voting, other) -> None:
    """Of a random selection, and of a buffer: the next one is on the restored model, and takes updates."""
    served, devices = await voting(RoundPolicy(1, 5, 60.0, 60.0, **other))
    await ruin(served, devices)
    assert (await origins(served))[-1] == (3, 0, 0)
    await play(served, devices)
    assert (await latest_model(served.db, "mail")).base_version == 3
