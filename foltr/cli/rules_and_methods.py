"""``foltr rules`` and ``foltr methods``: the available aggregation rules and learning methods."""

from typing import Any

from foltr.cli import options
from foltr.cli.output import print_json, say
from foltr.core.aggregation.rule_spec import MEAN, PRE_STEPS, RULES, RuleTerms, parameters_of_rule, read_rule
from foltr.core.installed_plugins import InstalledPlugin, installed_plugins
from foltr.core.methods.preconditions import LEAST_FOR_ADAPTIVE, least_updates
from foltr.core.methods.registry import METHODS, parameters_of

_N_AND_M = (
    "n is the number of updates in a round, m the number of hostile clients that the rule withstands: --byzantine, "
    f"a number, or a share of n, rounded up (default {MEAN.byzantine:g}, for which 'from' is given). A round with "
    "fewer updates follows --fallback; with adaptive it uses the mean."
)


def rules(json: options.Json = False) -> None:
    """List the aggregation rules: what they need, and their parameters with defaults."""
    rows = [
        _rule(name, terms, least_updates(read_rule(name)), parameters_of_rule(name)) for name, terms in RULES.items()
    ]
    rows += [_rule(name, terms, None, parameters_of_rule(f"{name}+mean")) for name, terms in PRE_STEPS.items()]
    others = installed_plugins("foltr.rules", (*RULES, *PRE_STEPS))
    if json:
        print_json([*rows, *({"rule": one.name, **_installed(one)} for one in others)])
        return
    say(_N_AND_M)
    for row in rows:
        least = "" if row["least_clients"] is None else f"; from {row['least_clients']} updates"
        needs = "" if row["needs"] is None else f" ({row['needs']}{least})"
        say(f"{row['rule']}{needs}: {row['meaning']}")
        for name, default in row["parameters"].items():
            say(f"    --aggregation-set {name}=VALUE, default {default}")
    _say_installed(others)


def _rule(name: str, terms: RuleTerms, least: int | None, parameters: dict[str, str]) -> dict[str, Any]:
    """Return one rule with its condition on n updates and m hostile clients. A pre-step adds its rule's needs."""
    need = f"n >= {LEAST_FOR_ADAPTIVE}" if name == "adaptive" else terms.need and f"n >= {terms.need.formula}"
    return {
        "rule": name,
        "needs": need,
        "least_clients": least,
        "parameters": parameters,
        "meaning": terms.meaning,
    }


def methods(json: options.Json = False) -> None:
    """List the methods, with their parameters and defaults."""
    rows: list[dict[str, Any]] = []
    for name, method in METHODS.items():
        # A logging policy is a file and has a separate setting.
        parameters = {key: default for key, default in parameters_of(name).items() if key != "logging_policy"}
        meaning = " ".join((method.training.__doc__ or "").split()).removesuffix(".")
        rows.append({"method": name, "parameters": parameters, "meaning": meaning})
        if not json:
            say(f"{name}: {meaning}")
            for key, default in parameters.items():
                say(f"    --set {key}={default}")
    others = installed_plugins("foltr.methods", METHODS)
    if json:
        print_json([*rows, *({"method": one.name, **_installed(one)} for one in others)])
        return
    _say_installed(others)


def _installed(plugin: InstalledPlugin) -> dict[str, Any]:
    """Return what is known of a method or rule that only simulations can use."""
    return {"package": plugin.package, "meaning": plugin.meaning, "error": plugin.error}


def _say_installed(plugins: list[InstalledPlugin]) -> None:
    if plugins:
        say("Only simulated, from other packages; their parameters: foltr simulate --list")
    for one in plugins:
        meaning = one.meaning.removesuffix(".") if one.error is None else f"it cannot be used: {one.error}"
        say(f"{one.name} (of {one.package}): {meaning}")
