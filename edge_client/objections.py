"""A device objects to a round that would not keep what its policy promises, or that learns from other features.

No federator can talk it out of that: clicks wait on the device.
"""

from enum import StrEnum

from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.signed_policies import SignedPolicy


class Objection(StrEnum):
    """Why nothing is sent to a round, in words."""

    PINNED = "this device was enrolled for a secure federation, and has heard of no policy of its operator"
    BEYOND_LIMITS = "the policy promises less than this device asks for"
    NOT_SECURE = "the federator would see what is sent to it, and this device is under a policy"
    OTHER_POLICY = "it is under another policy than the newest that this device knows"
    NO_POLICY = "it is under a policy, and this device knows none; its operator publishes it, or enrols it anew"
    OTHER_SCHEMA = "it learns from the features of another schema than this device's application has"


def objection_to(round_: RoundAnnouncement, policy: SignedPolicy | None, schema_hash: bytes | None) -> Objection | None:
    """Return why a device sends nothing to a round; None where it may.

    Args:
        policy: the device's, if it is under one.
        schema_hash: of the features of its application, if that has declared them.
    """
    if policy is None and round_.secure is not None:
        return Objection.NO_POLICY
    if policy is not None and round_.secure is None:
        return Objection.NOT_SECURE
    if policy is not None and round_.secure is not None and round_.secure.policy_hash != policy.hash:
        return Objection.OTHER_POLICY
    return None if round_.schema_hash == schema_hash else Objection.OTHER_SCHEMA
