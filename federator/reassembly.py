"""Assembles updates that are too large for one message. No I/O; lost when the process ends.

A device offers such an update by its manifest and is answered ``incomplete`` with the missing chunks, until none is
missing; then the update is read and decided like any other. Answers name it by the beginning of the manifest's digest,
which is the `payload_digest` of the whole update: the device can compare that.

Everything is bounded: one assembly for each client, no larger than an update of this federation can be, and a total in
bytes. A manifest costs its sender nothing, so it reserves nothing: only received bytes count. A part that does not fit
replaces an assembly that is complete, or at rest, or has fewer bytes; else its sender is answered ``busy``. So the most
advanced sender continues, and an attacker has to send as much and keep sending: each part keeps its assembly for some
seconds, and for half a minute ahead at most. A complete assembly is kept while it fits, in case its device misses the
receipt.
"""

from collections import OrderedDict
from dataclasses import dataclass

from foltr.core.errors import MessageError
from foltr.core.protocol.chunks import Assembly
from foltr.core.protocol.fields import CHUNK_BYTES
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import Chunk, Manifest
from foltr.federator.deciding.members import Members
from foltr.federator.reading import (
    ChunkAnswer,
    ReceivedChunk,
    ReceivedUpdate,
    RefusedMessage,
    UpdateLimits,
    read_update,
)

MAX_BYTES = 64 * 1024 * 1024
# Besides its values an update has names, numbers, a signature and perhaps a ticket.
OVERHEAD_BYTES = 4096
IDLE_S = 600.0
# How long a part keeps its assembly from one with fewer bytes: at 16 KiB a second they come in time.
PART_KEEPS_S = 12.0
KEPT_AT_MOST_S = 30.0
RETRY_AFTER_S = 10.0
# Reading a whole update costs more than asking for it: more frequent requests are not answered.
READ_AGAIN_AFTER_S = 1.0


class _NoRoomError(Exception):
    """The new part does not fit now."""


