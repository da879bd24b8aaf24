"""Commitments are signed by the helper that they bind; federator and broker only carry them."""

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.helper_messages import MAX_COMMITMENT_BYTES, SetCommitment
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import Topics


def read_commitment(signed: bytes, signing_key: bytes, federation: str, helper: str) -> SetCommitment:
    """Read a helper's commitment, which it signs for the topic of its answers.

    Raises:
        MessageError: it is not a commitment, or not this helper's.
    """
    envelope = open_envelope(signed, MAX_COMMITMENT_BYTES)
    commitment = envelope.read(SetCommitment)
    if (commitment.federation, commitment.helper) != (federation, helper):
        raise MessageError(ReceiptCode.CLIENT_MISMATCH, f"a commitment of {commitment.helper}, not of {helper}")
    if not envelope.is_signed_by(signing_key, Topics(federation).helper_answers(helper)):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, f"a commitment that {helper} has not signed")
    return commitment
