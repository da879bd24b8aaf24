"""A device takes part in secure sums: with exactly B interactions, once in a round, charged once, whatever happens."""

import shutil

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_under_policy import BOUND, CLIP_NORM, POLICY, on_grid
from support.federator_by_hand import N_FEATURES, announced
from support.secure_policies import policy

from foltr.core.methods.registry import METHODS, n_auxiliary, training_for
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.policies import is_turn_of
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_tickets import open_ticket
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec
from foltr.core.protocol.updates import DenseDelta, MaskedVector, ModelUpdate
from foltr.edge_client.store.store import UNNUMBERED, Interaction


async def test_an_update_has_exactly_as_many_interactions_as_the_policy_says(device):
    """Masked and charged; not as the round announces: fewer are no update, and more wait for the next."""
    device.announce(1)  # one to ten, it says
    device.see(1)
    assert await device.is_silent()
    device.see(2, 3, 4, 5)
    first = await device.update()
    assert isinstance(first.body, MaskedVector)
    assert (first.after, first.through, first.n_interactions, device.store.spent().last) == (0, 1, 1, 1)
    assert device.agent.participation.policy == POLICY
    device.answer(first)
    device.announce(2, clip_norm=4 * CLIP_NORM)
    second = await device.update()
    device.answer(second)
    device.announce(3)
    assert await device.is_silent(), "one is left"
    assert device.open(first).tolist() == on_grid(1, 2)
    assert device.open(second).tolist() == on_grid(3, 4, clip_norm=4 * CLIP_NORM), "the clip norm is the round's"
    assert (second.after, second.through) == (1, 2)


async def test_lists_that_cannot_be_learned_are_part_of_an_update_all_the_same(make):
    """When a device takes part must not depend on what is in its lists: here on features of another number."""
    device = make(POLICY)
    device.announce(1)
    device.store.add_interaction(
        "odd", Interaction(UNNUMBERED, np.ones((1, 3), np.float32), np.zeros(1, np.int64), np.ones(1, np.bool_))
    )
    device.see(5)
    device.restart()
    device.announce(1)
    assert device.open(await device.update()).tolist() == on_grid(5)


async def test_a_device_whose_learning_fails_takes_part_with_zeros(make):
    """A step that ends in numbers that are not finite: each of its interactions counts, and says nothing."""

    def exploding(weights, interaction, training):  # noqa: ARG001
        return weights * np.nan

    device = make(POLICY, learner=exploding)
    device.announce(1)
    with capture_logs() as logs:
        device.see(1, 2)
    assert [line["event"] for line in logs] == ["interactions_passed_over"] * 2
    update = await device.update()
    assert not device.open(update).any()
    assert len(update.body.values) == 8 * N_FEATURES


@pytest.mark.parametrize("method", ["fpdgd", "fedprox", "fedper", "fpdgd-personal", "fedips", "fedavg"])
async def test_every_method_that_sends_differences_of_weights_does_it_masked(make, method, rng):
    """What comes out of the masks is what would have been sent raw, on the grid; also personal and part bodies."""
    ranker = NeuralRankerSpec(n_features=N_FEATURES, hidden=4)
    if METHODS[method].only_ranker is not None and METHODS[method].only_ranker.kind == "linear":
        ranker = LinearRankerSpec(n_features=N_FEATURES)
    training = training_for(method, {}, 2)
    auxiliary = n_auxiliary(training, ranker)
    dim = ranker.n_weights + auxiliary
    newest = announced(0, np.linspace(-0.2, 0.2, dim), ranker, n_auxiliary=auxiliary)
    device = make(policy(dim), learner=None, propensities=np.ones(10))
    device.announce(1, newest=newest, training=training)
    raw = []
    body = device.agent.trainer.body
    device.agent.trainer.body = lambda: raw.append(body()) or raw[-1]
    for _ in range(2):
        device.agent.record_clicks(device.agent.rank(rng.random((5, N_FEATURES)), k=5), [1])
    encoded = device.open(await device.update())
    expected = np.zeros(dim)
    values = np.frombuffer(raw[-1].values, "<f4")
    start = getattr(raw[-1], "start", 0)
    expected[start : start + len(values)] = values
    assert np.abs(encoded - expected * device.signed.policy.bound / CLIP_NORM).max() < 1.0
    assert expected.any()


