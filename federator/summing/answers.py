"""Reads what a helper says: only what its key under a policy has signed is anything."""

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import Envelope, open_envelope
from foltr.core.protocol.helper_messages import CheckAnswer, HelperRefusal, OpenAnswer, SetCommitment
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.topics import Topics

HelperAnswer = CheckAnswer | SetCommitment | OpenAnswer | HelperRefusal


def read_answer(payload: bytes, policy: SignedPolicy) -> HelperAnswer:
    """Read an answer to a question under a policy.

    Raises:
        MessageError: it is none, or not signed by the helper that it names.
    """
    envelope = open_envelope(payload)
    answer = _read(envelope)
    rules = policy.policy
    helper = rules.helper(answer.helper)
    if helper is None or (answer.federation, answer.policy_hash) != (rules.federation, policy.hash):
        raise MessageError(ReceiptCode.MISPLACED, "an answer under another policy, or of nobody whom it names")
    if not envelope.is_signed_by(helper.signing_key, Topics(rules.federation).helper_answers(helper.name)):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, f"an answer that {helper.name} has not signed")
    return answer


def _read(envelope: Envelope) -> HelperAnswer:
    if envelope.kind == CheckAnswer.kind_name:
        return envelope.read(CheckAnswer)
    if envelope.kind == HelperRefusal.kind_name:
        return envelope.read(HelperRefusal)
    if envelope.kind == SetCommitment.kind_name:
        return envelope.read(SetCommitment)
    return envelope.read(OpenAnswer)
