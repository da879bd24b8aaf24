"""Publishes the head of the audit log: after every entry, once it is stored, and at every start.

A head that was published before this federator's start is compared with the log. If the log ends before it, or has
another entry there, the database is an older copy, or somebody has cut its log.
"""

from datetime import UTC, datetime

import structlog

from foltr.core.erasure.audit import FIRST_PREVIOUS_HASH, AuditEntry
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.topics import Topics
from foltr.federator.publishing.retained import RetainedTopics
from foltr.federator.store import FederationStore
from foltr.storage.records import Batch, NewEvent

log = structlog.get_logger(__name__)


def head_of(federation: str, entry: AuditEntry | None) -> AuditHead:
    """Make the head of a log that ends with this entry; None: of an empty log."""
    if entry is None:
        return AuditHead(federation=federation, seq=0, hash=bytes.fromhex(FIRST_PREVIOUS_HASH), at=0.0)
    return AuditHead(federation=federation, seq=entry.seq, hash=bytes.fromhex(entry.hash), at=entry.at.timestamp())


class AuditHeads:
    """The published head of one federation's audit log."""

    def __init__(self, federation: str, store: FederationStore, retained: RetainedTopics) -> None:
        self._federation = federation
        self._store = store
        self._retained = retained

    async def start(self, published: AuditHead | None, at: datetime) -> None:
        """Publish the head, and report if it is behind the predecessor's published head, or contradicts it.

        Args:
            published: the head retained by the broker; None if it has none that the federator signed.
        """
        if published is not None and published.seq > 0:
            await self._compare(published, at)
        await self.publish()

    async def publish(self) -> None:
        """Publish the head as it is stored."""
        newest = await self._store.audit_entry()
        self._retained.put(Topics(self._federation).audit_head, head_of(self._federation, newest))

    async def _compare(self, published: AuditHead, at: datetime) -> None:
        there = await self._store.audit_entry(published.seq)
        if there is not None and there.hash == published.hash.hex():
            return
        newest = await self._store.audit_entry()
        ends = f"the log ends with entry {0 if newest is None else newest.seq}"
        when = datetime.fromtimestamp(published.at, UTC).isoformat(timespec="seconds")
        found = ends if there is None else "another entry is in its place"
        detail = f"entry {published.seq} of {when} was published, but {found}"
        log.error(
            EventKind.AUDIT_LOG_DIFFERS,
            detail=detail,
            hint="If you restored a backup, repeat the erasures made since then (docs/erasure.md). If not, "
            "somebody has written to the database: keep a copy of it",
        )
        await self._store.commit_batch(Batch(events=[NewEvent(at, "audit_log_differs", detail)]))
