"""The adaptive defence's messages to an operator: why an update does not count whole, and what has changed."""

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.evidence import Evidence
from foltr.core.aggregation.round_report import Finding
from foltr.core.aggregation.rule_spec import ABANDON, RuleSpec
from foltr.core.aggregation.suspicion import in_words


def reasons_of(
    evidence: Evidence | None,
    suspected: NDArray[np.bool_],
    shortening: NDArray[np.float64],
    granted: NDArray[np.float64],
    shares: NDArray[np.float64],
) -> tuple[str, ...]:
    """Say why each of n updates is left out or counts less than whole; "" for the others.

    Args:
        evidence: None while nobody can be judged.
        shortening: (n,) the factors that shortened each.
        granted: (n,) the share of its deviation that its budgets allowed.
        shares: (n,) of its weight, beside copies of it.
    """
    reasons = []
    for i, left_out in enumerate(suspected.tolist()):
        parts = []
        if left_out:
            parts.append("suspected before" if evidence is None else in_words(evidence, i))
        else:
            if shortening[i] < 1.0:
                parts.append(f"{1 / shortening[i]:.1f} times as long as usual")
            if granted[i] < 1.0:
                beyond = 100 * (1 - granted[i])
                parts.append(f"{beyond:.0f} % of it is beyond how far a client may lead from the others")
            if shares[i] < 1.0:
                parts.append(f"one of {1 / shares[i]:.0f} that are nearly the same, which count as one")
        reasons.append("; ".join(parts))
    return tuple(reasons)


def client_findings(
    names: tuple[str, ...], own: NDArray[np.void], before: NDArray[np.bool_], evidence: Evidence | None, spec: RuleSpec
) -> list[Finding]:
    """Report clients that are newly excluded, that count again, and that stay suspicious for long.

    Args:
        own: (n,) their records, this round included.
        before: (n,) bool, who was suspected before it.
    """
    if evidence is None:
        return []
    findings = []
    patience = int(spec.parameter("patience"))
    for i, name in enumerate(names):
        n_suspected = int(own["n_suspected"][i])
        rounds = f"over {int(own['n_updates'][i])} updates"
        if n_suspected == 1:
            findings.append(Finding("defence_raised", name, f"excluded from now on: {in_words(evidence, i)}, {rounds}"))
        elif before[i] and n_suspected == 0:
            behind, drift = evidence.behind[i], evidence.drift[i]
            detail = f"counted again: {behind:.1f} standard errors below the median, drift {drift:.1f}"
            findings.append(Finding("defence_lowered", name, f"{detail}, {rounds}"))
        # Repeated, ever more rarely: it may have been quarantined and released in between.
        times, rest = divmod(n_suspected, patience)
        if times and not rest and times & (times - 1) == 0:
            detail = (
                f"suspected in {n_suspected} updates in a row: {in_words(evidence, i)}; see foltr device quarantine"
            )
            findings.append(Finding("quarantine_proposed", name, detail))
    return findings


def federation_findings(before: bool, undecided: bool, n_judged: int, spec: RuleSpec) -> list[Finding]:
    """Report a switch to the fallback and back."""
    if undecided and not before:
        instead = "no model is made" if spec.fallback == ABANDON else f"{spec.fallback} is used"
        cases = "the strongest cases below half are left out"
        detail = (
            f"half of {n_judged} clients or more look suspicious, so good and bad ones cannot be "
            f"distinguished; {cases}; {instead}"
        )
        return [Finding("defence_raised", None, detail)]
    if before and not undecided:
        return [Finding("defence_lowered", None, "fewer than half of the clients look suspicious; the mean is used")]
    return []
