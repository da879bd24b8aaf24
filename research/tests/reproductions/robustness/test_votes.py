"""What clients' votes decided, what they cost, and what is asked of them; the numbers of runs are made up."""

from dataclasses import replace

import pytest
from made_results import outcome, profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.vote_measures import (
    VOTES,
    decisions,
    keeps_more_with_votes,
    kept_with_votes,
    rounds_of,
)

EXPERIMENT = EXPERIMENTS["robustness-votes"]
NOTHING_TAKEN_BACK, NO_COST, LIARS, MORE_KEPT = (claim.check for claim in EXPERIMENT.claims)


def voted(attack, value, *, taken=(), moved=(), rule=VOTES, seed=1, clicks="made", share="40 %"):
    labels = {"attack": attack, "share": share, "rule": rule, "clicks": clicks}
    made = outcome(labels, seed, value)
    if not rule.endswith("votes"):
        return made
    counts = {"n_voters": 5, "n_updates": 5, "n_worse": 3, "n_better": 0}
    verdicts = [(number, "take_back") for number in taken] + [(number, "move_anchor") for number in moved]
    record = [{"round": number, "verdict": verdict, **counts} for number, verdict in sorted(verdicts)]
    config = made.config.changed(take_back=True)
    return replace(made, config=config, result={**made.result, "robustness": {"decisions": record}})


def runs(*outcomes):
    return Results(outcomes, profile())


HONEST = [voted("nobody", 0.5, rule="mean", seed=seed, share="0 %") for seed in (1, 2)]


def test_what_is_kept_stands_beside_what_is_without_votes():
    """A share with only some attacks has its rows, too; first rounds are given by their median."""
    attacked = [voted("launder", 0.4, rule=VOTES, seed=seed, share="20 %") for seed in (1, 2)]
    rows = kept_with_votes(runs(*HONEST, *attacked)).splitlines()[-2:]
    assert rows == ["| nobody | 0 % | made | 100.0 ± 0.0 | - |", "| launder | 20 % | made | - | 80.0 ± 0.0 |"]
    text = decisions(runs(voted("launder", 0.4, taken=(30, 60), moved=(5,)), voted("launder", 0.4, moved=(7,), seed=2)))
    assert text.splitlines()[-1] == f"| launder | 40 % | {VOTES} | made | 1 of 2 | 1.0 | 30 | 1.0 | 6 |"
    assert rounds_of(voted("launder", 0.4, taken=(30,), moved=(5,)), "move_anchor") == [5]
    assert decisions(runs(*HONEST)) == "No run has votes.\n"


def test_an_honest_model_that_is_taken_back_is_told():
    """In one run is once too often; under attack it is what votes are for."""
    fine, attacked = voted("nobody", 0.5, moved=(4,)), voted("launder", 0.5, taken=(4,))
    assert NOTHING_TAKEN_BACK(runs(fine, attacked)).status is Status.CONFIRMED
    verdict = NOTHING_TAKEN_BACK(runs(fine, voted("nobody", 0.5, taken=(9,), clicks="skewed")))
    assert (verdict.status, verdict.found) == (Status.NOT_CONFIRMED, "in 1 of 2 runs: skewed")


@pytest.mark.parametrize(("value", "status"), [(0.499, Status.CONFIRMED), (0.49, Status.NOT_CONFIRMED)])
def test_votes_may_cost_half_a_per_cent(value, status):
    """And liars twice that."""
    voting = [voted("nobody", value, seed=seed, share="0 %") for seed in (1, 2)]
    assert NO_COST(runs(*HONEST, *voting)).status is status
    lies = [voted("lie: worse", value - 0.002, seed=seed) for seed in (1, 2)]
    assert LIARS(runs(*HONEST, *lies)).status is status


def test_where_the_mean_is_ruined_votes_are_to_keep_more():
    """Places where it is not are not judged, and what chance explains is not more."""
    ruined = [voted("launder", 0.2, rule="mean", seed=seed) for seed in (1, 2)]
    fine = [voted("sign-flip", 0.49, rule=rule, seed=seed) for rule in ("mean", VOTES) for seed in (1, 2)]
    for kept, status in (
        ((0.3, 0.3), Status.CONFIRMED),
        ((0.2, 0.2), Status.NOT_CONFIRMED),
        ((0.2, 0.4), Status.NOT_CONFIRMED),
    ):
        saved = [voted("launder", value, seed=seed) for seed, value in enumerate(kept, start=1)]
        verdict = MORE_KEPT(runs(*HONEST, *ruined, *fine, *saved))
        assert verdict.status is status
        assert f"launder, 40 %, made: 40.0 % without, {100 * sum(kept):.1f} % with" in verdict.found
    assert keeps_more_with_votes(0.9)(runs(*HONEST, *fine)).status is Status.NOT_TESTABLE
