"""A roster is retained at the broker in one message, or in chunks if it is too large for one."""

from foltr.core.protocol.chunks import chunk_of, manifest_of, needs_chunks
from foltr.core.protocol.codec import encode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics


def roster_messages(
    key: SigningKey, federation: str, payload: bytes, version: int, n_before: int
) -> tuple[list[tuple[str, bytes]], int]:
    """Return the messages to retain, as (topic, payload) in the order of publishing, and the number of chunks.

    The manifest is last, so that its readers find the chunks. Empty payloads clear the topics after the last chunk: an
    older roster may have left chunks there, with names that were forgotten since.

    Args:
        key: the operator's, which signs.
        payload: the signed roster, of this version.
        n_before: the most chunks that a published roster had.
    """
    topics, last, messages, n_chunks = Topics(federation), payload, [], 0
    if needs_chunks(payload):
        manifest = manifest_of(payload, federation)
        n_chunks, last = manifest.n_chunks, encode(manifest, topics.roster, version, key)
        for index in range(n_chunks):
            topic = topics.roster_chunk(index)
            messages.append((topic, encode(chunk_of(manifest, payload, index), topic, version, key)))
    messages.append((topics.roster, last))
    messages += [(topics.roster_chunk(index), b"") for index in range(n_chunks, n_before)]
    return messages, n_chunks
