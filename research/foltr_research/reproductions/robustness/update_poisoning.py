"""Model poisoning, and the price of rules when nobody attacks (thesis, Sections 5.6, 5.7; Wang and Zuccon, ICTIR 2023).

Figures 5.3 and 5.4, and on other data 5.8 to 5.11.
"""

import numpy as np

from foltr_research.reproductions.checks import among, both, except_on, higher, named, not_above
from foltr_research.reproductions.claims import (
    HIGHER,
    HIGHER_IN_MOST,
    NOTHING,
    RANGE,
    Check,
    Claim,
    Difference,
    Verdict,
    judged,
    minus,
)
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Results
from foltr_research.reproductions.robustness.attacks_by_rule import (
    BEYOND_BOUNDS,
    LIE_IS_NOTHING,
    PREPARED,
    PREPARED_BULYAN,
    RULES,
    SHARES,
    TOLD,
    costs_nothing,
    federation,
    promises,
)
from foltr_research.reproductions.robustness.click_poisoning import (
    FEWER,
    HONEST,
    MEASURE,
    MEASURED,
    OTHER_DATA,
    PLACE,
    SEEDS,
    SETTING,
    shares_of,
)
from foltr_research.reproductions.robustness.measures import ADAPTIVE, METRIC

OF_KRUM = ("fang-krum (partial)", "fang-krum (full)")


