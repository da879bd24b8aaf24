"""A client is forgotten: what is erased, who is told what, and how the model is made without it."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from foltr.broker.link import InboundMessage
from foltr.core.erasure.receipt import verify_receipt
from foltr.core.protocol.announcements import UnlearningRound
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.membership import Forget, Join, Leave, Status
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import EvolutionTraining, PdgdTraining
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, UnlearningUpdate
from foltr.federator.job import UnlearningPolicy
from foltr.federator.publishing.audit_heads import head_of
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.audit_log import find_audit_entry
from foltr.storage.erasure.erasures import find_erasure, list_erasures
from foltr.storage.models import get_model, latest_model, list_models
from foltr.storage.orders import list_orders
from foltr.storage.queries import get_round, list_contributions, list_events, list_rounds

N_FEATURES = 4
THREE = RoundPolicy(3, 3, 0.0, 60.0)
# One answer is enough for a step; a round waits for three all the same.
ONE = RoundPolicy(1, 3, 60.0, 60.0)
NAMES = ("alice", "bob", "carol")
KEY = SigningKey(b"federator" + bytes(23))
EAGER = UnlearningPolicy(Strategy.FED_ERASER, interval=1, every_s=0.0, swap_every_s=0.0, step_s=10.0, patience_s=30.0)
ROUND = "foltr/v1/mail/unlearning/round"
HEAD = "foltr/v1/mail/audit-head"


@pytest.fixture
async def joined(serve, unsigned):
    """Starts an actor and has three devices join."""

    async def start(policy=THREE, **plan):
        served = await serve(policy, n_features=N_FEATURES, key=KEY, **({"unlearning": EAGER} | plan))
        devices = [unsigned(name) for name in NAMES]
        await served.join(devices)
        return served, devices

    return start


def delta(values):
    return DenseDelta(dim=N_FEATURES, values=pack_vector(values))


async def play(served, devices, number, base, values):
    """A round in which each device sends one of the rows."""
    for device, row in zip(devices, values, strict=True):
        served.update(device, number, base, body=delta(row))
    await served.turn()
    served.receipts.sent.clear()


def ask(served, device):
    served.receive(device, ClientTopic.FORGET, Forget(federation="mail", client_id=device.client_id))


def notices(served):
    return [one for one in served.receipts.sent if isinstance(one, ErasureNotice)]


def step_of(served) -> UnlearningRound:
    step = served.retained.topics[ROUND]
    assert isinstance(step, UnlearningRound)
    return step


def answer(served, device, step, values, n_interactions=1):
    update = UnlearningUpdate(
        federation="mail",
        client_id=device.client_id,
        job=step.job,
        step=step.step,
        n_interactions=n_interactions,
        body=delta(values),
    )
    served.receive(device, ClientTopic.UNLEARNING, update)


def contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.glob("foltr.sqlite*")]


ROWS = np.array([[3.0, 0, 0, 0], [0, 4.0, 0, 0], [0, 0, -50.0, 0]])


async def test_who_never_contributed_is_forgotten_at_once(joined):
    """With a receipt of zero rounds that anybody can check, and nothing of its name left."""
    served, devices = await joined()
    ask(served, devices[2])
    await served.turn()
    (notice,) = notices(served)
    assert notice.code is ReceiptCode.FORGOTTEN
    receipt = verify_receipt(notice.receipt.decode(), KEY.public)
    assert (receipt.strategy, receipt.n_rounds, receipt.n_updates) == ("none", 0, 0)
    assert receipt.requested_by == "device"
    assert not [event for event in await list_events(served.db, "mail") if event.client_id == "carol"]
    assert served.retained.topics["foltr/v1/mail/clients/carol/status"] is None
    assert served.retained.topics["foltr/v1/mail/clients/carol/forget"] is None


async def test_a_name_that_was_forgotten_is_not_used_again(joined):
    """Not by a join nor by an update; and whoever asks again gets the same receipt."""
    served, devices = await joined()
    ask(served, devices[2])
    await served.turn()
    first = notices(served)[0].receipt
    served.receipts.sent.clear()
    served.receive(devices[2], ClientTopic.JOIN, Join(federation="mail", client_id="carol", sdk_version="1"))
    served.update(devices[2], 1, 0, body=delta(ROWS[2]))
    ask(served, devices[2])
    await served.turn()
    assert [one.code for one in served.receipts.sent] == ["forgotten"] * 3
    assert notices(served)[0].receipt == first


async def test_it_is_withdrawn_and_forgotten_in_one_transaction(joined, serve, monkeypatch):
    """A federator that dies before it erases has withdrawn nothing either, and does both when it is asked again."""
    served, devices = await joined()
    served.update(devices[2], 1, 0, body=delta(ROWS[2]))
    await served.turn()
    monkeypatch.setattr(served.actor.eraser, "erase", Mock(side_effect=OSError("killed")))
    ask(served, devices[2])
    with pytest.raises(OSError, match="killed"):
        await served.turn()
    assert [row.client_id for row in await list_contributions(served.db, "mail")] == ["carol"]
    again = await serve(THREE, n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    assert list(again.actor.state.current_round.contributions) == ["carol"]
    ask(again, devices[2])
    await again.turn()
    assert [one.code for one in notices(again)] == [ReceiptCode.FORGOTTEN]
    assert await list_contributions(again.db, "mail") == []


async def test_a_round_that_is_filled_as_one_leaves_it_is_completed_without(joined):
    """Who is forgotten goes before the round stops collecting, although both are decided in one batch."""
    served, devices = await joined(RoundPolicy(2, 2, 0.0, 60.0))
    served.update(devices[2], 1, 0, body=delta(ROWS[2]))
    await served.turn()
    ask(served, devices[2])
    for device, row in zip(devices[:2], ROWS[:2], strict=True):
        served.update(device, 1, 0, body=delta(row))
    await served.turn()
    first = await get_round(served.db, "mail", 1)
    assert (first.state, first.n_updates) == ("completed", 2)
    assert {row.client_id for row in await list_contributions(served.db, "mail")} == {"alice", "bob"}


async def test_the_entries_of_a_job_are_published_too(joined):
    """Of its begin, and of the swap that completes erasures."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[2])
    await served.turn()
    heads = [served.retained.topics[HEAD]]
    assert heads == [head_of("mail", await find_audit_entry(served.db, "mail"))]
    answer(served, devices[0], step_of(served), [0.5, 0, 0, 0])
    answer(served, devices[1], step_of(served), [0, 0, 0, 7.0])
    await served.turn()
    await served.turn()
    heads.append(served.retained.topics[HEAD])
    assert [head.seq for head in heads] == [2, 4]  # erased and begun, then swapped and done
    assert heads[1] == head_of("mail", await find_audit_entry(served.db, "mail"))


