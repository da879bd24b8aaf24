"""What a rule did to each update of a round, and what a round's row keeps of it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.fates import Fate


@dataclass(frozen=True, slots=True, eq=False)
class RuleResult:
    """What a rule makes of n updates.

    Attributes:
        vector: (d,) float64.
        shares: (n,) float64 in [0, 1]: the factor with which each update enters ``vector``; its mean over the
            coordinates for coordinate-wise rules. They add up to at most 1: clipped parts are lost. None if not asked
            for.
        scores: (n,) float64 by which the rule judged the updates: a sum of squared distances, a distance or a norm.
        clipped: (n,) bool of the updates that were shortened.
        used: values that the rule chose, by name, such as the ``clip_norm`` it took from these updates.
    """

    vector: NDArray[np.float64]
    shares: NDArray[np.float64] | None = None
    scores: NDArray[np.float64] | None = None
    clipped: NDArray[np.bool_] | None = None
    used: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientFate:
    """One client's update in one round.

    Attributes:
        share: how much of the result is this client's, 0 to 1; None if it was not computed.
        score: what the rule decided by; None if the rule has no such number.
        reason: "" for an update that was kept.
    """

    client_id: str
    fate: Fate
    share: float | None
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something an operator should know, with its evidence.

    Attributes:
        kind: a value of `foltr.core.protocol.events.EventKind`.
        client_id: the client concerned; None for the federation.
        detail: the evidence, at most 500 characters.
    """

    kind: str
    client_id: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class RoundReport:
    """How one round was aggregated.

    Attributes:
        configured, rule: the text of the configured rule, and of the one that was used.
        parameters: as used, among them n, the number of updates the rule saw, and m, how many it tolerates.
        fallback_reason: why the configured rule was not used; None if it was.
        fates: by client, in order of the updates; empty for a plain mean that kept all.
        farthest: from the adaptive defence, the farthest lead from the median client, in budgets; None for other rules.
    """

    configured: str
    rule: str
    parameters: dict[str, float]
    fallback_reason: str | None
    fates: tuple[ClientFate, ...]
    findings: tuple[Finding, ...]
    farthest: float | None = None
