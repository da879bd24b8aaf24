"""Every message that crosses a process boundary, with its units and shapes.

A message is a frozen model; on the wire it is a msgpack map ``{"v": schema version, "kind": name, "sequence": number,
"body": msgpack of the fields, "signature": bytes}``. The body is an opaque byte string inside the envelope so that
exactly these bytes are signed. Bytes are checked when they enter (`foltr.core.protocol.codec`) and trusted afterwards.
"""

from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement, UnlearningProgress, UnlearningRound
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.enrolment_requests import DeskHead, EnrolmentAnswer, EnrolmentRequest
from foltr.core.protocol.evaluations import EvaluationRequest
from foltr.core.protocol.fields import Message
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.helper_messages import (
    CheckAnswer,
    CheckRequest,
    HelperRefusal,
    HelperStatus,
    OpenAnswer,
    OpenRequest,
    SetCommitment,
)
from foltr.core.protocol.membership import Enrolment, Forget, Join, Leave, Status
from foltr.core.protocol.orders import ORDER_TYPES, AskNewest, OrderAnswer
from foltr.core.protocol.paces import Pace
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, UpdateReceipt
from foltr.core.protocol.roster import Authorities, FederatorKey, KeptEnrolments, Roster, Succession, SuccessionLink
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.tickets import Ticket
from foltr.core.protocol.updates import Chunk, Manifest, ModelUpdate, UnlearningUpdate

MESSAGE_TYPES: dict[str, type[Message]] = {
    message_type.kind_name: message_type
    for message_type in (
        Join,
        Leave,
        Status,
        ModelAnnouncement,
        RoundAnnouncement,
        ModelUpdate,
        UpdateReceipt,
        MembershipReceipt,
        Manifest,
        Chunk,
        Enrolment,
        Roster,
        FederatorKey,
        Authorities,
        SuccessionLink,
        Succession,
        KeptEnrolments,
        *ORDER_TYPES.values(),
        AskNewest,
        OrderAnswer,
        Forget,
        ErasureNotice,
        UnlearningRound,
        UnlearningUpdate,
        UnlearningProgress,
        Policy,
        FeatureSchema,
        Ticket,
        CheckRequest,
        CheckAnswer,
        OpenRequest,
        SetCommitment,
        OpenAnswer,
        HelperRefusal,
        HelperStatus,
        FederatorStatus,
        AuditHead,
        EvaluationRequest,
        EnrolmentRequest,
        EnrolmentAnswer,
        DeskHead,
        Pace,
    )
}