async def test_what_it_taught_is_unlearned_by_calibrated_steps(joined):
    """New directions, old lengths: the model is what the others would have made; the old ones lose their weights."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    await play(served, devices, 2, 1, 2 * ROWS)
    assert (await latest_model(served.db, "mail")).version == 2
    ask(served, devices[2])
    await served.turn()
    assert [one.code for one in notices(served)] == ["forgetting"]
    for number in (1, 2):
        step = step_of(served)
        assert (step.step, step.local_interactions) == (number, 3)
        answer(served, devices[0], step, [0.5, 0, 0, 0])
        answer(served, devices[1], step, [0, 0, 0, 7.0])
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
    assert served.retained.topics[ROUND] is None


async def test_the_swap_is_between_two_rounds(joined):
    """What was accepted counts in its round first; who trained on the old model trains again, and learning goes on."""
    served, devices = await joined(RoundPolicy(2, 3, 50.0, 60.0))
    await play(served, devices, 1, 0, ROWS)
    served.update(devices[0], 2, 1, body=delta(ROWS[0]))
    ask(served, devices[2])
    await served.turn()
    step = step_of(served)
    for device in devices[:2]:
        answer(served, device, step, [1.0, 0, 0, 0])
    await served.turn()
    await served.turn()
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


async def test_several_share_one_job(joined):
    """Those who ask before it begins; each has a receipt of its own."""
    policy = UnlearningPolicy(Strategy.ROLLBACK, every_s=5.0, swap_every_s=0.0)
    served, devices = await joined(unlearning=policy)
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[1])
    await served.turn()
    served.clock.at += 2.0
    ask(served, devices[2])
    await served.turn()
    assert served.retained.topics[ROUND] is None
    served.clock.at += 4.0
    await served.turn()
    served.receipts.sent.clear()
    answer(served, devices[0], step_of(served), [0, 1.0, 0, 0])
    await served.turn()
    await served.turn()
    assert {one.client_id for one in notices(served)} <= {"bob", "carol"}
    pseudonym = served.actor.state.members.pseudonym
    jobs = {(await find_erasure(served.db, "mail", pseudonym(name))).job for name in NAMES[1:]}
    assert jobs == {1}
    assert unpack_vector((await latest_model(served.db, "mail")).weights).tolist() == [0.0, 3.0, 0.0, 0.0]


async def test_who_asks_during_a_job_is_in_it_no_more_and_waits_for_the_next(joined):
    """What it has answered is nobody's from then on; the first model may hold something of it, so it does not stay."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[2])
    await served.turn()
    first = step_of(served)
    answer(served, devices[1], first, [0, 0, 0, 1.0])
    await served.turn()
    ask(served, devices[1])
    await served.turn()
    answer(served, devices[0], first, [1.0, 0, 0, 0])
    await served.turn()
    await served.turn()
    assert unpack_vector((await get_model(served.db, "mail", 2)).weights).tolist() == [3.0, 0.0, 0.0, 0.0]
    await served.turn()
    step = step_of(served)
    assert step.job == 2
    answer(served, devices[0], step, [1.0, 0, 0, 0])
    await served.turn()
    await served.turn()
    assert unpack_vector((await latest_model(served.db, "mail")).weights).tolist() == [3.0, 0.0, 0.0, 0.0]
    assert (await get_model(served.db, "mail", 2)).weights == b""


