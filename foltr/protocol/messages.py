"""Every message that crosses a process boundary, with its units and shapes.

A message is a frozen model; on the wire it is a msgpack map ``{"v": schema version, "kind": name, "sequence": number,
"body": msgpack of the fields, "signature": bytes}``. The body is an opaque byte string inside the envelope so that
it is signed as it stands. Bytes are checked where they enter (`foltr.protocol.codec`) and trusted afterwards.
"""

from foltr.protocol.announcements import ModelAnnouncement, RoundAnnouncement, UnlearningProgress, UnlearningRound
from foltr.protocol.audit_heads import AuditHead
from foltr.protocol.enrolment_requests import DeskHead, EnrolmentAnswer, EnrolmentRequest
from foltr.protocol.evaluations import EvaluationRequest
from foltr.protocol.fields import Message
from foltr.protocol.heartbeat import FederatorStatus
from foltr.protocol.helper_messages import (
    CheckAnswer,
    CheckRequest,
    HelperRefusal,
    OpenAnswer,
    OpenRequest,
    SetCommitment,
)
from foltr.protocol.membership import Enrolment, Forget, Join, Leave, Status
from foltr.protocol.orders import ORDER_TYPES, AskNewest, OrderAnswer
from foltr.protocol.paces import Pace
from foltr.protocol.policies import Policy
from foltr.protocol.receipts import ErasureNotice, MembershipReceipt, UpdateReceipt
from foltr.protocol.roster import Authorities, FederatorKey, KeptEnrolments, Roster, Succession, SuccessionLink
from foltr.protocol.schemas import FeatureSchema
from foltr.protocol.tickets import Ticket
from foltr.protocol.updates import Chunk, Manifest, ModelUpdate, UnlearningUpdate

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
        FederatorStatus,
        AuditHead,
        EvaluationRequest,
        EnrolmentRequest,
        EnrolmentAnswer,
        DeskHead,
        Pace,
    )
}
