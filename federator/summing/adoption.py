"""Takes up the operator's policies at start: those that rounds were under, and the newest, which the next is under."""

from federator.clock import to_datetime
from federator.plan import FederationPlan
from federator.store import FederationStore
from foltr.errors import MessageError, SettingsError
from foltr.protocol.operator_keys import stored_by
from foltr.protocol.signed_policies import SignedPolicy, read_policy
from storage.sum_records import NewPolicy, PolicyRow


async def adopt_policies(store: FederationStore, plan: FederationPlan, now: float) -> dict[bytes, SignedPolicy]:
    """Return all policies by their hashes, the newest last; that of the plan is stored if it is newer than all.

    Raises:
        SettingsError: a stored policy is another operator's, or the newest one does not fit the plan.
    """
    if plan.secure is None:
        return {}
    known = [_read(row, plan) for row in await store.load_policies()]
    newest, given = known[-1] if known else None, plan.secure.policy
    if newest is None or given.policy.version > newest.policy.version:
        await store.adopt_policy(NewPolicy(given.hash, given.policy.version, given.signed, to_datetime(now)))
        known.append(given)
    elif given.policy.version == newest.policy.version and given.hash != newest.hash:
        raise SettingsError(
            f"privacy: the credentials have another policy {given.policy.version} than federation "
            f"{plan.federation!r} knows; is the operator's folder restored? Make a newer one: `foltr policy new`"
        )
    plan.check_policy(known[-1].policy)
    return {policy.hash: policy for policy in known}


def _read(row: PolicyRow, plan: FederationPlan) -> SignedPolicy:
    try:
        return read_policy(row.signed, stored_by(plan.enrolment_key or b""), plan.federation)
    except MessageError as error:
        raise SettingsError(
            f"enrolment_key: policy {row.version} stored for federation {plan.federation!r} was signed with another "
            "key. Give the federator the credentials of the operator who signed it"
        ) from error
