"""Any payload comes together from its chunks in any order; anything else is seen to be something else."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.errors import MessageError
from foltr.core.protocol.chunks import Assembly, chunk_of, manifest_of, needs_chunks
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import CHUNK_BYTES, MAX_CHUNKED_BYTES, MAX_MESSAGE_BYTES, payload_digest
from foltr.core.protocol.signing import SigningKey

# Around every bound: one byte, a chunk more or less a byte, and what does not divide.
LENGTHS = st.sampled_from([1, 2, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7])


@st.composite
def payloads(draw):
    """Bytes that differ between places, cheap to make: no two chunks are alike."""
    length, seed = draw(LENGTHS), draw(st.binary(min_size=1, max_size=8))
    return hashlib.shake_128(seed).digest(length)


def parts(payload):
    manifest = manifest_of(payload, "mail", "device-7")
    return manifest, [chunk_of(manifest, payload, index) for index in range(manifest.n_chunks)]


@settings(max_examples=60)
@given(payloads(), st.data())
def test_chunks_in_any_order_with_copies_make_the_payload(payload, data):
    """Each is missing until it is there, and then no more; a copy is told apart and changes nothing."""
    manifest, chunks = parts(payload)
    order = data.draw(st.permutations(range(len(chunks))))
    copies = data.draw(st.lists(st.sampled_from(order), max_size=4))
    assembly = Assembly(manifest)
    there = set()
    for index in [*order, *copies]:
        assert assembly.missing() == [i for i in range(len(chunks)) if i not in there]
        assert assembly.complete == (len(there) == len(chunks))
        assert assembly.add(chunks[index]) == (index not in there)
        there.add(index)
    assert assembly.complete
    assert assembly.missing() == []
    assert assembly.payload() == payload


@settings(max_examples=60)
@given(payloads(), st.data())
def test_a_byte_that_changed_is_noticed_and_it_starts_over(payload, data):
    """Wherever it is. Nothing tells which chunk it is in, so all are missing again; the right ones then do."""
    manifest, chunks = parts(payload)
    index = data.draw(st.integers(0, len(chunks) - 1))
    place = data.draw(st.integers(0, len(chunks[index].data) - 1))
    flipped = bytearray(chunks[index].data)
    flipped[place] ^= data.draw(st.integers(1, 255))
    assembly = Assembly(manifest)
    for chunk in chunks:
        assembly.add(chunk if chunk.index != index else chunk.model_copy(update={"data": bytes(flipped)}))
    with pytest.raises(MessageError, match="malformed"):
        assembly.payload()
    assert assembly.missing() == list(range(len(chunks)))
    for chunk in chunks:
        assembly.add(chunk)
    assert assembly.payload() == payload


def test_a_chunk_of_another_length_is_refused():
    """A byte short, long or a full one at the end, one too many; what is not complete or of another is no payload."""
    wrongs = [(0, CHUNK_BYTES - 1), (1, 6), (1, CHUNK_BYTES), (2, 1), (999, 1)]
    manifest, chunks = parts(bytes(CHUNK_BYTES + 5))
    assembly = Assembly(manifest)
    assembly.add(chunks[0])
    for index, n_bytes in wrongs:
        wrong = chunks[0].model_copy(update={"index": index, "data": b"\x01" * n_bytes})
        with pytest.raises(MessageError, match="malformed"):
            assembly.add(wrong)
        assert assembly.missing() == [1], (index, n_bytes)
    manifest, chunks = parts(bytes(CHUNK_BYTES + 1))
    assembly = Assembly(manifest)
    assembly.add(chunks[1])
    with pytest.raises(MessageError, match="1 chunks are missing"):
        assembly.payload()
    assert assembly.missing() == [0]
    manifest, _ = parts(b"one")
    _, (other,) = parts(b"two")
    with pytest.raises(MessageError, match="another message"):
        Assembly(manifest).add(other)


def test_a_manifest_says_what_comes():
    """Its digest begins with the digest that receipts name the whole payload by; only what is too large is cut."""
    payload = bytes(2 * CHUNK_BYTES + 1)
    manifest = manifest_of(payload, "mail")
    assert (manifest.size, manifest.n_chunks, manifest.digest) == (len(payload), 3, hashlib.sha256(payload).digest())
    assert manifest.digest[:16] == payload_digest(payload)
    assert not needs_chunks(bytes(MAX_MESSAGE_BYTES))
    assert needs_chunks(bytes(MAX_MESSAGE_BYTES + 1))


def test_every_part_of_the_largest_message_fits_a_message():
    """The chunk with the largest index and the manifest, both signed."""
    payload = bytes(MAX_CHUNKED_BYTES)
    manifest = manifest_of(payload, "f" * 64, "c" * 64)
    for part in (manifest, chunk_of(manifest, payload, 0), chunk_of(manifest, payload, manifest.n_chunks - 1)):
        assert not needs_chunks(encode(part, "topic", 2**63 - 1, SigningKey.generate()))
