"""``foltr privacy budget``: the privacy budget that a device's store records, spent and left."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from foltr.cli import options
from foltr.cli.fields import option
from foltr.cli.output import report
from foltr.core.protocol.policies import Policy, allowance_of
from foltr.core.secure.accounting import DEFAULT_DELTA
from foltr.core.secure.ledger import Spent, participations_left
from foltr.edge_client.store.ledger import spent_in
from foltr.edge_client.store.ledger_file import LedgerFile, read_ledger


def budget(
    store: Annotated[Path, option("The device's own SQLite file; the device must not be running")],
    json: options.Json = False,
) -> None:
    """Say how often a device took part in secure sums, what that cost its user's privacy, and what is left.

    It reads the ledger in the device's store, which counts for life: across policies, and after the client was
    forgotten.
    """
    found = _budget(read_ledger(store))
    report(json, found, *_in_words(found))


def _in_words(found: dict[str, Any]) -> Iterator[str]:
    who = "a client that was forgotten" if found["owner"] is None else found["owner"]
    epsilon, replaced = f"epsilon {found['epsilon']:.4g}", f"replace: {found['replace_epsilon']:.4g}"
    yield f"{who}: {found['participations']} participations, {epsilon} (delta {found['delta']:g}; {replaced})"
    for one in found["policies"]:
        where = "under all policies" if one["version"] is None else f"policy {one['version']} ({one['hash'][:16]})"
        yield f"  {where}: {one['participations']} participations, rho {one['rho']:.4g}"
    if (left := found["left"]) is None:
        yield "It knows no policy, so it takes part in no secure sum"
    else:
        yield (
            f"Left under policy {left['version']}: {left['participations']} of {left['of_participations']} "
            f"participations, epsilon {left['epsilon']:.4g} of {left['of_epsilon']:g}"
        )
    n_unknown = (found["claimed_by_federator"] or 0) - found["participations"]
    if n_unknown > 0:
        yield (
            f"The federator counts {found['claimed_by_federator']} participations, {n_unknown} more than this "
            "store. If an earlier store of this client was lost, its helpers count these, too. If not, a federator "
            "has lied, and nothing is charged"
        )


def _budget(ledger: "LedgerFile") -> dict[str, Any]:
    spent, policy = spent_in(ledger.entries), ledger.policy
    delta = DEFAULT_DELTA if policy is None else policy.delta
    epsilon = spent.charge.epsilon_at(delta)
    return {
        "owner": ledger.owner,
        "participations": spent.last,
        "claimed_by_federator": ledger.claimed,
        "epsilon": epsilon,
        "replace_epsilon": spent.charge.replacing().epsilon_at(delta),
        "delta": delta,
        "rho": spent.charge.rho,
        "pure_epsilon": spent.charge.epsilon,
        "proof_rho": spent.charge.proof_rho,
        "proof_delta": spent.charge.delta,
        "policies": _by_policy(ledger),
        "left": None if policy is None else _left(spent, policy),
    }


def _by_policy(ledger: LedgerFile) -> list[dict[str, Any]]:
    """Return participations by policy. For a forgotten client they are one total without a version."""
    found: dict[bytes | None, dict[str, Any]] = {}
    before = 0
    for entry in ledger.entries:
        hash_ = None if entry.policy_hash is None else entry.policy_hash.hex()
        new = {"version": entry.policy_version, "hash": hash_, "participations": 0, "rho": 0.0}
        one = found.setdefault(entry.policy_hash, new)
        one["participations"] += entry.number - before
        one["rho"] += entry.charge.rho
        before = entry.number
    return list(found.values())


def _left(spent: Spent, policy: Policy) -> dict[str, Any]:
    """Return what remains under the newest policy that the device knows."""
    allowance = allowance_of(policy)
    return {
        "version": policy.version,
        "participations": participations_left(spent, allowance),
        "of_participations": policy.max_participations,
        "epsilon": max(0.0, policy.epsilon - allowance.epsilon_of(spent.charge)),
        "of_epsilon": policy.epsilon,
    }
