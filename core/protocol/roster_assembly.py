"""Assembles the operator's roster if it came in chunks. No I/O.

They are retained beside its manifest, so they may arrive before it, in any order, and mixed with those of an older
roster. Only signed chunks are kept, of the two newest rosters.
"""

from collections import OrderedDict

from foltr.core.errors import MessageError
from foltr.core.protocol.chunks import Assembly
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.operator_keys import TrustedOperatorKey, newest_key
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.updates import Chunk, Manifest

_N_KEPT = 2


class RosterAssembler:
    """The chunks of rosters that have arrived, and the newest manifest."""

    def __init__(self, topics: Topics, enrolment_key: TrustedOperatorKey | None) -> None:
        self._topics = topics
        self._enrolment_key = None if enrolment_key is None else newest_key(enrolment_key)
        self._manifest: Manifest | None = None
        self._chunks: OrderedDict[bytes, dict[int, Chunk]] = OrderedDict()

    def add(self, topic: str, payload: bytes) -> bytes | None:
        """Take a message on a topic of the roster; return a complete roster, still to be checked, or None."""
        try:
            envelope = open_envelope(payload)
            if self._enrolment_key is None or envelope.kind not in (Manifest.kind_name, Chunk.kind_name):
                return payload if topic == self._topics.roster else None
            if not envelope.is_signed_by(self._enrolment_key, topic):
                return payload if topic == self._topics.roster else None
            if envelope.kind == Manifest.kind_name:
                self._manifest = envelope.read(Manifest)
            else:
                self._keep(envelope.read(Chunk))
            return self._whole()
        except MessageError:
            return payload if topic == self._topics.roster else None

    def _keep(self, chunk: Chunk) -> None:
        self._chunks.setdefault(chunk.digest, {})[chunk.index] = chunk
        self._chunks.move_to_end(chunk.digest)
        while len(self._chunks) > _N_KEPT:
            self._chunks.popitem(last=False)

    def _whole(self) -> bytes | None:
        """Return the roster that the newest manifest names, once all of it has arrived; then drop its chunks."""
        if self._manifest is None:
            return None
        assembly = Assembly(self._manifest)
        for chunk in self._chunks.get(self._manifest.digest, {}).values():
            assembly.add(chunk)
        if not assembly.complete:
            return None
        self._manifest, self._chunks = None, OrderedDict()
        return assembly.payload()
