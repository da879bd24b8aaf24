"""What a forgotten client has taught is unlearned by a job: its steps, its swap, and what all others have of it."""

from dataclasses import replace

import numpy as np
import pytest
from support.unlearning_steps import (
    EAGER,
    KEY,
    N_FEATURES,
    ROWS,
    STEP,
    THREE,
    answer,
    ask,
    delta,
    end_step,
    forget,
    notices,
    one_leaves,
    play,
    step_of,
    unlearn,
)

from foltr.core.erasure.receipt import verify_receipt
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.membership import Join, Leave, Status
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import EvolutionTraining, PdgdTraining
from foltr.core.protocol.updates import EvolutionPair
from foltr.federator.job import UnlearningPolicy
from foltr.federator.publishing.audit_heads import head_of
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.audit_log import find_audit_entry
from foltr.storage.models import get_model, latest_model, list_models
from foltr.storage.queries import get_round

# One answer is enough for a step; a round waits for three all the same.
ONE = RoundPolicy(1, 3, 60.0, 60.0)
HEAD = "foltr/v1/mail/audit-head"


async def test_what_it_taught_is_unlearned_by_calibrated_steps(joined):
    """New directions, old lengths: the model is what the others would have made; the old ones lose their weights."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    await play(served, devices, 2, 1, 2 * ROWS)
    assert (await latest_model(served.db, "mail")).version == 2
    await forget(served, devices[2])
    assert [one.code for one in notices(served)] == ["forgetting"]
    for number in (1, 2):
        step = step_of(served)
        assert (step.step, step.local_interactions) == (number, 3)
        answer(served, devices[0], [0.5, 0, 0, 0])
        answer(served, devices[1], [0, 0, 0, 7.0])
        served.receipts.sent.clear()
        await served.turn()
        await served.turn()
    (notice,) = notices(served)
    assert notice.code is ReceiptCode.FORGOTTEN
    newest = await latest_model(served.db, "mail")
    assert newest.version == 3
    # Steps of 3 and 4, then of 6 and 8, each halved by the mean of two.
    assert unpack_vector(newest.weights).tolist() == [4.5, 0.0, 0.0, 6.0]
    assert [row.weights for row in await list_models(served.db, "mail")][1:3] == [b"", b""]
    receipt = verify_receipt(notice.receipt.decode(), KEY.public)
    assert (receipt.strategy, receipt.rounds_replayed, receipt.coverage) == ("fed_eraser", 2, 1.0)
    assert (receipt.model_before, receipt.model_after, receipt.models_withdrawn) == (2, 3, 2)
    assert (receipt.n_rounds, receipt.n_updates, receipt.key_destroyed) == (2, 2, True)
    assert served.retained.topics[STEP] is None


async def test_the_swap_is_between_two_rounds(joined):
    """What was accepted counts in its round first; who trained on the old model trains again, and learning goes on."""
    served, devices = await joined(RoundPolicy(2, 3, 50.0, 60.0))
    await play(served, devices, 1, 0, ROWS)
    served.update(devices[0], 2, 1, body=delta(ROWS[0]))
    await forget(served, devices[2])
    await end_step(served, devices[:2], [1.0, 0, 0, 0])
    assert (await latest_model(served.db, "mail")).version == 1
    told = served.retained.topics["foltr/v1/mail/unlearning/1"]
    assert (told.state, told.step, told.n_steps) == ("running", 1, 1)  # it waits for the round to end
    served.update(devices[1], 2, 1, body=delta(ROWS[1]))
    await served.turn()
    served.clock.at += 51.0
    await served.turn()
    assert (await get_round(served.db, "mail", 2)).state == "completed"
    row = await get_round(served.db, "mail", 3)
    assert (row.state, row.reason, row.n_updates) == ("abandoned", "unlearned", 0)
    assert (await latest_model(served.db, "mail")).version == 3
    served.receipts.sent.clear()
    served.update(devices[0], 3, 2, body=delta(ROWS[0]))
    served.update(devices[1], 4, 3, body=delta(ROWS[1]))
    await served.turn()
    assert [one.code for one in served.receipts.sent] == ["late", "accepted"]


async def test_how_far_a_job_was_is_not_retained_for_ever(joined, serve):
    """That it is done stays until the next one begins, or the federator again, which goes on as it was planned."""
    served, devices = await joined()
    for number in (1, 2):
        await play(served, devices, number, number - 1, ROWS)
    topics = served.retained.topics
    first, second = (f"foltr/v1/mail/unlearning/{number}" for number in (1, 2))
    await forget(served, devices[2])
    assert topics[first].state == "running"
    assert topics[HEAD] == head_of("mail", await find_audit_entry(served.db, "mail"))
    await unlearn(served, devices[:2], [1.0, 0, 0, 0])
    assert topics[first].state == "done"
    assert topics[HEAD] == head_of("mail", await find_audit_entry(served.db, "mail"))
    assert topics[first].model_version == (await latest_model(served.db, "mail")).version
    await forget(served, devices[1])
    await served.turn()
    assert (topics[first], topics[second].state) == (None, "running")
    planned = step_of(served).local_interactions
    other = {"unlearning": replace(EAGER, interval=3), "training": PdgdTraining(max_interactions=9)}
    served = await serve(THREE, n_features=N_FEATURES, key=KEY, **other)
    await served.turn()
    assert (served.retained.topics[second].state, step_of(served).local_interactions) == ("running", planned)
    assert await unlearn(served, [devices[0]], [1.0, 0, 0, 0]) == 2
    assert served.retained.topics[second].state == "done"
    again = await serve(THREE, n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    assert again.retained.topics[first] is None
    assert again.retained.topics[second] is None


async def test_a_round_whose_members_are_gone_is_passed_over(joined):
    """Who left is not asked; the step counts as not covered, and the job goes on to what others can say."""
    served, devices = await joined(RoundPolicy(1, 2, 0.0, 60.0))
    served.update(devices[0], 1, 0, body=delta(ROWS[0]))
    served.update(devices[2], 1, 0, body=delta(ROWS[2]))
    await served.turn()
    served.update(devices[1], 2, 1, body=delta(ROWS[1]))
    await served.turn()
    served.clock.at += 1.0
    await served.turn()
    served.receive(devices[0], ClientTopic.LEAVE, Leave(federation="mail", client_id="alice"))
    ask(served, devices[2])
    for _ in range(4):
        await served.turn()
    step = step_of(served)
    assert step.step == 2
    answer(served, devices[1], [0, 1.0, 0, 0])
    served.receipts.sent.clear()
    for _ in range(3):
        await served.turn()
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert (receipt.rounds_replayed, receipt.coverage) == (2, 0.5)


async def test_who_does_not_answer_is_not_waited_for_twice(joined):
    """A step ends at its deadline with those who did, and the next one as soon as they have."""
    served, devices = await joined(ONE, unlearning=replace(EAGER, min_coverage=0.4))
    for number in (1, 2):
        await play(served, devices, number, number - 1, ROWS)
    await forget(served, devices[2])
    await end_step(served, [devices[0]], [1.0, 0, 0, 0])
    assert step_of(served).step == 1
    served.clock.at += 10.0
    await served.turn()
    await end_step(served, [devices[0]], [1.0, 0, 0, 0])
    assert verify_receipt(notices(served)[-1].receipt.decode(), KEY.public).coverage == 0.5


async def test_low_coverage_falls_back_to_learning_anew(joined):
    """It begins again without old lengths, from all devices that answer, and the receipt says so."""
    served, devices = await joined(
        ONE,
        unlearning=UnlearningPolicy(Strategy.FED_ERASER, every_s=0.0, swap_every_s=0.0, step_s=10.0, min_coverage=0.9),
    )
    await play(served, devices, 1, 0, ROWS)
    await forget(served, devices[2])
    for local_interactions in (3, 5):
        step = step_of(served)
        assert step.local_interactions == local_interactions
        answer(served, devices[0], [1.0, 0, 0, 0])
        served.clock.at += 11.0
        served.receipts.sent.clear()
        await served.turn()
        await served.turn()
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert receipt.strategy == "relearn"
    assert unpack_vector((await latest_model(served.db, "mail")).weights).tolist() == [1.0, 0.0, 0.0, 0.0]


async def test_a_job_without_devices_pauses_and_goes_on_when_one_is_back(joined):
    """Also without who asked to be forgotten meanwhile; and the last round is not given up for the swap."""
    served, devices = await one_leaves(joined, ONE, stop_after_round=2)
    for device in devices[:2]:
        served.receive(device, ClientTopic.STATUS, Status(federation="mail", client_id=device.client_id, online=False))
    for _ in range(4):
        served.clock.at += 11.0
        await served.turn()
    assert served.retained.topics["foltr/v1/mail/unlearning/1"].state == "paused"
    served.receive(devices[0], ClientTopic.JOIN, Join(federation="mail", client_id="alice", sdk_version="1"))
    await served.turn()
    await forget(served, devices[1])
    await end_step(served, [devices[0]], [1.0, 0, 0, 0])
    assert (await get_round(served.db, "mail", 2)).state == "collecting"
    served.update(devices[0], 2, 1, body=delta(ROWS[0]))
    served.clock.at += 61.0
    for _ in range(3):
        await served.turn()
    assert (await get_round(served.db, "mail", 2)).state == "completed"
    assert (await list_models(served.db, "mail"))[3].unlearning_job == 1


@pytest.mark.parametrize("training", [PdgdTraining(), EvolutionTraining()], ids=["by steps", "first model"])
async def test_a_federation_that_began_with_chosen_weights_goes_back_to_those(joined, training):
    """Not to zeros: nobody has taught it them. A method that cannot learn again from kept lists resets to them."""
    served, devices = await joined(first_weights=pack_vector([8.0, 0, 0, -0.5]), training=training)
    assert step_weights(await latest_model(served.db, "mail")) == [8.0, 0, 0, -0.5]
    for number, device in enumerate(devices, start=1):
        pair = EvolutionPair(seed=number, plus=1.0, minus=0.0)
        served.update(device, 1, 0, body=pair if training.kind == "foltr-es" else delta(ROWS[number - 1]))
    await served.turn()
    assert step_weights(await latest_model(served.db, "mail")) != [8.0, 0, 0, -0.5]
    for device in devices:
        ask(served, device)
    await served.turn()
    await served.turn()
    newest = await latest_model(served.db, "mail")
    assert newest.version == 2
    assert step_weights(newest) == [8.0, 0, 0, -0.5]


def step_weights(model):
    return unpack_vector(model.weights).tolist()


@pytest.mark.parametrize(
    ("strategy", "answered", "added"),
    [(Strategy.ROLLBACK, [1.0, 0, 0, 0], None), (Strategy.RELEARN, [16.0, 0, 0, 0], [16.0, 0, 0, 0])],
    ids=str,
)
async def test_a_job_begins_before_the_client_came(joined, strategy, answered, added):
    """What the others had made until then stays; to relearn calibrates nothing: their updates count unscaled."""
    policy = UnlearningPolicy(strategy, interval=10, every_s=0.0, swap_every_s=0.0, step_s=10.0)
    served, devices = await joined(RoundPolicy(2, 3, 1e-3, 60.0), unlearning=policy)
    await play(served, devices[:2], 1, 0, ROWS[:2])
    before = await latest_model(served.db, "mail")
    assert before.version == 1
    await play(served, devices, 2, 1, ROWS)
    await forget(served, devices[2])
    assert step_of(served).weights == before.weights
    served.receipts.sent.clear()
    await end_step(served, devices[:2], answered)
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert (receipt.strategy, receipt.rounds_replayed, receipt.models_withdrawn) == (strategy, 1, 1)
    assert (await get_model(served.db, "mail", 1)).weights == before.weights
    if added is not None:
        newest = unpack_vector((await latest_model(served.db, "mail")).weights)
        np.testing.assert_allclose(newest - unpack_vector(before.weights), added)