async def test_how_far_a_job_was_is_not_retained_for_ever(joined, serve):
    """That it is done stays to be read until the next one begins, or the federator again; then the topic is cleared."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    topics = served.retained.topics
    first, second = (f"foltr/v1/mail/unlearning/{number}" for number in (1, 2))
    ask(served, devices[2])
    await served.turn()
    assert topics[first].state == "running"
    for device in devices[:2]:
        answer(served, device, step_of(served), [1.0, 0, 0, 0])
    await served.turn()
    await served.turn()
    assert topics[first].state == "done"
    assert topics[first].model_version == (await latest_model(served.db, "mail")).version
    ask(served, devices[1])
    await served.turn()
    await served.turn()
    assert (topics[first], topics[second].state) == (None, "running")
    answer(served, devices[0], step_of(served), [1.0, 0, 0, 0])
    await served.turn()
    await served.turn()
    assert topics[second].state == "done"
    again = await serve(THREE, n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    assert again.retained.topics[first] is None
    assert again.retained.topics[second] is None


async def test_a_job_that_goes_on_is_still_told_of(joined, serve):
    """A federator that starts again clears what is over only."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[2])
    await served.turn()
    again = await serve(THREE, n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    await again.turn()
    assert again.retained.topics["foltr/v1/mail/unlearning/1"].state == "running"


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
    answer(served, devices[1], step, [0, 1.0, 0, 0])
    served.receipts.sent.clear()
    for _ in range(3):
        await served.turn()
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert (receipt.rounds_replayed, receipt.coverage) == (2, 0.5)


async def test_nobody_is_asked_for_ever(joined):
    """A step that is not answered while others are online is passed over after three deadlines."""
    served, devices = await joined(
        ONE,
        unlearning=UnlearningPolicy(
            Strategy.ROLLBACK, every_s=0.0, swap_every_s=0.0, may_reset=True, step_s=10.0, min_coverage=0.0
        ),
    )
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[2])
    await served.turn()
    for _ in range(4):
        served.clock.at += 11.0
        await served.turn()
    assert served.retained.topics[ROUND] is None
    assert (await latest_model(served.db, "mail")).unlearning_job == 1


async def test_lost_keys_stop_nobody(joined):
    """What cannot be read is not replayed; the federator goes on, and erases."""
    served, devices = await joined(unlearning=replace(EAGER, may_reset=True))
    await play(served, devices, 1, 0, ROWS)
    for name in NAMES:
        served.db.keys.destroy("mail", name)
    ask(served, devices[2])
    for _ in range(4):
        await served.turn()
    row = await find_erasure(served.db, "mail", served.actor.state.members.pseudonym("carol"))
    assert (row.state, row.key_destroyed) == ("done", False)


async def test_its_name_is_not_written_again(joined):
    """A device that was away and asks to join is told, and no row says who it was."""
    served, devices = await joined()
    ask(served, devices[2])
    await served.turn()
    served.receive(devices[2], ClientTopic.JOIN, Join(federation="mail", client_id="carol", sdk_version="1"))
    await served.turn()
    events = await list_events(served.db, "mail")
    assert [event.code for event in events if event.code] == ["forgotten"]
    assert not [event for event in events if event.client_id == "carol" or "carol" in event.detail]