async def test_personal_weights_go_on_although_an_update_does_not_count(make):
    """What was learned from clicks that are spent stays with the user; the next update begins with it."""
    device = make(policy(N_FEATURES), learner=None)
    training = training_for("fpdgd-personal", {}, 2)
    device.announce(1, training=training)
    device.see(1, 2)
    device.answer(await device.update(), ReceiptCode.LATE)
    state = device.store.local_state()
    assert state is not None
    device.restart()
    assert device.store.local_state() == state


@pytest.mark.parametrize(
    ("dim", "method", "cause"),
    [
        (N_FEATURES, "foltr-es", "the method foltr-es does not send differences of weights"),
        (N_FEATURES + 1, "fpdgd", f"the model has {N_FEATURES} values, and the policy is for {N_FEATURES + 1}"),
    ],
)
async def test_what_no_sum_can_be_made_of_gets_nothing(make, dim, method, cause):
    """The log says so once."""
    device = make(policy(dim), learner=None)
    training = training_for(method, {}, 2)
    with capture_logs() as logs:
        for number in (1, 2):
            device.announce(number, training=training)
            for _ in range(3):
                device.agent.record_clicks(device.agent.rank(np.eye(4, N_FEATURES), k=4), [1])
    assert await device.is_silent()
    assert [line["cause"] for line in logs if line["event"] == "participation_refused"] == [cause]


async def test_an_alteration_is_masked_and_clipped_like_anything_else(make):
    """For experiments with attackers: what is crafted is behind masks, and no longer than C."""

    async def alter(update, round_):
        assert (update.n_interactions, round_.round) == (1, 1)
        assert isinstance(update.body, DenseDelta)
        return DenseDelta(dim=N_FEATURES, values=pack_vector([-1e5] + [0.0] * (N_FEATURES - 1)))

    device = make(POLICY, alter_update=alter)
    device.announce(1)
    device.see(1, 2)
    while device.agent.contributor.is_altering:
        await device.agent.contributor._altering  # noqa: SLF001
    assert device.open(await device.update()).tolist() == [-BOUND] + [0] * (N_FEATURES - 1)
    assert device.store.spent().last == 1


async def test_a_device_takes_part_in_one_of_each_b_rounds(make):
    """Which, follows from the policy and its name alone."""
    signed = policy(period=3)
    device = make(signed)
    device.see(*(i % N_FEATURES for i in range(20)))
    rounds = []
    for number in range(1, 13):
        device.announce(number)
        if not await device.is_silent():
            rounds.append(number)
            device.answer(_pending(device))
    assert len(rounds) == 4
    assert rounds == [number for number in range(1, 13) if is_turn_of(signed.hash, 3, number, "device-7")]


def _pending(device):
    return open_envelope(device.store.pending_update().payload).read(ModelUpdate)


async def test_one_round_gets_one_participation_even_from_a_device_that_is_started_again(device):
    """Late, refused, or told that it began elsewhere: no second one in the round, also if it is asked for."""
    device.announce(1)
    device.see(*range(6))
    device.answer(await device.update(), ReceiptCode.OVERLAPS)
    assert await device.is_silent()
    device.restart()
    device.announce(1)
    assert await device.is_silent()
    assert device.store.spent().last == 1
    device.announce(2)
    assert (await device.update()).through == 2


@pytest.mark.parametrize("code", [ReceiptCode.LATE, ReceiptCode.QUARANTINED, ReceiptCode.ACCEPTED])
async def test_clicks_that_were_sent_are_charged_and_not_sent_again(device, code):
    """Their sum may have been opened, also if the round is abandoned after it counted; the next has other clicks."""
    device.announce(1)
    device.see(1, 2, 3, 4)
    device.answer(await device.update(), code)
    device.join(watermark=0)
    device.announce(2)
    second = await device.update()
    assert device.open(second).tolist() == on_grid(3, 4)
    assert (second.after, second.through, device.store.spent().last) == (0, 2, 2)


