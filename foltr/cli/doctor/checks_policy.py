"""What ``foltr doctor`` says of the policy of secure sums: the one at the broker, beside that of the credentials."""

from foltr.cli.doctor.checks import Finding, State
from foltr.errors import MessageError
from foltr.operator.credentials import Credentials
from foltr.protocol.signed_policies import SignedPolicy, read_policy


def policy_findings(credentials: Credentials | None, retained: bytes | None) -> list[Finding]:
    """Compare what the broker retains with what the credentials carry; nothing where there is neither.

    Args:
        retained: what was heard on the policy's topic.
    """
    carried = None if credentials is None else credentials.signed_policy
    if credentials is None or (not retained and carried is None):
        return []
    if not retained:
        detail = "the credentials have one, and the broker none; the operator's next step: foltr policy publish"
        return [Finding("policy", State.WARNING, detail)]
    try:
        newest = read_policy(retained, credentials.enrolment_public_key, credentials.federation)
    except MessageError as error:
        detail = f"what the broker retains is not the operator's ({error.detail}), and obeyed by nobody"
        return [Finding("policy", State.WARNING, f"{detail}; retain the right one: foltr policy publish")]
    return [_compared(credentials, carried, newest)]


def _compared(credentials: Credentials, carried: SignedPolicy | None, newest: SignedPolicy) -> Finding:
    policy = newest.policy
    shown = f"policy {policy.version} is at the broker ({newest.hash.hex()[:16]})"
    if carried is not None and carried.policy.version > policy.version:
        detail = f"{shown}, and the credentials have {carried.policy.version}: foltr policy publish"
        return Finding("policy", State.WARNING, detail)
    if credentials.role == "helper":
        keys = policy.helper(credentials.name)
        if keys is None or keys.signing_key != credentials.key.public:
            detail = f"{shown}, and does not name this helper with this key, so it is asked nothing: foltr helper keys"
            return Finding("policy", State.WARNING, f"{detail}, then the operator's foltr policy new")
        return Finding("policy", State.OK, f"{shown} and names {credentials.name}")
    if credentials.role == "federator" and not credentials.can_check(policy):
        detail = f"{shown}, and its verify key is sealed to no key in the credentials, so it is not taken up: give the"
        detail += " federator the operator's newest federator.json, or, where it has that, make another policy"
        return Finding("policy", State.WARNING, f"{detail}: foltr policy new")
    helpers = ", ".join(keys.name for keys in policy.helpers)
    return Finding("policy", State.OK, f"{shown}: epsilon {policy.epsilon:g}, helpers {helpers}")