async def test_the_last_round_is_not_given_up_for_the_swap(joined):
    """A federation that was told to make two rounds makes two, and then the unlearned model."""
    served, devices = await joined(RoundPolicy(2, 3, 50.0, 60.0), stop_after_round=2)
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[2])
    await served.turn()
    for device in devices[:2]:
        answer(served, device, step_of(served), [1.0, 0, 0, 0])
    for _ in range(3):
        await served.turn()
    assert (await get_round(served.db, "mail", 2)).state == "collecting"
    for device in devices[:2]:
        served.update(device, 2, 1, body=delta(ROWS[0]))
    await served.turn()
    served.clock.at += 51.0
    await served.turn()
    assert (await get_round(served.db, "mail", 2)).state == "completed"
    assert (await latest_model(served.db, "mail")).unlearning_job == 1
    assert served.actor.finished


async def test_who_does_not_answer_is_not_waited_for_twice(joined):
    """A step ends with those who did; its coverage is in the receipt; below the least the job begins as retrain."""
    served, devices = await joined(
        ONE,
        unlearning=UnlearningPolicy(Strategy.ROLLBACK, every_s=0.0, swap_every_s=0.0, step_s=10.0, min_coverage=0.4),
    )
    await play(served, devices, 1, 0, ROWS)
    await play(served, devices, 2, 1, ROWS)
    ask(served, devices[2])
    await served.turn()
    answer(served, devices[0], step_of(served), [1.0, 0, 0, 0])
    await served.turn()
    assert step_of(served).step == 1
    served.clock.at += 10.0
    await served.turn()
    assert step_of(served).step == 2
    answer(served, devices[0], step_of(served), [1.0, 0, 0, 0])
    served.receipts.sent.clear()
    await served.turn()
    await served.turn()
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert receipt.coverage == 0.5


async def test_low_coverage_falls_back_to_learning_anew(joined):
    """It begins again without old lengths, from whoever answers, and the receipt says so."""
    served, devices = await joined(
        ONE,
        unlearning=UnlearningPolicy(Strategy.FED_ERASER, every_s=0.0, swap_every_s=0.0, step_s=10.0, min_coverage=0.9),
    )
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[2])
    await served.turn()
    for local_interactions in (3, 5):
        step = step_of(served)
        assert step.local_interactions == local_interactions
        answer(served, devices[0], step, [1.0, 0, 0, 0])
        served.clock.at += 11.0
        served.receipts.sent.clear()
        await served.turn()
        await served.turn()
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert receipt.strategy == "relearn"
    assert unpack_vector((await latest_model(served.db, "mail")).weights).tolist() == [1.0, 0.0, 0.0, 0.0]


async def test_a_job_without_devices_pauses_and_goes_on_when_one_is_back(joined):
    """With a deadline, a reason, and no step lost."""
    served, devices = await joined(ONE)
    await play(served, devices, 1, 0, ROWS)
    for device in devices[:2]:
        offline = Status(federation="mail", client_id=device.client_id, online=False)
        served.receive(device, ClientTopic.STATUS, offline)
    ask(served, devices[2])
    await served.turn()
    for _ in range(4):
        served.clock.at += 11.0
        await served.turn()
    kinds = [event.kind for event in await list_events(served.db, "mail")]
    assert kinds.count("unlearning_step_missed") == 3
    assert kinds.count("unlearning_paused") == 1
    assert served.retained.topics["foltr/v1/mail/unlearning/1"].state == "paused"
    served.receive(devices[0], ClientTopic.JOIN, Join(federation="mail", client_id="alice", sdk_version="1"))
    await served.turn()
    answer(served, devices[0], step_of(served), [1.0, 0, 0, 0])
    served.clock.at += 11.0
    await served.turn()
    await served.turn()
    assert unpack_vector((await latest_model(served.db, "mail")).weights).tolist() == [3.0, 0.0, 0.0, 0.0]


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


async def first_step_without_the_late(served, devices):
    """The last device comes a round late and asks to be forgotten: the model before it, and the first step."""
    for device, row in zip(devices[:2], ROWS, strict=False):
        served.update(device, 1, 0, body=delta(row))
    await served.turn()
    served.clock.at += 1.0
    await served.turn()
    before = await latest_model(served.db, "mail")
    assert before.version == 1
    await play(served, devices, 2, 1, ROWS)
    ask(served, devices[2])
    await served.turn()
    step = step_of(served)
    assert step.weights == before.weights
    return before, step


