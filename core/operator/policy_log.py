"""The policies of an operator's folder."""

from pathlib import Path

from foltr.core.errors import SettingsError
from foltr.core.operator.document_log import DocumentLog
from foltr.core.protocol.operator_keys import Believed
from foltr.core.protocol.policies import MAX_PREDECESSORS, Policy
from foltr.core.protocol.signed_policies import Lineage, SignedPolicy, issue_policy, lineage_of, read_policy
from foltr.core.protocol.signing import SigningKey


def policy_log(folder: Path, federation: str, operator: Believed) -> DocumentLog[SignedPolicy]:
    """Return the policies of one operator's folder, whose lock is held; ``operator`` has signed them."""
    return DocumentLog(folder, "policy", lambda payload: read_policy(payload, operator, federation))


def policies_in_force(log: DocumentLog[SignedPolicy], published: int) -> list[Policy]:
    """All that may be: the published one, that before it, which a round may still be under, and newer ones."""
    versions = sorted(log.versions)
    oldest = max([version for version in versions if version < published], default=0)
    return [log.get(version).policy for version in versions if version >= oldest]


def write_policy(log: DocumentLog[SignedPolicy], key: SigningKey, policy: Policy) -> SignedPolicy:
    """Sign a policy, which names those before it, and write it down.

    Raises:
        SettingsError: its version is not above all others here, or a helper has the sealing key of an older
            policy: that of each policy is destroyed once the next one is in force.
    """
    log.require_newer(policy.version)
    helpers = [each for version in log.versions for each in log.get(version).policy.helpers]
    used = {key for each in helpers for key in (each.sealing_key, *each.epoch_keys)}
    for helper in policy.helpers:
        if not used.isdisjoint((helper.sealing_key, *helper.epoch_keys)):
            raise SettingsError(
                f"helper: {helper.name} has the sealing key of an older policy; a policy brings new ones: "
                "foltr helper keys"
            )
    before = log.newest()
    chain = [] if before is None else [before.hash, *before.policy.predecessors][:MAX_PREDECESSORS]
    return log.write(issue_policy(key, policy.model_copy(update={"predecessors": chain})))


def take_back(log: DocumentLog[SignedPolicy], published: SignedPolicy) -> list[int] | None:
    """Take in a policy that the broker has and this folder lost: it was restored from an older copy.

    Devices follow from the published policy, and refuse what does not. So what this folder has made since, and does
    not belong to that line, is set aside.

    Returns:
        the versions that were set aside; None where the folder has the published policy, or one that follows from it.
    """
    newest = log.newest()
    if newest is not None and lineage_of(newest, published) in (Lineage.KNOWN, Lineage.SUCCESSOR):
        return None
    line = set(published.policy.predecessors)
    others = [version for version in sorted(log.versions) if log.get(version).hash not in line]
    for version in others:
        log.set_aside(version)
    log.write(published)
    return others
