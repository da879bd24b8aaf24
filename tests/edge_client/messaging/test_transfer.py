"""What a device collects in chunks and what it waits for, without a broker: what is asked for, kept, and given up."""

import asyncio

import pytest
from support.waiting import PATIENCE_S

from foltr.core.errors import MessageError
from foltr.core.protocol.chunks import chunk_of, manifest_of
from foltr.core.protocol.fields import CHUNK_BYTES
from foltr.edge_client.messaging.outbox import is_set_within
from foltr.edge_client.messaging.transfer import MODEL_PATIENCE_S, ChunkedModel

NOW = 1_000.0
MODEL, NEWER = b"\x01" * (2 * CHUNK_BYTES + 3), b"\x02" * (2 * CHUNK_BYTES + 3)


def parts(payload):
    manifest = manifest_of(payload, "mail")
    return manifest, [chunk_of(manifest, payload, index) for index in range(manifest.n_chunks)]


@pytest.fixture
def model():
    return ChunkedModel()


def test_a_manifest_asks_for_all_chunks_and_the_last_one_brings_the_model(model):
    """Then nothing is collected any more."""
    manifest, chunks = parts(MODEL)
    assert not model.collecting
    model.receive_manifest(manifest, NOW)
    assert (model.collecting, model.to_subscribe) == (True, [0, 1, 2])
    assert [model.add_chunk(chunk, NOW) for chunk in (chunks[2], chunks[0], chunks[0])] == [None] * 3
    assert model.add_chunk(chunks[1], NOW) == MODEL
    assert not model.collecting
    model.receive_manifest(manifest, NOW + 1)  # also if the whole was not believed: it would be the same once more
    assert (model.collecting, model.to_subscribe) == (False, None)


def test_a_model_that_is_there_is_not_asked_for(model):
    """It came before, in chunks or not, or was in the store; and if it is the newest again, no other one is."""
    model.know(MODEL)
    model.receive_manifest(parts(MODEL)[0], NOW)
    assert (model.collecting, model.to_subscribe) == (False, None)
    model.receive_manifest(parts(NEWER)[0], NOW)
    assert model.collecting
    model.receive_manifest(parts(MODEL)[0], NOW)
    assert (model.collecting, model.to_subscribe) == (False, None)


def test_a_newer_model_replaces_the_one_being_collected(model):
    """Its chunks are others; none of the old one are kept, and those that come late are passed over."""
    model.receive_manifest(parts(MODEL)[0], NOW)
    model.add_chunk(parts(MODEL)[1][0], NOW)
    model.receive_manifest(parts(NEWER)[0], NOW)
    assert model.to_subscribe == [0, 1, 2]
    assert [model.add_chunk(chunk, NOW) for chunk in parts(MODEL)[1]] == [None] * 3
    assert [model.add_chunk(chunk, NOW) for chunk in parts(NEWER)[1]] == [None, None, NEWER]


def test_silence_ends_the_collecting_but_not_a_slow_network(model):
    """Every new chunk gives the next one its time; what has come is kept for the next announcement."""
    manifest, chunks = parts(MODEL)
    model.receive_manifest(manifest, NOW)
    for chunk, at in ((chunks[0], 0.9), (chunks[1], 1.8)):
        now = NOW + at * MODEL_PATIENCE_S
        model.give_up(now)
        model.add_chunk(chunk, now)
    assert model.collecting
    assert model.gives_up_at() == now + MODEL_PATIENCE_S
    model.give_up(model.gives_up_at())
    assert (model.collecting, model.gives_up_at()) == (False, float("inf"))
    assert model.add_chunk(chunks[2], now + 60) is None
    model.receive_manifest(manifest, now + 61)
    assert model.to_subscribe == [2]
    assert model.add_chunk(chunks[2], now + 62) == MODEL


def test_a_wrong_chunk_is_not_asked_for_in_a_loop(model):
    """The model is collected anew, once it is announced again."""
    manifest, chunks = parts(MODEL)
    model.receive_manifest(manifest, NOW)
    model.add_chunk(chunks[0].model_copy(update={"data": bytes(CHUNK_BYTES)}), NOW)
    model.add_chunk(chunks[1], NOW)
    with pytest.raises(MessageError, match="malformed"):
        model.add_chunk(chunks[2], NOW)
    assert not model.collecting
    model.receive_manifest(manifest, NOW + 1)
    assert model.to_subscribe == [0, 1, 2]


async def test_an_event_in_time_is_seen_at_once():
    """The rest of the time is not waited for."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, event.set)
    async with asyncio.timeout(PATIENCE_S):
        assert await is_set_within(event, 10 * PATIENCE_S)


@pytest.mark.parametrize("timeout_s", [0.02, 0.0, -1.0, float("-inf")])
async def test_an_event_that_does_not_come_is_given_up(timeout_s):
    """Also when the time was over before it began; then what is set counts still."""
    event = asyncio.Event()
    assert not await is_set_within(event, timeout_s)
    event.set()
    assert await is_set_within(event, timeout_s)