async def test_rollback_begins_before_the_client_came(joined):
    """What the others had made until then stays as it is."""
    policy = UnlearningPolicy(Strategy.ROLLBACK, interval=1, every_s=0.0, swap_every_s=0.0, step_s=10.0)
    served, devices = await joined(RoundPolicy(2, 3, 1e-3, 60.0), unlearning=policy)
    before, step = await first_step_without_the_late(served, devices)
    for device in devices[:2]:
        answer(served, device, step, [1.0, 0, 0, 0])
    served.receipts.sent.clear()
    await served.turn()
    await served.turn()
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert (receipt.strategy, receipt.rounds_replayed, receipt.models_withdrawn) == ("rollback", 1, 1)
    assert (await get_model(served.db, "mail", 1)).weights == before.weights


async def test_relearning_begins_before_the_client_came_and_calibrates_nothing(joined):
    """What the others learn anew counts as it is, by as many interactions; the interval's are asked for."""
    policy = UnlearningPolicy(Strategy.RELEARN, interval=10, every_s=0.0, swap_every_s=0.0, step_s=10.0)
    served, devices = await joined(RoundPolicy(2, 3, 1e-3, 60.0), unlearning=policy)
    before, step = await first_step_without_the_late(served, devices)
    # Of so short a history every round has a step, and a step stands for one.
    assert step.local_interactions == step.training.max_interactions
    for device in devices[:2]:
        answer(served, device, step, [16.0, 0, 0, 0])
    served.receipts.sent.clear()
    await served.turn()
    await served.turn()
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert (receipt.strategy, receipt.rounds_replayed, receipt.coverage) == ("relearn", 1, 1.0)
    newest = step_weights(await latest_model(served.db, "mail"))
    np.testing.assert_allclose(np.subtract(newest, unpack_vector(before.weights)), [16.0, 0, 0, 0])


async def test_a_forged_request_is_refused(serve, operator):
    """Another client's signature, or none, erases nobody; an unknown client is told so."""
    served = await serve(THREE, n_features=N_FEATURES, enrolment_key=operator.key.public, key=KEY)
    devices = [operator.enrol(name) for name in NAMES]
    await served.join(devices)
    ask(served, devices[0].but(key=devices[1].key))
    ask(served, devices[0].but(key=None))
    ask(served, operator.enrol("stranger"))
    await served.turn()
    assert sorted(one.code for one in notices(served)) == ["bad_signature", "bad_signature", "unknown_client"]
    assert served.actor.state.members.joined("alice")


async def test_the_operator_may_ask_and_again(serve, operator):
    """Asked once more, the order is answered again and the client told again, and nothing else is done."""
    served = await serve(THREE, n_features=N_FEATURES, enrolment_key=operator.key.public, key=KEY)
    await served.join([operator.enrol(name) for name in NAMES])
    for payload in (
        operator.quarantines("bob", sequence=1).payload,
        operator.forgets("alice", sequence=2).payload,
        operator.forgets("alice", sequence=2).payload,
        operator.forgets("zoe", sequence=3).payload,
    ):
        served.actor.receive(InboundMessage("foltr/v1/mail/operator", payload, retained=False))
    await served.turn()
    assert sorted(one.code for one in notices(served)) == ["forgotten", "forgotten", "unknown_client"]
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert receipt.requested_by == "operator"
    rows = await list_orders(served.db, "mail")
    assert [(row.number, row.outcome, row.code) for row in rows] == [
        (1, "obeyed", None),
        (2, "obeyed", None),
        (3, "refused", "unknown_client"),
    ]
    assert [(row.client_id, row.payload is None) for row in rows] == [("bob", False), (None, True), (None, True)]
    told = [one for one in served.receipts.sent if isinstance(one, OrderAnswer)]
    assert [(one.number, one.reply) for one in told] == [(1, "obeyed"), (2, "obeyed"), (2, "obeyed"), (3, "refused")]


