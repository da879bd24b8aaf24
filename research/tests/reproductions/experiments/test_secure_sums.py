"""The runs on secure sums are those that the report describes, and its tables are made of what runs say."""

from dataclasses import replace

from made_results import outcome, profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiments.secure_sums import EXPERIMENTS, SIZES
from foltr_research.reproductions.outcomes import Results
from foltr_research.simulation.config import resolve
from foltr_research.simulation.secure_sums import secure_sums_of

(PRIVACY,) = EXPERIMENTS


def test_every_client_takes_part_twenty_times():
    """In one of ten rounds, so that a round has n of the federation's 10 n; epsilon is for all twenty."""
    grid = PRIVACY.grid("quick", profile())
    secure = [one for one in grid if one.config.privacy == "secure"]
    assert len(secure) == len(SIZES) * 7
    for one in secure:
        training, ranker = resolve(one.config, 8)
        sums = secure_sums_of(one.config, training, ranker)
        assert (sums.period, one.config.rounds // sums.period, one.config.participations) == (10, 20, 20)
        assert one.config.clients == 10 * int(one.labels["n"])


def test_claims_without_runs_are_not_testable():
    """A verdict never comes from nothing."""
    assert {claim.check(Results((), profile())).status for claim in PRIVACY.claims} == {Status.NOT_TESTABLE}


def with_result(one, **fields):
    return replace(one, result={**one.result, **fields})


def test_the_claimed_epsilon_is_beside_the_true_one():
    """A line for each epsilon that was run, of one round and of twenty."""
    figures = {"epsilon_per_round_add_remove": 27.12, "epsilon_per_round_replace": 54.26}
    run = with_result(outcome({"noise": "fpdgd-paper", "ε": "8", "n": "10"}, 1, 0.5), privacy=figures)
    (section,) = PRIVACY.sections
    assert section.text(Results((run,), profile())).splitlines()[2:] == ["| 8 | 27.1 | 54.3 | 160 | 542 |"]
