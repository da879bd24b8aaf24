"""What keeps a device from taking part in its federation, and what the person who runs it can do about it."""

from dataclasses import dataclass

from foltr.broker.backoff import ENDED_SOON
from foltr.broker.failures import ONE_IDENTITY_EACH, FailureKind
from foltr.core.protocol.described_enum import DescribedEnum
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode
from foltr.edge_client.components import DeviceComponents
from foltr.edge_client.forgetting import ENROL_AGAIN, refusal_in_words
from foltr.edge_client.participation import Objection


class BlockerKind(DescribedEnum):
    """What blocks the device, by the state that this leaves it in."""

    FORGOTTEN = "forgotten", "forgotten"
    ASKED_TO_BE_FORGOTTEN = "asked_to_be_forgotten", "asked to be forgotten"
    BROKER_AWAY = "broker_away", "without a broker"
    LOGIN_REFUSED = "login_refused", "refused by the broker"
    SESSION_TAKEN_OVER = "session_taken_over", "disconnected by another process with its credentials"
    JOIN_REFUSED = "join_refused", "refused by the federation"
    FEDERATOR_AWAY = "federator_away", "connected, but without a federator"
    NO_POLICY = "no_policy", "connected, but without the policy of its operator"
    POLICY_BEYOND_LIMITS = "policy_beyond_limits", "connected, but under a policy beyond its limits"
    CANNOT_MASK = "cannot_mask", "connected, but without the software for its operator's policy"
    OTHER_FEATURES = "other_features", "connected, but with other features than the federation"


# These need somebody to act: enrol the device, give it separate credentials, or update the application and its schema.
REFUSALS = (BlockerKind.LOGIN_REFUSED, BlockerKind.JOIN_REFUSED, BlockerKind.OTHER_FEATURES)
_OF_LINK = {
    FailureKind.LOGIN_REFUSED: BlockerKind.LOGIN_REFUSED,
    FailureKind.TAKEN_OVER: BlockerKind.SESSION_TAKEN_OVER,
}
_OF_OBJECTION = {
    Objection.PINNED: BlockerKind.NO_POLICY,
    Objection.BEYOND_LIMITS: BlockerKind.POLICY_BEYOND_LIMITS,
    Objection.CANNOT_MASK: BlockerKind.CANNOT_MASK,
}
_ENROL = {
    ReceiptCode.NOT_ENROLLED: "start it with credentials, the file that `foltr device enrol NAME` writes",
    ReceiptCode.REVOKED: "ask the operator for a new file: foltr device enrol NAME --replace",
    ReceiptCode.BAD_SIGNATURE: "start it with the newest file of this name: foltr device enrol NAME --replace",
}


def is_lasting(refusal: MembershipReceipt | None) -> bool:
    """Return whether only an action can end the cause of a refused join; a version conflict ends with an upgrade."""
    return refusal is not None and refusal.code in _ENROL


@dataclass(frozen=True)
class Blocker:
    """What keeps a device from taking part; ``message``, its text, says what happened, and what to do."""

    kind: BlockerKind
    message: str

    def __str__(self) -> str:
        return self.message


def blocker_of(device: DeviceComponents, now: float) -> Blocker | None:
    """Return what keeps a device from taking part, the nearest cause first; None without a known one."""
    if device.forgotten:
        return Blocker(BlockerKind.FORGOTTEN, f"the client was forgotten: {ENROL_AGAIN}")
    link, forgetting = device.link, device.forgetting
    if (outage := link.outage) is not None:
        kind = BlockerKind.SESSION_TAKEN_OVER if link.shares_session else BlockerKind.BROKER_AWAY
        return Blocker(kind if link.failure_kind is None else _OF_LINK.get(link.failure_kind, kind), str(outage))
    if link.shares_session:
        return Blocker(BlockerKind.SESSION_TAKEN_OVER, f"{ENDED_SOON}. {ONE_IDENTITY_EACH}")
    if forgetting.state is not None:
        refused = None if forgetting.refusal is None else refusal_in_words(forgetting.refusal)
        told = refused or "nothing else is sent until the federation answers; check that its federator runs"
        return Blocker(BlockerKind.ASKED_TO_BE_FORGOTTEN, f"it asked to be forgotten, {forgetting.state}: {told}")
    if (refusal := device.membership.refusal) is not None:
        return Blocker(BlockerKind.JOIN_REFUSED, _refusal_in_words(refusal))
    if (objection := device.policy.objection) is not None:
        return Blocker(_OF_OBJECTION[objection], f"{objection}: {device.policy.remedy}")
    if (absence := device.watch.absence(now)) is not None:
        start = "start it with `foltr federator run`; the device keeps clicks meanwhile"
        return Blocker(BlockerKind.FEDERATOR_AWAY, f"{absence}: {start}")
    if (difference := device.schema_difference) is not None:
        follow = "give the device the schema that the federator was started with; the device keeps clicks meanwhile"
        return Blocker(BlockerKind.OTHER_FEATURES, f"{difference}: {follow}")
    if (misfit := device.trainer.misfit) is not None:
        choose = "start a federation with `foltr federator run --features N`, or use its features"
        return Blocker(BlockerKind.OTHER_FEATURES, f"{misfit}: {choose}; the device keeps clicks meanwhile")
    return None


def _refusal_in_words(receipt: MembershipReceipt) -> str:
    said = f"the federator refuses it: {receipt.code}" + (f", {receipt.detail}" if receipt.detail else "")
    return said + (f"; {_ENROL[receipt.code]}" if receipt.code in _ENROL else "")