class Assembler:
    """The assemblies of one federation. ``now`` is the federator's clock."""

    def __init__(self, topics: Topics, limits: UpdateLimits, max_bytes: int = MAX_BYTES) -> None:
        self._topics = topics
        self._limits = limits
        self._max_size = limits.spec.n_bytes + OVERHEAD_BYTES
        # One update always fits.
        self._max_bytes = max(max_bytes, self._max_size)
        self._by_client: OrderedDict[str, _Entry] = OrderedDict()  # the longest unused first
        self._n_begun = 0

    def __len__(self) -> int:
        return len(self._by_client)

    @property
    def n_bytes(self) -> int:
        """The total size of all kept parts."""
        return sum(entry.assembly.n_bytes for entry in self._by_client.values())

    def add_part(
        self, offer: ReceivedChunk, members: Members, now: float
    ) -> ReceivedUpdate | RefusedMessage | ChunkAnswer | None:
        """Take a manifest or a chunk; return the update it completes, an answer, or nothing yet."""
        client_id, part = offer.client_id, offer.part
        self._drop_idle(now)
        try:
            members.check_sender(client_id, offer.signed)
            if isinstance(part, Manifest):
                return self._take_manifest(client_id, part, offer.signed.sequence, now)
            return self._take_chunk(client_id, part, now)
        except MessageError as error:
            code = ReceiptCode(error.code)
            # Anybody may have sent it: naming the update would make its owner drop the genuine one.
            digest = None if code is ReceiptCode.BAD_SIGNATURE else _name_of(part)
            return RefusedMessage(client_id, ClientTopic.CHUNKS, code, error.detail, payload_digest=digest)
        except _NoRoomError:
            return ChunkAnswer(
                client_id,
                ReceiptCode.BUSY,
                _name_of(part),
                detail="other large updates are being put together",
                retry_after_s=RETRY_AFTER_S,
            )

    def _take_manifest(
        self, client_id: str, manifest: Manifest, sequence: int, now: float
    ) -> ReceivedUpdate | RefusedMessage | ChunkAnswer | None:
        entry = self._by_client.get(client_id)
        if entry is None or entry.assembly.manifest != manifest:
            if entry is not None and sequence < entry.sequence:
                raise MessageError(ReceiptCode.REPLAYED, "the client has offered a newer update since")
            if manifest.size > self._max_size:
                raise MessageError(
                    ReceiptCode.TOO_LARGE,
                    f"{manifest.size} bytes; an update of this federation has at most {self._max_size}",
                )
            self.forget(client_id)  # it has given up the other one
            self._n_begun += 1
            entry = _Entry(Assembly(manifest), now, self._n_begun, sequence)
            # A manifest displaces no other assembly; but if its first part cannot fit, it need not be sent.
            self._in_the_way(entry, min(manifest.size, CHUNK_BYTES), now)
            self._by_client[client_id] = entry
        self._used(client_id, entry, now)
        if entry.assembly.complete and now - entry.read_at < READ_AGAIN_AFTER_S:
            return None
        return self._update_or_missing(client_id, entry, now)

    def _take_chunk(
        self, client_id: str, chunk: Chunk, now: float
    ) -> ReceivedUpdate | RefusedMessage | ChunkAnswer | None:
        entry = self._by_client.get(client_id)
        if entry is None or entry.assembly.manifest.digest != chunk.digest:
            return None  # dropped for room, or another process took the offer: the device will offer the update again
        is_new = entry.assembly.lacks(chunk)
        if is_new:
            for other in self._in_the_way(entry, len(chunk.data), now):
                self.forget(other)
            entry.assembly.add(chunk)
            entry.kept_until = min(max(entry.kept_until, now) + PART_KEEPS_S, now + KEPT_AT_MOST_S)
        self._used(client_id, entry, now)
        # Only the chunk that completes it: a later copy must not have the update decided again.
        return self._update_or_missing(client_id, entry, now) if is_new and entry.assembly.complete else None

    def _update_or_missing(
        self, client_id: str, entry: "_Entry", now: float
    ) -> ReceivedUpdate | RefusedMessage | ChunkAnswer:
        assembly = entry.assembly
        if assembly.complete:
            entry.read_at = now
            try:
                return read_update(self._topics, self._limits, client_id, assembly.payload(), chunked=True)
            except MessageError:
                pass  # it has started over; a bad chunk must not cost the update that it does not belong to
        return ChunkAnswer(client_id, ReceiptCode.INCOMPLETE, _name_of(assembly.manifest), missing=assembly.missing())

    def _in_the_way(self, of: "_Entry", size: int, now: float) -> list[str]:
        """Return whose assemblies to drop to fit ``size`` more bytes of this one: those at rest, then the smallest.

        Raises:
            _NoRoomError: all of them would not be enough; none is dropped.
        """
        going: list[str] = []
        free = self._max_bytes - self.n_bytes
        if free >= size:
            return going
        others = [(client_id, other) for client_id, other in self._by_client.items() if other.takes_from(of)]
        at_rest = [pair for pair in others if pair[1].may_go(now)]
        behind = [pair for pair in others if not pair[1].may_go(now) and pair[1].progress < of.progress]
        for client_id, other in [*at_rest, *sorted(behind, key=lambda pair: pair[1].progress)]:
            going.append(client_id)
            free += other.assembly.n_bytes
            if free >= size:
                return going
        raise _NoRoomError

    def _drop_idle(self, now: float) -> None:
        while self._by_client:
            client_id, entry = next(iter(self._by_client.items()))
            if now - entry.used_at < IDLE_S:
                return
            self.forget(client_id)

    def _used(self, client_id: str, entry: "_Entry", now: float) -> None:
        entry.used_at = now
        self._by_client.move_to_end(client_id)

    def forget(self, client_id: str) -> None:
        """Drop the received parts of a client's update."""
        self._by_client.pop(client_id, None)


@dataclass
class _Entry:
    assembly: Assembly
    used_at: float
    number: int
    # Of the manifest: an older one, replayed by somebody, must not end what a newer one began.
    sequence: int = 0
    read_at: float = float("-inf")
    kept_until: float = float("-inf")

    @property
    def progress(self) -> tuple[int, int]:
        """Its progress; at equal progress the older assembly wins, or they would block each other."""
        return self.assembly.n_bytes, -self.number

    def takes_from(self, other: "_Entry") -> bool:
        return self is not other and self.assembly.n_bytes > 0

    def may_go(self, now: float) -> bool:
        """Whether it gives way to any other."""
        return self.assembly.complete or now >= self.kept_until


def _name_of(part: Manifest | Chunk) -> bytes:
    """The `payload_digest` of the whole update."""
    return part.digest[:16]
