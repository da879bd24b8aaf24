"""A device's update in a secure sum is made, charged and sent once, across restarts, losses and repeats."""

import numpy as np
import pytest
from support.deaths import dying_at
from support.device_under_policy import INBOX, POLICY, UPDATES, identity, on_grid, opened
from support.federator_by_hand import TOPICS
from support.secure_policies import policy

from foltr.core.errors import DataError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.chunks import Assembly
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signed_tickets import open_ticket, ticket_name
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import FpdgdPaperTraining, LinearRankerSpec
from foltr.core.protocol.updates import Chunk, Manifest, ModelUpdate

CHUNKS = TOPICS.client("device-7", ClientTopic.CHUNKS)


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
async def test_a_crash_around_the_stores_commit_charges_once_and_the_same_bytes_are_sent(device, place):
    """Before it nothing was charged nor sent; after it what was charged is sent, and nothing else."""
    device.announce(1)
    device.see(1)
    with dying_at(place, "edge_client.store.store"):
        device.see(2)
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


async def test_lists_that_wait_for_clicks_are_in_no_sum_and_cost_nothing(make, clock):
    """A sum takes an exact number of lists: those that no longer wait, though more are there."""
    device = make(POLICY, click_window_s=240.0)
    device.announce(1)
    device.see(1)
    clock.passes(200.0)
    device.see(2, 3)
    clock.passes(100.0)
    assert await device.is_silent()
    assert (device.store.spent().last, device.agent.store.n_open()) == (0, 2)
    clock.passes(200.0)
    payload = await _only_update(device)
    assert opened(_read(payload), POLICY, device.credentials.key.public).tolist() == on_grid(1, 2)
    assert (device.store.spent().last, device.store.n_waiting()) == (1, 1)


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
    """Masks, number and charge are as before, and what verifiers ask: two points of a polynomial would tell more."""
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


async def test_clicks_that_were_sent_with_the_devices_own_noise_are_not_sent_again(make):
    """Fresh noise over the same clicks would tell more: neither if the update does not count, nor after a restart."""
    noise = {"learning_rate": 0.1, "sensitivity": 3.0, "epsilon": 2.0, "n_clients": 10}
    device = make(POLICY, credentials=identity(), learner=None)
    device.announce(1, secure=None, training=FpdgdPaperTraining(min_interactions=2, max_interactions=2, **noise))
    device.see(1, 2)
    update = await device.update()
    device.restart()
    device.answer(update, ReceiptCode.LATE)
    assert (device.store.pending_update(), device.store.n_waiting(), device.store.kept_ids()) == (None, 0, [])


async def test_a_round_without_a_policy_gets_one_update_even_from_a_device_that_is_started_again(make):
    """The federator would refuse another; a round that begins again has counted nothing, and gets one."""
    device = make(POLICY, credentials=identity())
    device.announce(1, secure=None)
    device.see(1)
    device.answer(await device.update())
    device.restart()
    device.see(2)
    device.announce(1, secure=None)
    assert await device.is_silent()
    device.announce(1, secure=None, opened_at=9.0)
    assert (await device.update()).through == 2


async def test_forgotten_it_sends_nothing_and_keeps_the_totals_of_the_ledger(device):
    """With the watermark; of policies it hears no longer, and rounds get nothing."""
    device.announce(1)
    device.see(1, 2)
    device.answer(await device.update())
    spent = device.store.spent()
    notice = ErasureNotice(federation="mail", client_id="device-7", code=ReceiptCode.FORGETTING)
    device.say(INBOX, notice)
    device.hear_policy(policy(after=POLICY))
    assert (device.agent.policy.newest, device.agent.participation.policy) == (None, None)
    device.announce(2)
    device.see(3, 4)
    assert await device.is_silent()
    device.restart()
    assert device.store.spent() == spent
    assert device.store.rows("SELECT count(*) FROM interactions") == [(0,)]
    assert device.store.rows("SELECT key FROM meta") == []
    assert device.store.rows("SELECT state, federation, client_id FROM owner") == [("forgotten", None, None)]
