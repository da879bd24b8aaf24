"""The head of the audit log is announced to all, so that nobody can cut off the log's end unnoticed."""

from typing import ClassVar

from foltr.core.protocol.fields import Count, InFederation, Sha256, Timestamp


class AuditHead(InFederation):
    """Federator to all, retained: the newest entry of the federation's audit log (`foltr.core.erasure.audit`).

    ``hash`` is the entry's. ``at`` is when it was written, in seconds since the epoch by the federator's clock. An
    empty log has ``seq`` 0, a hash of zeros and ``at`` 0.
    """

    kind_name: ClassVar[str] = "audit_head"
    seq: Count
    hash: Sha256
    at: Timestamp