async def test_a_ledger_at_its_cap_sends_nothing_and_says_so_once(make):
    """Two participations are allowed; the user goes on ranking, and clicks wait."""
    device = make(policy(k=2))
    device.see(*(i % N_FEATURES for i in range(12)))
    for number in (1, 2):
        device.announce(number)
        device.answer(await device.update())
    with capture_logs() as logs:
        for number in (3, 4, 5):
            device.announce(number)
            device.see(1)
            assert await device.is_silent()
        device.restart()
        device.announce(6)
    assert await device.is_silent()
    causes = [line["cause"] for line in logs if line["event"] == "participation_refused"]
    assert causes == ["participation 3 of 2"] * 2, "once in each run"
    assert device.store.n_waiting() > 0


async def test_a_newer_policy_does_not_give_spent_epsilon_back(make):
    """More participations under a higher version find that the epsilon is spent."""
    older = policy(k=2)
    device = make(older)
    device.see(*(i % N_FEATURES for i in range(12)))
    for number in (1, 2):
        device.announce(number)
        device.answer(await device.update())
    newer = device.signed = policy(k=3, after=older)
    device.hear_policy(newer)
    device.join()
    with capture_logs() as logs:
        device.announce(3)
    assert await device.is_silent()
    assert next(line["cause"] for line in logs if line["event"] == "participation_refused").startswith(
        "participation 3 would make epsilon"
    )


async def test_a_ledger_that_was_restored_from_a_backup_charges_what_it_knows(device, path, tmp_path):
    """The update begins above the federation's watermark, else it is refused; it costs one more than the ledger has."""
    device.see(*(i % N_FEATURES for i in range(16)))
    backup = tmp_path / "backup.sqlite"
    for number in (1, 2, 3):
        device.announce(number)
        device.answer(await device.update())
        if number == 1:
            device.store.close()
            shutil.copy(path, backup)
            device.start()
    device.path = backup
    device.restart()
    assert device.store.spent().last == 1
    device.announce(4)
    update = await device.update()
    assert (update.after, update.through, participation_of(update)) == (3, 4, 2)
    assert [entry.number for entry in device.store.entries()] == [1, 2]


async def test_a_device_that_lost_its_store_takes_part_at_once_and_charges_what_it_knows(make, path):
    """Its participations are numbered from 1 again; what it sent before, the helpers count."""
    device = make(POLICY)
    device.store.close()
    path.unlink()
    device.start()
    device.join(watermark=7)
    device.announce(9)
    device.see(1, 2)
    update = await device.update()
    assert (update.after, update.through) == (7, 8)
    assert device.open(update).tolist() == on_grid(1, 2)
    assert (participation_of(update), device.store.spent().last) == (1, 1)


@pytest.mark.parametrize("lie", [2, 2**47, 2**48])
@pytest.mark.parametrize("at_join", [True, False], ids=["at a join", "in a receipt"])
async def test_a_federator_that_lies_about_the_mark_costs_no_participation(make, lie, at_join):
    """Of three the device takes part in three, once the lie has ended; and in as many while it lasts."""
    device = make(policy(k=3))
    device.see(*(i % N_FEATURES for i in range(12)))
    device.announce(1)
    device.answer(await device.update())
    device.lie(lie, at_join=at_join)
    device.announce(2)
    update = await device.update()
    assert participation_of(update) == 2
    device.answer(update, ReceiptCode.OVERLAPS)  # its federator is an honest one again
    device.restart()
    device.join(1)
    device.announce(3)
    update = await device.update()
    assert (update.after, participation_of(update), device.store.spent().last) == (1, 3, 3)
    assert [entry.number for entry in device.store.entries()] == [1, 2, 3]


def participation_of(update):
    return open_ticket(update.body.ticket).ticket.participation
