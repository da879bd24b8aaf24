"""``foltr rules`` and ``foltr methods``: what a federation may aggregate and learn by."""

from collections.abc import Mapping
from typing import Any

from foltr.cli import options
from foltr.cli.output import print_json, say
from foltr.core.aggregation.rule_spec import MEAN, PRE_STEPS, RULES, parameters_of_rule, read_rule
from foltr.core.methods.preconditions import LEAST_FOR_ADAPTIVE, least_updates
from foltr.core.methods.registry import METHODS, parameters_of

_RULES: Mapping[str, str] = {
    "mean": "every update counts by its interactions; one hostile client is enough to ruin it",
    "krum": "the one update nearest to its neighbours (Blanchard et al. 2017)",
    "multi-krum": "the mean of the n - m updates that Krum likes best",
    "trimmed-mean": "of each weight the mean without the m largest and m smallest (Yin et al. 2018)",
    "median": "of each weight the median (Yin et al. 2018)",
    "bulyan": "near the median of updates that Krum chose one by one (El Mhamdi et al. 2018)",
    "geometric-median": "the point with the least sum of distances to all updates (Pillutla et al. 2022)",
    "centred-clipping": "the mean after shortening what is far from the centre (Karimireddy et al. 2021)",
    "norm-bounding": "the mean after shortening long updates (Sun et al. 2019)",
    "adaptive": "the mean without clients that evidence from many rounds speaks against, and within bounds for others",
}
_PRE_STEPS: Mapping[str, str] = {
    "nnm": "before a rule, nnm+RULE: each update becomes the mean of its n - m nearest (Allouah et al. 2023)",
    "bucketing": "before a rule, bucketing+RULE: random groups become their means (Karimireddy et al. 2022)",
}
# As the papers have them; `foltr.core.aggregation.rule_spec` has them as numbers.
_NEEDS: Mapping[str, str] = {
    "krum": "n >= 2m + 3",
    "multi-krum": "n >= 2m + 3",
    "trimmed-mean": "n >= 2 * beta + 1",
    "median": "n >= 2m + 1",
    "bulyan": "n >= 4m + 3",
    "geometric-median": "n >= 2m + 1",
    "centred-clipping": "n >= 2m + 1",
    "adaptive": f"n >= {LEAST_FOR_ADAPTIVE}",
    "nnm": "n >= 2m + 1 and what its rule needs",
    "bucketing": "what its rule needs, of groups in place of updates",
}
_N_AND_M = (
    "n is how many updates a round has, m how many hostile clients the rule is to withstand: --byzantine, a number or "
    f"a share of n that is rounded up, by default {MEAN.byzantine:g}, which is what 'from' is for. A round with fewer "
    "updates follows --fallback; with adaptive it is the mean."
)


def rules(json: options.Json = False) -> None:
    """List the aggregation rules: what they need, and their parameters with defaults."""
    rows = [_rule(name, _RULES[name], least_updates(read_rule(name)), parameters_of_rule(name)) for name in RULES]
    rows += [_rule(name, _PRE_STEPS[name], None, parameters_of_rule(f"{name}+mean")) for name in PRE_STEPS]
    if json:
        print_json(rows)
        return
    say(_N_AND_M)
    for row in rows:
        least = "" if row["least_clients"] is None else f"; from {row['least_clients']} updates"
        needs = "" if row["needs"] is None else f" ({row['needs']}{least})"
        say(f"{row['rule']}{needs}: {row['meaning']}")
        for name, default in row["parameters"].items():
            say(f"    --aggregation-set {name}=VALUE, default {default}")


def _rule(name: str, meaning: str, least: int | None, parameters: dict[str, str]) -> dict[str, Any]:
    """One rule, with the condition on n updates and m hostile clients; a pre-step needs what its rule needs."""
    return {
        "rule": name,
        "needs": _NEEDS.get(name),
        "least_clients": least,
        "parameters": parameters,
        "meaning": meaning,
    }


def methods(json: options.Json = False) -> None:
    """List the methods, with their parameters and defaults."""
    rows = []
    for name, method in METHODS.items():
        # A logging policy is a file, with a setting of its own.
        parameters = {key: default for key, default in parameters_of(name).items() if key != "logging_policy"}
        meaning = " ".join((method.training.__doc__ or "").split()).removesuffix(".")
        rows.append({"method": name, "parameters": parameters, "meaning": meaning})
        if not json:
            say(f"{name}: {meaning}")
            for key, default in parameters.items():
                say(f"    --set {key}={default}")
    if json:
        print_json(rows)
