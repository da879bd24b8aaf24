"""The tables of secure sums are made of what runs say."""

from dataclasses import replace

from made_results import outcome, profile

from foltr_research.reproductions.experiments.secure_sums_hostile import ATTACKS, PAST_THE_BOUND
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS


def rows(section, *runs):
    return section.text(Results(runs, profile())).splitlines()[2:]


def hostile(value, lost=0, failed=0, seed=1, **labels):
    robustness = {"abandoned_rounds": lost, "norm_proofs": {"checked": 1000, "failed": failed}}
    one = outcome({"clicks": "informational", "noise": "gaussian", **labels}, seed, value)
    return replace(one, result={**one.result, "robustness": robustness})


def test_the_claimed_epsilon_is_beside_the_true_one():
    """A line for each epsilon that was run, of one round and of twenty."""
    run = outcome({"noise": "fpdgd-paper", "ε": "8", "n": "10"}, 1, 0.5)
    privacy = {"epsilon_per_round_add_remove": 27.12, "epsilon_per_round_replace": 54.26}
    (section,) = EXPERIMENTS["privacy"].sections
    assert rows(section, replace(run, result={**run.result, "privacy": privacy})) == ["| 8 | 27.1 | 54.3 | 160 | 542 |"]


def test_what_hostile_devices_cost_is_told():
    """Rounds without a model, the mean over seeds; the attack that costs most; what norm proofs left out."""
    discarded, best, left_out = EXPERIMENTS["privacy-hostile"].sections
    unseen = {"proofs": "none", "rule": "median", "cohorts": "20", "hostile": "1"}
    runs = [hostile(0.5, lost=lost, seed=seed, **unseen) for seed, lost in ((1, 2), (2, 5))]
    assert rows(discarded, *runs) == ["| median | 20 | 1 | 3.5 |"]
    runs = []
    for attack, value in zip(ATTACKS, (0.65, 0.7, 0.61, 0.7), strict=True):
        for seed in (1, 2):
            runs.append(hostile(0.7, seed=seed, proofs="l2", attack=attack, hostile="0"))
            runs.append(hostile(value, seed=seed, proofs="l2", attack=attack, hostile="100"))
    assert rows(best, *runs) == ["| gaussian | 100 | features | 0.610 | 0.090 | 0.0 |"]
    past = hostile(0.69, failed=100, proofs="l2", attack=PAST_THE_BOUND, hostile="100")
    assert rows(left_out, hostile(0.7, proofs="l2", attack="zeros", hostile="0"), past) == [
        "| gaussian | 100 | 1,000 | 100 | 0.690 | 0.700 |"
    ]
