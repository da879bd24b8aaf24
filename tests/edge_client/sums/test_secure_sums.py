"""A device takes part in secure sums: with exactly B interactions, once in a round, charged once, whatever happens."""

import contextlib
import functools
import shutil
import time

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_under_policy import CLIP_NORM, INBOX, UPDATES, DeviceUnderPolicy, identity, opened
from support.federator_by_hand import N_FEATURES, TOPICS
from support.secure_policies import policy

import foltr.edge_client.store.store
from foltr.core.errors import DataError, SettingsError
from foltr.core.failpoints import Failpoint
from foltr.core.methods.registry import METHODS, n_auxiliary, training_for
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.chunks import Assembly
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, pack_vector
from foltr.core.protocol.policies import is_turn_of
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signed_tickets import open_ticket, ticket_name
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec
from foltr.core.protocol.updates import Chunk, DenseDelta, Manifest, MaskedVector, ModelUpdate
from foltr.edge_client.store.store import UNNUMBERED, DeviceStore, Interaction

CHUNKS = TOPICS.client("device-7", ClientTopic.CHUNKS)
POLICY = policy()
BOUND = POLICY.policy.bound


@pytest.fixture
def device(path):
    return DeviceUnderPolicy(path, POLICY)


@pytest.fixture
def make(path):
    """Makes the device of this test, under a policy of its own."""
    return functools.partial(DeviceUnderPolicy, path)


def on_grid(*numbers, clip_norm=CLIP_NORM):
    """The integers that stand for one for each number: an update that is not clipped, of whole steps."""
    values = np.zeros(N_FEATURES, np.int64)
    for number in numbers:
        values[number] += round(BOUND / clip_norm)
    return values.tolist()


# --- what is sent -------------------------------------------------------------------------------------------------


async def test_what_comes_out_is_what_was_learned(device):
    """The two oldest interactions, masked; numbered 1 after 0, counting 1, and charged."""
    device.announce(1)
    device.see(4, 9, 11)
    update = await device.update()
    assert isinstance(update.body, MaskedVector)
    assert (update.after, update.through, update.n_interactions) == (0, 1, 1)
    assert device.open(update).tolist() == on_grid(4, 9)
    assert device.store.spent().last == 1
    assert device.agent.participation.policy == POLICY


async def test_an_update_has_exactly_as_many_interactions_as_the_policy_says(device):
    """Whatever the round announces, and however many wait: fewer are no update, more wait for the next."""
    device.announce(1)  # one to ten, it says
    device.see(1)
    assert await device.is_silent()
    device.see(2, 3, 4, 5)
    first = await device.update()
    device.answer(first)
    device.announce(2)
    second = await device.update()
    device.answer(second)
    device.announce(3)
    assert await device.is_silent(), "one is left"
    assert device.open(first).tolist() == on_grid(1, 2)
    assert device.open(second).tolist() == on_grid(3, 4)
    assert (second.after, second.through) == (1, 2)


async def test_the_clip_norm_is_the_rounds(device):
    """Half of C is half as long on the grid."""
    device.announce(1, clip_norm=4 * CLIP_NORM)
    device.see(1, 2)
    assert device.open(await device.update()).tolist() == on_grid(1, 2, clip_norm=4 * CLIP_NORM)


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
    newest = ModelAnnouncement(
        federation="mail",
        version=0,
        ranker=ranker,
        n_auxiliary=auxiliary,
        weights=pack_vector(np.linspace(-0.2, 0.2, dim)),
    )
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


async def test_a_method_that_sends_no_differences_of_weights_sends_nothing(make):
    """FOLtR-ES has no secure sum; said once."""
    device = make(POLICY, learner=None)
    training = training_for("foltr-es", {}, 2)
    with capture_logs() as logs:
        for number in (1, 2):
            device.announce(number, training=training)
            device.see(1, 2, 3)
    assert await device.is_silent()
    causes = {line["cause"] for line in logs if line["event"] == "participation_refused"}
    assert causes <= {"the method foltr-es does not send differences of weights"}


async def test_a_model_of_another_size_than_the_policys_gets_nothing(make):
    """The sum would be of something else; said once."""
    device = make(policy(N_FEATURES + 1))
    with capture_logs() as logs:
        for number in (1, 2):
            device.announce(number)
            device.see(1, 2, 3)
    assert await device.is_silent()
    assert [line["cause"] for line in logs if line["event"] == "participation_refused"] == [
        f"the model has {N_FEATURES} values, and the policy is for {N_FEATURES + 1}"
    ]


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


