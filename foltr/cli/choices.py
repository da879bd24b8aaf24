"""``foltr rules`` and ``foltr methods``: what a federation may aggregate and learn by."""

from collections.abc import Mapping
from dataclasses import dataclass

from foltr.cli import options
from foltr.cli.output import console, print_rows
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


@dataclass(frozen=True)
class RuleRow:
    """One rule, for `foltr rules`.

    Attributes:
        needs: the condition on n updates and m hostile clients; None where any number will do.
        least_clients: updates a round needs to tolerate the default share of hostile ones; None of a pre-step, which
            needs what its rule needs.
        parameters: by name, with their defaults in words.
    """

    rule: str
    needs: str | None
    least_clients: int | None
    parameters: dict[str, str]
    meaning: str


@dataclass(frozen=True)
class MethodRow:
    """One method, for `foltr methods`."""

    method: str
    parameters: dict[str, str]
    meaning: str


def rules(json: options.Json = False) -> None:
    """List the aggregation rules: what they need, and their parameters with defaults."""
    rows = [
        RuleRow(name, _NEEDS.get(name), least_updates(read_rule(name)), parameters_of_rule(name), _RULES[name])
        for name in RULES
    ]
    rows += [
        RuleRow(name, _NEEDS[name], None, parameters_of_rule(f"{name}+mean"), _PRE_STEPS[name]) for name in PRE_STEPS
    ]
    if json:
        print_rows(rows, (), title="Rules", as_json=True)
        return
    _tell(_N_AND_M)
    for row in rows:
        least = "" if row.least_clients is None else f"; from {row.least_clients} updates"
        needs = "" if row.needs is None else f" ({row.needs}{least})"
        _tell(f"{row.rule}{needs}: {row.meaning}")
        for name, default in row.parameters.items():
            _tell(f"    --aggregation-set {name}=VALUE, default {default}")


def methods(json: options.Json = False) -> None:
    """List the methods, with their parameters and defaults."""
    rows = [
        MethodRow(name, _parameters_of(name), " ".join((method.training.__doc__ or "").split()).removesuffix("."))
        for name, method in METHODS.items()
    ]
    if json:
        print_rows(rows, (), title="Methods", as_json=True)
        return
    for row in rows:
        _tell(f"{row.method}: {row.meaning}")
        for name, default in row.parameters.items():
            _tell(f"    --set {name}={default}")


def _parameters_of(method: str) -> dict[str, str]:
    """Return the parameters that are given as text: a logging policy is a file, with an option of its own."""
    return {name: default for name, default in parameters_of(method).items() if name != "logging_policy"}


def _tell(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
