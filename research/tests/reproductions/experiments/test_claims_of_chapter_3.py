"""Claims of the thesis' chapter 3: each is false in a world that is near the thesis' sentence and contradicts it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from made_results import outcome, profile, results

from foltr_research.reproductions.claims import Status, Verdict
from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.experiments.foltr_es import FEW, MANY, MOST, RANKERS, TRUTH_PROBABILITIES
from foltr_research.reproductions.experiments.fpdgd import NO_EPSILON, SHARED_EPSILONS, WEAKEST
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS

Check = Callable[[Results], Verdict]
Level = Callable[[Mapping[str, str]], float]
LETOR, WEB = (3, "MQ2008"), (5, "MSLR-WEB10K")


def claim(name: str, text: str) -> Check:
    return next(one.check for one in EXPERIMENTS[name].claims if text in one.text)


def of(data: tuple[int, str], made: Results) -> Results:
    return replace(made, data=replace(profile(data[0]), name=data[1]))


def cells(level: Level, *labels: Mapping[str, str]) -> Results:
    """Two seeds of each cell with every click model, at a level that its labels decide."""
    made = {}
    for one in labels:
        for clicks in CLICKS:
            value = level({**one, "clicks": clicks})
            made[(*one.items(), ("clicks", clicks))] = [value, value + 0.001]
    return results(made)


def by_ranker(key: str, values: tuple[str, ...], level: Level) -> Results:
    return cells(level, *({"ranker": ranker, key: value} for ranker in RANKERS for value in values))


def better_by(lead: Mapping[str, float]) -> Results:
    """The neural ranker's lead by p."""
    return of(LETOR, by_ranker("p", TRUTH_PROBABILITIES, lambda it: 0.4 + (it["ranker"] == "neural") * lead[it["p"]]))


def equivalent(perfect: float) -> Results:
    """The linear ranker leads by 0.01 with informational clicks, and by this with perfect ones."""
    leads = {"perfect": perfect, "navigational": 0.0, "informational": 0.01}
    return of(LETOR, by_ranker("p", ("0.5",), lambda it: 0.4 + (it["ranker"] == "linear") * leads[it["clicks"]]))


def few_apart(perfect: float, informational: float) -> Results:
    """How far few clients are from more, by click model, with the neural ranker on MQ2007."""
    apart = {"perfect": perfect, "navigational": 0.0, "informational": informational}
    made = by_ranker("clients", (FEW, MANY, MOST), lambda it: 0.4 + (it["clients"] == FEW) * apart[it["clicks"]])
    return of((3, "MQ2007"), made)


def few_ahead(informational: float) -> Results:
    """Few clients lead; with the neural ranker not with navigational clicks, and by this with informational ones."""
    of_neural = {"perfect": 0.1, "navigational": -0.1, "informational": informational}

    def level(it: Mapping[str, str]) -> float:
        return 0.4 + (it["clients"] == FEW) * (0.1 if it["ranker"] == "linear" else of_neural[it["clicks"]])

    return of(WEB, by_ranker("clients", (FEW, MANY, MOST), level))


def curves(data: tuple[int, str], labels: Mapping[str, str], first: float, peak: float, final: float) -> Results:
    """Three seeds of one curve for each ranker with all click models."""
    made = (
        outcome({"ranker": ranker, "clicks": clicks, **labels}, seed, final + 0.0001 * seed, first, peak)
        for ranker in RANKERS
        for clicks in CLICKS
        for seed in (1, 2, 3)
    )
    return of(data, Results(tuple(made), profile()))


def gap(early: float, late: float) -> Results:
    """PDGD's lead over FOLtR-ES in the first and in the last rounds."""
    made = []
    for method, begin, end in (("PDGD", 0.3 + early, 0.4 + late), ("FOLtR-ES", 0.3, 0.4)):
        labels = {"method": method, "ranker": "linear", "clicks": "perfect"}
        made += [outcome(labels, seed, end, begin) for seed in (1, 2)]
    return of(LETOR, Results(tuple(made), profile()))


def leads(shared: Level, beside_none: Level, data: tuple[int, str] = LETOR) -> Results:
    """FPDGD's lead over FOLtR-ES at every ε that both have, and at the weakest beside no privacy."""
    pairs = [(epsilon, epsilon, shared) for epsilon in SHARED_EPSILONS] + [(WEAKEST, NO_EPSILON, beside_none)]
    made = {}
    for of_fpdgd, of_es, lead in pairs:
        for clicks in CLICKS:
            level = 0.5 + lead({"clicks": clicks})
            made[("method", "FPDGD"), ("ε", of_fpdgd), ("clicks", clicks)] = [level, level + 0.001]
            made[("method", "FOLtR-ES"), ("ε", of_es), ("clicks", clicks)] = [0.5, 0.501]
    found = results(made)
    for one in found:
        one.result["metrics"] = {"maxrr": one.result["ndcg_at_10"]}
    return of(data, found)