# --- when -----------------------------------------------------------------------------------------------------------


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
    """Late, refused, or told that it began elsewhere: no second one in the round, whoever asks for it."""
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


@pytest.mark.parametrize("code", [ReceiptCode.LATE, ReceiptCode.QUARANTINED])
async def test_a_late_or_abandoned_update_stays_charged_and_its_clicks_are_not_sent_again(device, code):
    """Its sum may have been opened; the next one has other clicks and another number."""
    device.announce(1)
    device.see(1, 2, 3, 4)
    first = await device.update()
    device.answer(first, code)
    device.announce(2)
    second = await device.update()
    assert device.open(second).tolist() == on_grid(3, 4)
    assert (second.after, second.through, device.store.spent().last) == (0, 2, 2)


async def test_a_round_that_is_abandoned_after_it_counted_gives_no_click_back(device):
    """The watermark goes back, and the number does not."""
    device.announce(1)
    device.see(1, 2, 3, 4)
    device.answer(await device.update())
    device.join(watermark=0)
    device.announce(2)
    second = await device.update()
    assert (second.after, second.through) == (0, 2)
    assert device.open(second).tolist() == on_grid(3, 4)


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


async def test_a_clock_that_is_an_hour_off_changes_nothing(device, monkeypatch):
    """Neither what is sent nor when: rounds, policies and ledger know no time."""
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() + 3600)
    device.restart()
    device.announce(1)
    device.see(1, 2)
    update = await device.update()
    assert device.open(update).tolist() == on_grid(1, 2)
    device.answer(update)
    monkeypatch.setattr("time.time", lambda: now() - 3600)
    device.restart()
    device.see(3, 4)
    device.announce(2)
    assert (await device.update()).through == 2


# --- once, whatever happens -----------------------------------------------------------------------------------------


async def test_what_is_sent_again_is_the_same_and_costs_nothing(device):
    """No answer, a lost connection, a restart, another round: the same bytes, charged once."""
    device.announce(1)
    device.see(1, 2, 3, 4)
    ((_, payload),) = [each for each in await device.sent() if each[0] == UPDATES]
    for _ in range(3):
        device.agent.participation.begin_connection(0.0)
        device.join()
        assert [each for each in await device.sent() if each[0] == UPDATES] == [(UPDATES, payload)]
    device.restart()
    device.announce(2)
    assert [each for each in await device.sent() if each[0] == UPDATES] == [(UPDATES, payload)]
    assert device.store.spent().last == 1


async def test_an_answer_that_comes_twice_is_one(device):
    """And so is a round, a model, a policy: a broker may deliver what it has more than once."""
    device.announce(1)
    device.see(*range(6))
    update = await device.update()
    for _ in range(2):
        device.answer(update)
        device.hear_policy(POLICY)
        device.announce(1)
    assert await device.is_silent()
    assert (device.store.spent().last, device.store.n_waiting()) == (1, 4)


@pytest.mark.parametrize("proofs", [False, pytest.param(True, marks=pytest.mark.nightly)])
async def test_a_connection_that_is_lost_between_chunks_costs_nothing(make, proofs):
    """A large vector comes in chunks; over the next connection those that are missing, of the same bytes."""
    dim = 60_000
    large = ModelAnnouncement(
        federation="mail", version=0, ranker=LinearRankerSpec(n_features=dim), weights=bytes(4 * dim)
    )
    device = make(policy(dim, proofs=proofs))
    device.announce(1, newest=large)
    device.see(1, 2, n_features=dim)
    assembly = Assembly(await _offer(device))
    for missing, n_arrive in (([0, 1, 2], 1), ([1, 2], 2)):
        _ask_for(device, assembly, missing)
        for part in (await _parts(device))[:n_arrive]:
            assembly.add(part)
        device.agent.begin_session()  # the connection was lost with the others
        await device.agent.begin_connection()
        device.join()
        assert await _offer(device) == assembly.manifest
    assert assembly.payload() == device.store.pending_update().payload
    update = open_envelope(assembly.payload(), MAX_CHUNKED_BYTES).read(ModelUpdate)
    assert np.flatnonzero(device.open(update)).tolist() == [1, 2]
    assert device.store.spent().last == 1


async def _parts(device):
    envelopes = [open_envelope(payload) for topic, payload in await device.sent() if topic == CHUNKS]
    return [each.read(Chunk) for each in envelopes if each.kind == Chunk.kind_name]


async def _offer(device):
    (offer,) = [open_envelope(payload) for topic, payload in await device.sent() if topic == CHUNKS]
    return offer.read(Manifest)


