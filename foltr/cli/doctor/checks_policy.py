"""What ``foltr doctor`` says of the policy of secure sums: the one at the broker, beside that of the credentials."""

import time
from datetime import UTC, datetime

from foltr.cli.doctor.checks import Finding, State
from foltr.errors import MessageError
from foltr.operator.credentials import Credentials
from foltr.operator.heard_keys import HeardKeys
from foltr.protocol.epochs import ends_soon
from foltr.protocol.policies import Policy
from foltr.protocol.signed_policies import SignedPolicy, read_policy


def policy_findings(
    credentials: Credentials | None, retained: bytes | None, keys: HeardKeys | None = None
) -> list[Finding]:
    """Compare what the broker retains with what the credentials carry; nothing where there is neither.

    Args:
        retained: what was heard on the policy's topic.
        keys: whom to believe, where others follow from those of the credentials.
    """
    carried = None if credentials is None else credentials.signed_policy
    if credentials is None or (not retained and carried is None):
        return []
    if not retained:
        detail = "the credentials have one, and the broker none; the operator's next step: foltr policy publish"
        return [Finding("policy", State.WARNING, detail)]
    try:
        operator = credentials.operator_keys if keys is None else keys.credentials.operator_keys
        newest = read_policy(retained, operator, credentials.federation)
    except MessageError as error:
        detail = f"what the broker retains is not the operator's ({error.detail}), and obeyed by nobody"
        return [Finding("policy", State.WARNING, f"{detail}; retain the right one: foltr policy publish")]
    return [_compared(credentials, carried, newest)]


def carried_policy_findings(credentials: Credentials) -> list[Finding]:
    """Look at the policy that a federator's credentials carry; nothing where they have none.

    What is retained at the broker only its own session hears, which nobody else may take.
    """
    carried = credentials.signed_policy
    if carried is None:
        return []
    policy = carried.policy
    shown = f"policy {policy.version} is in the credentials ({carried.hash.hex()[:16]})"
    if credentials.can_check(policy):
        if (over := _over(policy)) is not None:
            return [Finding("policy", State.WARNING, f"{shown}{over}")]
        return [Finding("policy", State.OK, f"{shown}: {_in_short(policy)}")]
    detail = f"{shown}, and its verify key is sealed to no key in them, so no federator starts under it: give it"
    detail += " the operator's newest federator.json, or, where it has that, make another policy: foltr policy new"
    return [Finding("policy", State.PROBLEM, detail)]


def _compared(credentials: Credentials, carried: SignedPolicy | None, newest: SignedPolicy) -> Finding:
    policy = newest.policy
    shown = f"policy {policy.version} is at the broker ({newest.hash.hex()[:16]})"
    if carried is not None and carried.policy.version > policy.version:
        detail = f"{shown}, and the credentials have {carried.policy.version}: foltr policy publish"
        return Finding("policy", State.WARNING, detail)
    if (over := _over(policy)) is not None:
        return Finding("policy", State.WARNING, f"{shown}{over}")
    if credentials.role == "helper":
        keys = policy.helper(credentials.name)
        if keys is None or keys.signing_key != credentials.key.public:
            detail = f"{shown}, and does not name this helper with this key, so it is asked nothing: foltr helper keys"
            return Finding("policy", State.WARNING, f"{detail}, then the operator's foltr policy new")
        return Finding("policy", State.OK, f"{shown} and names {credentials.name}")
    return Finding("policy", State.OK, f"{shown}: {_in_short(policy)}")


def _over(policy: Policy) -> str | None:
    """Say that the policy ends soon, or has ended, and what to do next."""
    now = time.time()
    if not ends_soon(policy, now):
        return None
    ends = datetime.fromtimestamp(policy.ends_at, UTC)
    return (
        f"; it {'ended' if policy.ends_at <= now else 'ends'} on {ends:%Y-%m-%d}, and no device takes part after that: "
        "foltr helper keys at each helper, foltr policy new, foltr policy publish"
    )


def _in_short(policy: Policy) -> str:
    return f"epsilon {policy.epsilon:g}, helpers {', '.join(keys.name for keys in policy.helpers)}"