async def test_many_who_ask_at_once_do_not_hold_up_the_others(serve, unsigned):
    """A few are erased in a turn; an update that came behind all requests is answered in the first one."""
    served = await serve(RoundPolicy(9, 20, 60.0, 60.0), n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    leaving = [unsigned(f"leaver-{i}") for i in range(10)]
    stays = unsigned("stays")
    await served.join([*leaving, stays])
    for device in leaving:
        ask(served, device)
    served.update(stays, 1, 0, body=delta(ROWS[0]))
    n_told = []
    for _ in range(3):
        await served.turn()
        n_told.append(len(notices(served)))
    assert n_told == [4, 8, 10]
    updates = [one for one in served.receipts.sent if isinstance(one, UpdateReceipt)]
    assert [(one.client_id, one.code) for one in updates] == [("stays", ReceiptCode.ACCEPTED)]
    assert served.receipts.sent.index(updates[0]) < served.receipts.sent.index(notices(served)[4])


async def test_where_an_erasure_takes_long_a_turn_has_one(serve, unsigned, monkeypatch):
    """By how long the last one took: the others are answered in between."""
    served = await serve(RoundPolicy(9, 20, 60.0, 60.0), n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    leaving = [unsigned(f"leaver-{i}") for i in range(6)]
    await served.join(leaving)
    erase = served.actor.eraser.erase

    async def slowly(wanted):
        served.clock.at += 0.2
        return await erase(wanted)

    monkeypatch.setattr(served.actor.eraser, "erase", slowly)
    for device in leaving:
        ask(served, device)
    n_told = []
    for _ in range(3):
        await served.turn()
        n_told.append(len(notices(served)))
    assert n_told == [4, 5, 6]


async def test_nobody_else_waits_for_an_erasure(joined, monkeypatch):
    """What is stored of the others in the same turn is answered before anything is erased."""
    served, devices = await joined()
    erase, told_before = served.actor.eraser.erase, []

    async def noting(wanted):
        told_before.extend(one.client_id for one in served.receipts.sent if isinstance(one, UpdateReceipt))
        return await erase(wanted)

    monkeypatch.setattr(served.actor.eraser, "erase", noting)
    ask(served, devices[2])
    served.update(devices[0], 1, 0, body=delta(ROWS[0]))
    served.receipts.sent.clear()
    await served.turn()
    assert told_before == ["alice"]
    assert [one.code for one in notices(served)] == ["forgotten"]


async def test_no_bytes_of_it_are_left(joined, tmp_path: Path):
    """Neither its name nor its update is in the database's files, and its key is gone."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[2])
    await served.turn()
    for device in devices[:2]:
        answer(served, device, step_of(served), [1.0, 0, 0, 0])
    await served.turn()
    await served.turn()
    await served.actor.close()
    assert await served.db.vacuum()
    for content in contents(tmp_path):
        assert b"carol" not in content
        assert pack_vector(ROWS[2]) not in content
    assert served.db.keys.find("mail", "carol") is None
    assert served.db.keys.find("mail", "alice") is not None
    assert len(await list_rounds(served.db, "mail")) == 3


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_key_that_is_back_goes_again(joined, serve, is_restarted):
    """A copy of the keys was put back: it goes when somebody asks again, or the federator starts while one waits."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    path = next(
        file
        for file in served.db.keys.folder.rglob("*")
        if file.is_file() and file.read_bytes() == served.db.keys.find("mail", "carol")
    )
    copy = path.read_bytes()
    ask(served, devices[2])
    await served.turn()
    assert not path.exists()
    path.write_bytes(copy)
    if is_restarted:
        await serve(THREE, n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    else:
        ask(served, devices[2])
        await served.turn()
    assert not path.exists()
    (row,) = await list_erasures(served.db, "mail")
    assert row.key_destroyed


async def test_a_key_of_another_database_stays(joined):
    """Whoever was forgotten in one may be a client in the other, whose keys are in the same folder."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    ask(served, devices[2])
    await served.turn()
    other = served.db.keys.key("mail", "carol")
    ask(served, devices[2])
    await served.turn()
    assert served.db.keys.find("mail", "carol") == other


async def test_a_job_ends_however_fast_live_rounds_are(joined):
    """With five live rounds for each step it catches up all the same, going through fewer and fewer of them."""
    served, devices = await joined(RoundPolicy(2, 2, 0.0, 60.0), unlearning=EAGER)
    await play(served, devices[1:], 1, 0, ROWS[1:])
    ask(served, devices[2])
    await served.turn()
    number, n_steps = 1, 0
    for _ in range(40):
        if served.retained.topics[ROUND] is None:
            break
        answer(served, devices[1], step_of(served), [1.0, 0, 0, 0])
        n_steps += 1
        await served.turn()
        for _ in range(5):
            row = (await list_rounds(served.db, "mail"))[-1]
            number = row.round
            for device in devices[:2]:
                served.update(device, number, row.base_version, body=delta([0.1, 0.1, 0, 0]))
            await served.turn()
    assert served.retained.topics[ROUND] is None
    assert n_steps < 12
    assert number > 2 * n_steps
