"""A run's record of its updates: who was dropped or clipped, which rounds failed or fell back, and why.

Small enough for every result and checkpoint: counts, and the findings that an operator would get.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.round_report import Finding, RoundReport
from foltr.core.aggregation.vote_result import Verdict, VoteResult


@dataclass(frozen=True)
class NormProofs:
    """Numbers of checked and of failed norm proofs."""

    checked: int = 0
    failed: int = 0

    def __add__(self, other: "NormProofs") -> "NormProofs":
        return NormProofs(self.checked + other.checked, self.failed + other.failed)


@dataclass(frozen=True)
class Decision:
    """A decision of the clients' votes: the newest model was taken back, or became the anchor."""

    verdict: Verdict
    result: VoteResult


@dataclass(frozen=True)
class RoundDefence:
    """What the federator did with the updates of one round.

    Attributes:
        report: None for a plain mean and for a round without a model.
        refused: names of clients whose update exceeds what a message may hold.
        abandoned: why the round made no model; None if it made one.
        norm_proofs: None without norm proofs.
        decision: of the clients' votes; None without a change.
    """

    report: RoundReport | None = None
    refused: tuple[str, ...] = ()
    abandoned: str | None = None
    norm_proofs: NormProofs | None = None
    decision: Decision | None = None


@dataclass
class Robustness:
    """What the federator did, summed over rounds.

    Attributes:
        fallback_rounds: that used the configured fallback.
        abandoned_rounds: that made no model.
        beyond_bounds_rounds: that used a rule which promises nothing with so few updates.
        norm_proofs: numbers checked and failed; None without norm proofs.
        dropped, clipped, refused: rounds by client.
        findings: (round, finding) in order.
        decisions: (round, decision) of the clients' votes, in order.
        farthest: largest distance from the median client in any round, in budgets; None without budgets.
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
        """Return it for JSON; `read` is the inverse."""
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
                {"round": number, "verdict": str(decision.verdict), **asdict(decision.result)}
                for number, decision in self.decisions
            ],
            "farthest": self.farthest,
        }

    @classmethod
    def read(cls, values: dict[str, Any]) -> "Robustness":
        """Read the result of `to_dict`."""
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
    return Decision(Verdict(made["verdict"]), VoteResult(**counted))