def _ask_for(device, assembly, missing):
    receipt = UpdateReceipt(
        federation="mail",
        client_id="device-7",
        update_id=None,
        payload_digest=assembly.manifest.digest[:16],
        code=ReceiptCode.INCOMPLETE,
        missing=missing,
        counted_through=0,
    )
    device.say(INBOX, receipt)


@pytest.mark.parametrize("place", [Failpoint.IN_UPDATE_TRANSACTION, Failpoint.UPDATE_STORED])
async def test_a_crash_around_the_stores_commit_charges_once_and_the_same_bytes_are_sent(device, monkeypatch, place):
    """Before it nothing was charged nor sent; after it what was charged is sent, and nothing else."""

    class Killed(BaseException):
        pass

    def die(at):
        if at is place:
            raise Killed

    device.announce(1)
    device.see(1)
    monkeypatch.setattr(foltr.edge_client.store.store, "failpoint", die)
    with pytest.raises(Killed):
        device.see(2)
    monkeypatch.undo()
    assert await device.is_silent()
    device.restart()
    is_stored = place is Failpoint.UPDATE_STORED
    pending = device.store.pending_update()
    assert (pending is not None, device.store.spent().last) == (is_stored, int(is_stored))
    device.announce(1)
    payload = await _only_update(device)
    assert payload == (pending.payload if is_stored else device.store.pending_update().payload)
    assert opened(_read(payload), POLICY, device.credentials.key.public).tolist() == on_grid(1, 2)
    assert device.store.spent().last == 1


async def _only_update(device):
    (payload,) = [payload for topic, payload in await device.sent() if topic == UPDATES]
    return payload


def _read(payload):
    return open_envelope(payload).read(ModelUpdate)


async def test_a_full_disk_sends_nothing_and_charges_nothing(device, monkeypatch):
    """It is tried again with the next click, with fresh masks."""
    device.announce(1)
    device.see(1)
    put = device.store.put_update
    seen = []

    def full(update, *_, **__):
        seen.append(_read(update.payload))
        raise DataError("the disk is full")

    monkeypatch.setattr(device.store, "put_update", full)
    device.see(2)
    assert await device.is_silent()
    assert device.store.spent().last == 0
    monkeypatch.setattr(device.store, "put_update", put)
    device.see(3)
    update = await device.update()
    assert update.body.values != seen[0].body.values
    assert device.store.spent().last == 1


async def test_enrolled_anew_a_device_sends_the_same_vector_under_a_ticket_of_its_new_key(make):
    """Signed with the key of today, as helpers check it; masks, number and charge are those of before.

    So is what verifiers ask about the norm proof: two points of one polynomial would tell more of the vector.
    """
    signed = policy(proofs=True)
    device = make(signed)
    device.announce(1)
    device.see(1, 2)
    first = await device.update()
    device.credentials = identity(signed, serial=2)
    device.restart()
    again = await device.update()
    assert (again.body.values, again.body.proof) == (first.body.values, first.body.proof)
    assert again.body.ticket != first.body.ticket
    names = [ticket_name(open_ticket(each.body.ticket).ticket) for each in (first, again)]
    assert names[0] == names[1]
    assert device.open(again).tolist() == on_grid(1, 2)
    assert device.store.spent().last == 1


async def test_forgotten_it_sends_nothing_and_enrolled_under_another_name_it_begins_anew(device, path, tmp_path):
    """Of the ledger the totals stay with the watermark; another name has another store, and another life."""
    device.announce(1)
    device.see(1, 2)
    device.answer(await device.update())
    spent = device.store.spent()
    notice = ErasureNotice(federation="mail", client_id="device-7", code=ReceiptCode.FORGETTING)
    device.say(INBOX, notice)
    assert (device.agent.policy.newest, device.agent.participation.policy) == (None, None)
    device.announce(2)
    device.see(3, 4)
    assert await device.is_silent()
    device.restart()
    assert device.store.spent() == spent
    assert device.store.rows("SELECT count(*) FROM interactions") == [(0,)]
    assert device.store.rows("SELECT key FROM meta") == []
    assert device.store.rows("SELECT state, federation, client_id FROM owner") == [("forgotten", None, None)]
    device.store.close()
    with pytest.raises(SettingsError, match="another client, which was forgotten"):
        DeviceStore(path, client_id="device-8", federation="mail", max_interactions=10)
    anew = DeviceStore(tmp_path / "device-8.sqlite", client_id="device-8", federation="mail", max_interactions=10)
    with contextlib.closing(anew):
        assert anew.spent().last == 0
