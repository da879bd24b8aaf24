"""The policies of an operator's folder."""

from pathlib import Path

from foltr.errors import SettingsError
from foltr.operator.document_log import DocumentLog
from foltr.protocol.operator_keys import Believed
from foltr.protocol.policies import Policy
from foltr.protocol.signed_policies import SignedPolicy, issue_policy, read_policy
from foltr.protocol.signing import SigningKey


def policy_log(folder: Path, federation: str, operator: Believed) -> DocumentLog[SignedPolicy]:
    """Return the policies of one operator's folder, whose lock is held; ``operator`` has signed them."""
    return DocumentLog(folder, "policy", lambda payload: read_policy(payload, operator, federation))


def policies_in_force(log: DocumentLog[SignedPolicy], published: int) -> list[Policy]:
    """All that may be: the published one, that before it, which a round may still be under, and newer ones."""
    versions = sorted(log.versions)
    oldest = max([version for version in versions if version < published], default=0)
    return [log.get(version).policy for version in versions if version >= oldest]


def write_policy(log: DocumentLog[SignedPolicy], key: SigningKey, policy: Policy) -> SignedPolicy:
    """Sign a policy and write it down.

    Raises:
        SettingsError: its version is not above all others here, or a helper has the sealing key of an older
            policy: that of each policy is destroyed once the next one is in force.
    """
    log.require_newer(policy.version)
    used = {each.sealing_key for version in log.versions for each in log.get(version).policy.helpers}
    for helper in policy.helpers:
        if helper.sealing_key in used:
            raise SettingsError(
                f"helper: {helper.name} has the sealing key of an older policy; a policy brings new ones: "
                "foltr helper keys"
            )
    return log.write(issue_policy(key, policy))