def online(method: str, noise: float, data: tuple[int, str]) -> Results:
    """Five seeds: ``method`` is 1 ahead in the discounted sum, with this deviation of each seed's lead."""
    made = {}
    for name in ("FPDGD", "FOLtR-ES"):
        for epsilon in (*SHARED_EPSILONS, WEAKEST if name == "FPDGD" else NO_EPSILON):
            for clicks in CLICKS:
                made[("method", name), ("ε", epsilon), ("clicks", clicks)] = [0.5] * 5
    found = results(made)
    for one in found:
        ahead = one.labels["method"] == method
        one.result["online_ndcg"] = 50.0 + ahead * (1.0 + noise * (one.seed - 3))
    return of(data, found)


def batches(middle: float) -> Results:
    """B = 2 ends below B = 8, and has this level in the middle, where B = 8 has 0.4."""
    made = []
    for batch, half, end in (("2", middle, 0.49), ("8", 0.4, 0.5)):
        made += [outcome({"B": batch, "clicks": clicks}, seed, end, 0.2, half) for clicks in CLICKS for seed in (1, 2)]
    return of(WEB, Results(tuple(made), profile()))


def informational(it: Mapping[str, str]) -> float:
    return 0.2 if it["clicks"] == "informational" else 0.1


LITTLE, EQUIVALENT = claim("thesis-3.1", "little or no privacy"), claim("thesis-3.1", "is equivalent")
WORSE, UNRELIABLE = claim("thesis-3.4", "lists get worse"), claim("thesis-3.5", "reliably")
FEWER, NARROWS = claim("thesis-3.2", "hardly matters to the neural"), claim("thesis-3.3", "narrows")
NAVIGATIONAL, SHARED = claim("thesis-table-3.1", "with navigational"), claim("thesis-table-3.1", "same printed")
EARLIER = claim("thesis-3.10", "learns earlier")
INFORMATIONAL = claim("thesis-table-3.1", "informational")
CASES = [
    (LITTLE, lambda little: better_by({"0.5": -0.1, "0.9": little, "1.0": 0.1}), 0.1, -0.1),
    (EQUIVALENT, equivalent, 0.01, 0.05),
    (EQUIVALENT, equivalent, -0.01, -0.05),
    (FEWER, lambda apart: few_apart(*apart), (0.01, 0.1), (0.05, 0.1)),
    (claim("thesis-3.2", "for both rankers"), few_ahead, 0.1, -0.1),
    (WORSE, lambda of_curve: curves(WEB, {"p": "1.0"}, *of_curve), (0.30, 0.31, 0.25), (0.30, 0.45, 0.44)),
    (WORSE, lambda of_curve: curves(WEB, {"p": "1.0"}, *of_curve), (0.30, 0.30, 0.29), (0.30, 0.30, 0.31)),
    (NARROWS, lambda of_gap: gap(*of_gap), (0.2, -0.1), (0.2, -0.3)),
    (NARROWS, lambda of_gap: gap(*of_gap), (0.2, 0.1), (-0.01, -0.1)),
    (UNRELIABLE, lambda of_curve: curves(LETOR, {"method": "FOLtR-ES"}, *of_curve), (0.3, 0.31, 0.31), (0.3, 0.4, 0.5)),
    (UNRELIABLE, lambda of_curve: curves(LETOR, {"method": "FOLtR-ES"}, *of_curve), (0.3, 0.5, 0.4), (0.3, 0.4, 0.5)),
    (EARLIER, batches, 0.45, 0.35),
    (claim("thesis-3.6", "clearest"), lambda beside: leads(informational, beside), informational, lambda _: 0.1),
    (claim("thesis-3.7", "is ahead too"), lambda beside: leads(informational, beside), informational, lambda _: -0.1),
    (NAVIGATIONAL, lambda noise: online("FOLtR-ES", noise, LETOR), 0.2, 0.4),
    (INFORMATIONAL, lambda noise: online("FPDGD", noise, LETOR), 0.2, 0.4),
    (SHARED, lambda noise: online("FPDGD", noise, WEB), 0.2, 0.4),
    (claim("thesis-table-3.1", "without privacy"), lambda noise: online("FPDGD", noise, WEB), 0.2, 0.4),
]


@pytest.mark.parametrize(("check", "made", "true", "false"), CASES)
def test_a_claim_is_false_if_its_sentence_is(check, made, true, false):
    """And true if it is."""
    assert check(made(true)).status is Status.CONFIRMED
    assert check(made(false)).status is Status.NOT_CONFIRMED


def test_the_thesis_claims_pdgds_lead_with_every_click_model_of_one_data_set():
    """Of Yahoo!, which has five grades too, it says nothing."""
    ahead = cells(
        lambda it: 0.5 + 0.1 * (it["method"] == "PDGD"),
        *({"method": method, "ranker": ranker} for method in ("PDGD", "FOLtR-ES") for ranker in RANKERS),
    )
    check = claim("thesis-3.5", "On MSLR-WEB10K PDGD")
    assert check(of(WEB, ahead)).status is Status.CONFIRMED
    assert check(of((5, "Yahoo"), ahead)).status is Status.NOT_TESTABLE
