"""What the database remembers of a round's secure sums: how many clients, which helpers, how much noise."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foltr.core.protocol.policies import Policy
    from foltr.storage.database import Database

COLUMNS = ("cohort", "n_clients", "n_out", "norm_proofs", "helpers", "noise", "fate", "share")


@dataclass(frozen=True)
class SumLine:
    """One sum of a round.

    Attributes:
        n_clients: in the sum.
        n_out: who was taken out of it, or left before it was asked for.
        n_norm_proofs_failed: those of them whose norm proofs failed; None where the policy asks for none.
        helpers: who have answered for it.
        noise: of each of them, in steps of the grid.
        has_sum: whether the sum is stored; not once a client that was in it is erased.
    """

    cohort: int
    n_clients: int
    n_out: int
    n_norm_proofs_failed: int | None
    helpers: str
    noise: str
    has_sum: bool
    fate: str | None
    share: float | None

    @property
    def norm_proofs(self) -> str | None:
        """How many failed, in a word that fits a table."""
        return None if self.n_norm_proofs_failed is None else f"{self.n_norm_proofs_failed} failed"


async def sum_lines(database: "Database", name: str, number: int) -> list[SumLine]:
    """Return the sums of a round by cohort; none of a trusted round, or of one that released nothing."""
    from foltr.storage.policies import load_policies
    from foltr.storage.rounds import find_round
    from foltr.storage.sums import answered_sets, load_sums

    sums, row = await load_sums(database, name, number), await find_round(database, name, number)
    if not sums or row is None:
        return []
    answered = await answered_sets(database, name, number)
    signed = {policy.hash: policy.signed for policy in await load_policies(database, name)}
    noise = _noise(_policy(signed[row.policy_hash or b""]))
    return [
        SumLine(
            each.cohort,
            each.n_clients,
            each.n_tickets - each.n_clients,
            each.n_norm_proofs_failed,
            ", ".join(sorted(helper for helper, cohort in answered if cohort == each.cohort)),
            noise,
            each.masked_sum is not None,
            None if each.fate is None else str(each.fate),
            each.share,
        )
        for each in sums
    ]


def _policy(signed: bytes) -> "Policy":
    from foltr.core.protocol.codec import open_envelope
    from foltr.core.protocol.policies import Policy

    return open_envelope(signed).read(Policy)


def _noise(policy: "Policy") -> str:
    if policy.noise.kind == "gaussian":
        return f"gaussian, variance {policy.noise.variance}"
    by = f" by {policy.noise.n_shares} clients" if policy.noise_by_clients else ""
    return f"gamma, scale {policy.noise.scale}{by}"