def _model_poisoning(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    attacks = {"mean": ("clicks", "lie"), "krum": ("clicks", *OF_KRUM), ADAPTIVE: ("clicks", "lie", *OF_KRUM)}
    found = []
    for rule, of_rule in attacks.items():
        for share, attackers in SHARES.items():
            for clicks in CLICKS:
                labels = {"rule": rule, "attackers": share, "clicks": clicks}
                found.append(Variant({**labels, "attack": HONEST}, federation(scale, "mean", clicks)))
                found += [
                    Variant({**labels, "attack": attack}, federation(scale, rule, clicks, attack, attackers))
                    for attack in of_rule
                ]
    return found


def _no_attack(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = [
        Variant({"shown": "rules", "rule": rule, "clicks": clicks}, federation(scale, rule, clicks))
        for rule in RULES
        for clicks in CLICKS
    ]
    found += [
        Variant(
            {"shown": "by m", "rule": rule, "m": str(m), "clicks": clicks},
            federation(scale, rule, clicks, tolerates=m),
        )
        for rule in ("krum", "multi-krum", "trimmed-mean")
        for m in SHARES.values()
        if promises(rule, m)
        for clicks in CLICKS
    ]
    return found


def _gap_closes(results: Results) -> Verdict:
    """The harm of full over partial knowledge is larger with 10 and 20 % than with 30 and 40 %."""
    krum = results.select({"rule": "krum"})
    partial, full = (krum.select({"attack": attack}) for attack in OF_KRUM)

    def lead(shares: list[str]) -> dict[int, float]:
        per_seed: dict[int, list[float]] = {}
        for share in shares:
            for clicks in CLICKS:
                place = {"attackers": share, "clicks": clicks}
                one, other = partial.select(place).by_seed(METRIC), full.select(place).by_seed(METRIC)
                for seed in one.keys() & other.keys():
                    per_seed.setdefault(seed, []).append(one[seed] - other[seed])
        return {seed: float(np.mean(values)) for seed, values in per_seed.items()}

    few, many = lead(shares_of(1, 2)), lead(shares_of(3, 4))
    if not few or not many:
        return NOTHING
    ends = f"with few {np.mean(list(few.values())):+.3f}, with many {np.mean(list(many.values())):+.3f}: the difference"
    return judged({ends: minus(few, many)}, Difference.above)


def _lie_above_clicks(shares: list[str], clicks: tuple[str, ...] = CLICKS) -> Check:
    check = higher(METRIC, {"attack": "lie"}, {"attack": "clicks"}, PLACE, {"rule": "mean"})
    return among("attackers", shares, among("clicks", clicks, check))


_5_3 = Experiment(
    name="thesis-5.3",
    title="Model poisoning: LIE under the mean, Fang's attack under Krum, beside data poisoning",
    source="thesis, Section 5.6, Figure 5.3 (other data: 5.8 to 5.10)",
    setting=SETTING,
    grid=_model_poisoning,
    seeds=SEEDS,
    figures=tuple(
        Figure(f"{rule}.png", "offline", ("attack",), rows="attackers", title=f"{rule}: nDCG@10", where={"rule": rule})
        for rule in ("mean", "krum", ADAPTIVE)
    ),
    tables=(Table("nDCG@10 in the last quarter of the rounds", METRIC, ("rule", "attackers", "attack")),),
    claims=(
        Claim(
            "LIE is less effective than data poisoning",
            "Section 5.6.1, Figure 5.3a: except on Yahoo! with perfect clicks and 40 %",
            f"{MEASURE} under the mean, LIE above data poisoning for each share and click model except that one "
            "on Yahoo!: " + HIGHER,
            except_on(
                "Yahoo",
                both(_lie_above_clicks(shares_of(1, 2, 3)), _lie_above_clicks(shares_of(4), CLICKS[1:])),
                _lie_above_clicks(list(SHARES)),
            ),
        ),
        Claim(
            "LIE does little harm",
            "Section 5.6.1: no defence is tried against it",
            f"{MEASURE} under the mean, honest minus attacked: {RANGE} is below 0.02 for each share and click model",
            not_above(METRIC, {"attack": HONEST}, {"attack": "lie"}, 0.02, PLACE, {"rule": "mean"}),
        ),
        Claim(
            "Full knowledge makes Fang's attack on Krum better with 10 and 20 % of attackers",
            "Section 5.6.2, Figure 5.3b",
            f"{MEASURE} under Krum, partial knowledge above full for both shares and each click model: " + HIGHER,
            among(
                "attackers",
                shares_of(1, 2),
                higher(METRIC, {"attack": OF_KRUM[0]}, {"attack": OF_KRUM[1]}, PLACE, {"rule": "krum"}),
            ),
        ),
        Claim(
            "With 30 and 40 % the lead of full knowledge is smaller",
            "Section 5.6.2, Figure 5.3b",
            f"{MEASURE}, partial minus full knowledge, means over click models: with 10 and 20 % above that with 30 "
            "and 40 %: " + HIGHER,
            _gap_closes,
        ),
        Claim(
            "Fang's attack with full knowledge does more harm to Krum than data poisoning in most cases",
            "Section 5.6.2, Figure 5.3c: it can; by Section 5.5.2 data poisoning alone defeats Krum in some",
            f"{MEASURE} under Krum, data poisoning above it for most shares and click models: " + HIGHER_IN_MOST,
            higher(METRIC, {"attack": "clicks"}, {"attack": OF_KRUM[1]}, PLACE, {"rule": "krum"}, need="most"),
        ),
        Claim(
            "Adaptive is better than Krum under Fang's attack",
            "ours; the attack is made for Krum",
            f"{MEASURE} under the attack with partial and with full knowledge, adaptive above Krum for each share and "
            "click model: " + HIGHER,
            both(
                *(
                    named(attack, higher(METRIC, {"rule": ADAPTIVE}, {"rule": "krum"}, PLACE, {"attack": attack}))
                    for attack in OF_KRUM
                )
            ),
        ),
    ),
    differences=(
        TOLD,
        BEYOND_BOUNDS,
        LIE_IS_NOTHING,
        (
            "Fang's attackers all send the same update, as published. The adaptive defence recognises copies; "
            "attackers who add noise are in `foltr reproduce robustness`."
        ),
        MEASURED,
        FEWER,
        OTHER_DATA,
    ),
)

_5_4 = Experiment(
    name="thesis-5.4",
    title="The price of a rule when nobody attacks",
    source="thesis, Section 5.7, Figure 5.4 (other data: 5.11)",
    setting=SETTING + "No attackers.",
    grid=_no_attack,
    seeds={"quick": 10, "full": 25},
    figures=(
        Figure(
            "offline.png",
            "offline",
            ("rule",),
            title="Nobody attacks: nDCG@10",
            shared_y=False,
            where={"shown": "rules"},
        ),
    ),
    tables=(
        Table(
            "nDCG@10 in the last quarter of the rounds",
            METRIC,
            ("rule",),
            where={"shown": "rules"},
            against={"rule": "mean"},
        ),
        Table("nDCG@10 after the last round", "offline", ("rule",), where={"shown": "rules"}),
        Table(
            "The first table again, by the tolerated m",
            METRIC,
            ("rule", "m"),
            where={"shown": "by m"},
        ),
    ),
    claims=(
        *(
            Claim(
                f"{rule.capitalize()} costs effectiveness when nobody attacks",
                "Section 5.7, Figure 5.4",
                f"{MEASURE}, mean above {rule} for each click model: " + HIGHER,
                higher(METRIC, {"rule": "mean"}, {"rule": rule}, where={"shown": "rules"}),
            )
            for rule in ("krum", "median")
        ),
        costs_nothing("ours: Section 5.8 asks for such a defence", {"shown": "rules"}),
    ),
    differences=(
        (
            f"The thesis does not say how many attackers the rules are prepared for: here {PREPARED}, Bulyan "
            f"{PREPARED_BULYAN}; the last table has the other numbers that ten clients allow."
        ),
        "The four rules of the thesis, newer ones, and the adaptive defence.",
        MEASURED,
        FEWER,
        OTHER_DATA,
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (_5_3, _5_4)
