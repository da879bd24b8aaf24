"""Stored facts about a round's secure sums: clients, helpers and noise."""

from typing import Any

from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.policies import Policy
from foltr.storage.database import Database
from foltr.storage.policies import load_policies
from foltr.storage.rounds import find_round
from foltr.storage.sums import answered_sets, load_sums


async def sum_lines(database: Database, name: str, number: int) -> list[dict[str, Any]]:
    """Return the sums of a round by cohort. Empty for a trusted round, or one that released nothing.

    ``n_out`` clients were removed or left before their part was requested; of them ``n_norm_proofs_failed`` failed the
    norm proof, None if the policy requires no proofs. ``helpers`` took part, each with ``noise`` in grid steps.
    ``has_sum`` becomes false once a client in the sum is erased.
    """
    sums, row = await load_sums(database, name, number), await find_round(database, name, number)
    if not sums or row is None:
        return []
    answered = await answered_sets(database, name, number)
    signed = {policy.hash: policy.signed for policy in await load_policies(database, name)}
    noise = _noise(open_envelope(signed[row.policy_hash or b""]).read(Policy))
    return [
        {
            "cohort": each.cohort,
            "n_clients": each.n_clients,
            "n_out": each.n_tickets - each.n_clients,
            "n_norm_proofs_failed": each.n_norm_proofs_failed,
            "helpers": ", ".join(sorted(helper for helper, cohort in answered if cohort == each.cohort)),
            "noise": noise,
            "has_sum": each.masked_sum is not None,
            "fate": each.fate,
            "share": each.share,
        }
        for each in sums
    ]


def _noise(policy: Policy) -> str:
    if policy.noise.kind == "gaussian":
        return f"gaussian, variance {policy.noise.variance}"
    by = f" by {policy.noise.n_shares} clients" if policy.noise_by_clients else ""
    return f"gamma, scale {policy.noise.scale}{by}"
