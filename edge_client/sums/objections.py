"""A device objects to a round that would not keep what its policy promises. No federator can talk it out of that."""

from enum import StrEnum

from foltr.protocol.announcements import RoundAnnouncement
from foltr.protocol.signed_policies import SignedPolicy


class Objection(StrEnum):
    """Why nothing is sent to a round, in words."""

    NOT_SECURE = "the federator would see what is sent to it, and this device is under a policy"
    OTHER_POLICY = "it is under another policy than the newest that this device knows"
    NO_POLICY = "it is under a policy, and this device knows none; its operator publishes it, or enrols it anew"


def objection_to(round_: RoundAnnouncement, policy: SignedPolicy | None) -> Objection | None:
    """Return why a device under a policy, or under none, sends nothing to a round; None where it may."""
    if policy is None:
        return None if round_.secure is None else Objection.NO_POLICY
    if round_.secure is None:
        return Objection.NOT_SECURE
    return None if round_.secure.policy_hash == policy.hash else Objection.OTHER_POLICY
