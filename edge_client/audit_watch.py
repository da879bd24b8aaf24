"""A device remembers the newest entry of its federation's log of erasures, and reports if the log is cut.

The federator signs the messages, so two that contradict each other prove it to everybody. They stay in the store until
the client is forgotten, or the log is cut again.
"""

from datetime import UTC, datetime

from foltr.core.errors import DataError, MessageError
from foltr.core.logs import get_logger
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import open_envelope
from foltr.edge_client.events import AuditLogCut, Observer
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import MetaKey, StoreFile

log = get_logger(__name__)


class AuditWatch:
    """What one device knows of the log of erasures.

    Args:
        remembers: False if messages are not signed, so anybody could have sent them.
    """

    def __init__(self, federation: str, client_id: str, store: DeviceStore, on_event: Observer, *, remembers: bool):
        self._federation = federation
        self._client_id = client_id
        self._store = store
        self._emit = on_event
        self._remembers = remembers
        self._heard: tuple[AuditHead, bytes] | None = None  # with the signed message
        self.cut: AuditLogCut | None = None

    def restore(self) -> None:
        """Load what was heard before a restart."""
        if not self._remembers:
            return
        stored = stored_heads(self._store)
        try:
            newest, *contradiction = [(open_envelope(payload).read(AuditHead), payload) for payload in stored]
        except (ValueError, MessageError) as error:
            if stored:
                log.warning("stored_audit_head_not_understood", client_id=self._client_id, cause=str(error))
            return
        self._heard = newest
        if contradiction:
            before, after = contradiction
            self.cut = cut_of(before[0], after[0])

    def receive(self, head: AuditHead, payload: bytes) -> None:
        """Take a head from the signed message ``payload``; ignore another federation's."""
        if head.federation != self._federation or not self._remembers:
            return
        before, said_before = self._heard or (None, b"")
        if before is not None and (head.seq, head.hash) == (before.seq, before.hash):
            return
        self._heard = head, payload
        heard = {MetaKey.AUDIT_HEAD: payload}
        contradicted = None if before is None or head.seq > before.seq else before
        if contradicted is not None:
            heard |= {MetaKey.AUDIT_HEAD_BEFORE: said_before, MetaKey.AUDIT_HEAD_AFTER: payload}
        try:
            self._store.set_meta(heard)
        except DataError as error:
            log.warning("audit_head_not_stored", cause=str(error))  # the broker has it, until a newer one
        if contradicted is not None:
            self.cut = cut_of(contradicted, head)
            log.warning("audit_log_cut", client_id=self._client_id, federation=self._federation, cause=str(self.cut))
            self._emit(self.cut)

    @property
    def newest(self) -> int | None:
        """Return the number of the newest known entry; None before the first."""
        return None if self._heard is None else self._heard[0].seq

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what the device's owner should know of the log."""
        return () if self.cut is None else (str(self.cut),)

    def forget(self) -> None:
        """Forget everything, and store nothing from now on."""
        self._heard, self.cut, self._remembers = None, None, False


def stored_heads(store: StoreFile) -> list[bytes]:
    """Return the newest message about the log of erasures, then the last two that contradict each other, if any."""
    keys = (MetaKey.AUDIT_HEAD, MetaKey.AUDIT_HEAD_BEFORE, MetaKey.AUDIT_HEAD_AFTER)
    return [head for head in map(store.meta, keys) if head is not None]


def cut_of(before: AuditHead, after: AuditHead) -> AuditLogCut:
    """Return the contradiction if the later of two heads is not above the first, else None."""
    return AuditLogCut(before.seq, _moment(before), after.seq, _moment(after))


def _moment(head: AuditHead) -> datetime:
    return datetime.fromtimestamp(head.at, UTC)
