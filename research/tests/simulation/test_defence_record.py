"""Counting what a federator did with updates."""

import json

from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.round_report import ClientFate, Finding, RoundReport
from foltr.core.aggregation.standing import Standing, Verdict
from foltr_research.simulation.defence_record import Decision, NormProofs, Robustness, RoundDefence


def report(*fates, fallback=None, findings=(), farthest=None, **parameters):
    return RoundReport("krum", "krum", parameters, fallback, fates, findings, farthest)


def fate(name, of):
    return ClientFate(f"device-{name}", of, 0.0, None, "")


def test_rounds_add_up():
    """By client and by kind, findings and decisions with their rounds."""
    found = Robustness()
    raised = Finding("defence_raised", None, "updates disagree")
    found.add(1, RoundDefence(report(fate("1", Fate.DROPPED), fate("2", Fate.CLIPPED), fate("3", Fate.KEPT))))
    found.add(2, RoundDefence(report(fate("1", Fate.DROPPED), fallback="too few", findings=(raised,)), ("device-4",)))
    found.add(3, RoundDefence(abandoned="too few"))
    found.add(4, RoundDefence(report(beyond_bounds=1.0, farthest=0.75), norm_proofs=NormProofs(10, 0)))
    found.add(5, RoundDefence(report(farthest=0.5), norm_proofs=NormProofs(9, 2)))
    found.add(6, RoundDefence(decision=Decision(Verdict.TAKE_BACK, Standing(5, 7, 4, 1))))
    assert found.to_dict() == {
        "fallback_rounds": 1,
        "abandoned_rounds": 1,
        "beyond_bounds_rounds": 1,
        "norm_proofs": {"checked": 19, "failed": 2},
        "dropped": {"device-1": 2},
        "clipped": {"device-2": 1},
        "refused": {"device-4": 1},
        "findings": [{"round": 2, "kind": "defence_raised", "client": None, "detail": "updates disagree"}],
        "decisions": [
            {"round": 6, "verdict": "take_back", "n_voters": 5, "n_updates": 7, "n_worse": 4, "n_better": 1}
            | {"deviation": 0.0, "n_tallies": None}
        ],
        "farthest": 0.75,
    }


def test_it_survives_json():
    """What a checkpoint keeps goes on counting."""
    found = Robustness()
    findings = (Finding("quarantine_proposed", "x", "y"),)
    found.add(1, RoundDefence(report(fate("1", Fate.DROPPED), findings=findings), norm_proofs=NormProofs(3, 1)))
    found.add(2, RoundDefence(decision=Decision(Verdict.MOVE_ANCHOR, Standing(5, 5, 0, 3))))
    again = Robustness.read(json.loads(json.dumps(found.to_dict())))
    assert again == found
    again.add(2, RoundDefence(report(fate("1", Fate.DROPPED))))
    assert again.dropped["device-1"] == 2


def test_a_plain_mean_has_nothing_to_count():
    """No report, nobody refused."""
    found = Robustness()
    found.add(1, RoundDefence())
    assert found == Robustness()
