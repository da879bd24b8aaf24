"""A run records what became of updates: who was dropped or clipped, which rounds went another way, and why.

Small enough to be a part of every result, and of every checkpoint: counts, and what an operator would have been told.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.round_report import Finding, RoundReport
from foltr.core.aggregation.standing import Standing, Verdict


@dataclass(frozen=True)
class NormProofs:
    """How many norm proofs were checked, and how many of them failed."""

    checked: int = 0
    failed: int = 0

    def __add__(self, other: "NormProofs") -> "NormProofs":
        return NormProofs(self.checked + other.checked, self.failed + other.failed)


@dataclass(frozen=True)
class Decision:
    """A decision of the clients' votes: the newest model was taken back, or the anchor moved to it."""

    verdict: Verdict
    standing: Standing


@dataclass(frozen=True)
class RoundDefence:
    """A record of what the federator did with the updates of one round.

    Attributes:
        report: None of a plain mean, and of a round without a model.
        refused: names of clients whose update no message could have held.
        abandoned: why the round made no model; None where it made one.
        norm_proofs: None where norms are not proved.
        decision: of the clients' votes; None where all stayed as it was.
    """

    report: RoundReport | None = None
    refused: tuple[str, ...] = ()
    abandoned: str | None = None
    norm_proofs: NormProofs | None = None
    decision: Decision | None = None


@dataclass
class Robustness:
    """A record of what the federator did, added up over rounds.

    Attributes:
        fallback_rounds: that used the configured fallback.
        abandoned_rounds: that made no model.
        beyond_bounds_rounds: that used a rule which promises nothing with so few updates.
        norm_proofs: how many were checked and failed; None where norms are not proved.
        dropped, clipped, refused: rounds by client.
        findings: (round, finding) in order.
        decisions: (round, decision) of the clients' votes, in order.
        farthest: how far from the median client anybody has led in any round, in budgets; None where nobody has any.
    """

    fallback_rounds: int = 0
    abandoned_rounds: int = 0
    beyond_bounds_rounds: int = 0
    norm_proofs: NormProofs | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    clipped: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, Finding]] = field(default_factory=list)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    farthest: float | None = None

    def add(self, number: int, defence: RoundDefence) -> None:
        """Count one more round."""
        self.refused.update(defence.refused)
        self.abandoned_rounds += defence.abandoned is not None
        if defence.norm_proofs is not None:
            self.norm_proofs = (self.norm_proofs or NormProofs()) + defence.norm_proofs
        if defence.decision is not None:
            self.decisions.append((number, defence.decision))
        report = defence.report
        if report is None:
            return
        self.fallback_rounds += report.fallback_reason is not None
        self.beyond_bounds_rounds += "beyond_bounds" in report.parameters
        for fate in report.fates:
            if fate.fate is Fate.DROPPED:
                self.dropped[fate.client_id] += 1
            elif fate.fate is Fate.CLIPPED:
                self.clipped[fate.client_id] += 1
        self.findings.extend((number, finding) for finding in report.findings)
        if report.farthest is not None:
            self.farthest = max(self.farthest or 0.0, report.farthest)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `read` reads it."""
        return {
            "fallback_rounds": self.fallback_rounds,
            "abandoned_rounds": self.abandoned_rounds,
            "beyond_bounds_rounds": self.beyond_bounds_rounds,
            "norm_proofs": None if self.norm_proofs is None else asdict(self.norm_proofs),
            "dropped": dict(sorted(self.dropped.items())),
            "clipped": dict(sorted(self.clipped.items())),
            "refused": dict(sorted(self.refused.items())),
            "findings": [
                {"round": number, "kind": finding.kind, "client": finding.client_id, "detail": finding.detail}
                for number, finding in self.findings
            ],
            "decisions": [
                {"round": number, "verdict": str(decision.verdict), **asdict(decision.standing)}
                for number, decision in self.decisions
            ],
            "farthest": self.farthest,
        }

    @classmethod
    def read(cls, values: dict[str, Any]) -> "Robustness":
        """Read what `to_dict` made."""
        return cls(
            values["fallback_rounds"],
            values["abandoned_rounds"],
            values["beyond_bounds_rounds"],
            None if values["norm_proofs"] is None else NormProofs(**values["norm_proofs"]),
            Counter(values["dropped"]),
            Counter(values["clipped"]),
            Counter(values["refused"]),
            [
                (found["round"], Finding(found["kind"], found["client"], found["detail"]))
                for found in values["findings"]
            ],
            [(made["round"], _decision(made)) for made in values["decisions"]],
            values["farthest"],
        )


def _decision(made: dict[str, Any]) -> Decision:
    counted = {name: value for name, value in made.items() if name not in {"round", "verdict"}}
    return Decision(Verdict(made["verdict"]), Standing(**counted))
