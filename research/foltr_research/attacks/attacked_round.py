"""The updates that attackers send in a round: `craft` makes them from what they have learned and know.

The result depends only on the attack, the updates, the model, the round's number and the generator `attack_rng`, so a
round is attacked identically in the simulator and in the service. Attackers keep no state.
"""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.rule_spec import RuleSpec, n_byzantine
from foltr.core.errors import DataError, SettingsError
from foltr_research.attacks.aware import (
    Laundering,
    acceptable,
    alternate,
    creep,
    framing,
    launder,
    openly_hostile,
    resembling,
    turncoat,
)
from foltr_research.attacks.crafting import (
    Perturbation,
    bounded,
    fang_krum,
    fang_krum_partial,
    fang_trimmed_mean,
    inner_product,
    lie,
    lie_z,
    min_max,
    min_sum,
    reversed_direction,
)
from foltr_research.attacks.directions import Towards, direction_of
from foltr_research.attacks.registry import (
    CRAFTING,
    AttackedRound,
    AttackSpec,
    check_without_model,
    has_parameter,
)


def craft(
    spec: AttackSpec,
    own: NDArray[np.float64],
    others: NDArray[np.float64] | None,
    n: int,
    rule: RuleSpec | None,
    rng: np.random.Generator,
    model: NDArray[np.float32] | None = None,
    round_number: int = 1,
) -> NDArray[np.float32]:
    """Craft the updates of a round's attackers.

    With a ``jitter`` each attacker that would send the same update adds noise of so many standard deviations of the
    known updates, coordinate by coordinate, and so looks like a separate client.

    Args:
        spec: any attack but ``clicks``, whose updates are the learned ones.
        own: (m, d) the attackers' honest updates, in order of client_id.
        others: (n - m, d) those of the honest clients; None if unknown.
        n: number of updates in the round.
        rule: the aggregation rule that the attackers assume; None if they assume none.
        rng: from `attack_rng`; shared by all attackers of a round.
        model: (d,) that the round trains from; None if unavailable.
        round_number: from 1, as for `attack_rng`.

    Returns:
        (m, d) float32, possibly not finite.

    Raises:
        SettingsError: full knowledge without the others' updates, or an attack against a model that is unavailable.
    """
    if spec.knowledge == "full" and others is None:
        raise SettingsError(
            f"attack_parameters: knowledge: {spec.name} with full knowledge needs everybody's updates, which are known "
            "only where all devices run in one process; leave it at partial"
        )
    if model is None:
        check_without_model(spec)
        model = np.zeros(own.shape[1], np.float32)
    hidden = others if spec.knowledge == "full" else None
    with np.errstate(over="ignore", invalid="ignore"):  # attackers may send values that are not finite
        if spec.name in CRAFTING:
            seen = AttackedRound(own, hidden, model.astype(np.float64), n, rule, rng, round_number)
            return _from_outside(spec, seen).astype(np.float32)
        rows = np.broadcast_to(
            _crafted(spec, own, hidden, n, rule, rng, model.astype(np.float64), round_number), own.shape
        )
        jitter = spec.number("jitter") if has_parameter(spec.name, "jitter") else 0.0
        if jitter:
            known = own if hidden is None else np.concatenate([own, hidden])
            rows = rows + jitter * known.std(axis=0) * rng.normal(size=own.shape)
        return rows.astype(np.float32)


def attack_rng(seed: int, round_number: int) -> np.random.Generator:
    """Return the generator that attackers draw from in a round.

    Args:
        round_number: from 1; the version of the model that attackers received, plus one.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, round_number, *b"attack"]))


def _crafted(
    spec: AttackSpec,
    own: NDArray[np.float64],
    others: NDArray[np.float64] | None,
    n: int,
    rule: RuleSpec | None,
    rng: np.random.Generator,
    model: NDArray[np.float64],
    round_number: int,
) -> NDArray[np.float64]:
    """(m, d), or (d,) if all attackers send the same."""
    m = len(own)
    known = own if others is None else np.concatenate([own, others])
    match spec.name:
        case "lie":
            return lie(known, lie_z(n, m) if spec.text("z") == "auto" else spec.number("z"))
        case "fang-krum":
            if others is None or not len(others):
                return fang_krum_partial(own)
            return fang_krum(others, reversed_direction(known), m, _tolerated(rule, n, m))[0]
        case "fang-trimmed-mean":
            return fang_trimmed_mean(known, m, spec.number("b"), rng)
        case "sign-flip":
            return -own
        case "scaled":
            return -spec.number("z") * own
        case "inner-product":
            return inner_product(known, spec.number("epsilon"))
        case "bounded":
            return bounded(known, _turned_against(spec, model), spec.number("length"))
        case "min-max":
            return min_max(known, cast("Perturbation", spec.text("perturbation")))
        case "min-sum":
            return min_sum(known, cast("Perturbation", spec.text("perturbation")))
        case "framing":
            return framing(own, own[:0] if others is None else others)
        case "launder" | "creep" | "acceptable" | "alternate" | "turncoat" | "sybils" | "late-joiners":
            return _over_rounds(spec, own, others, model, round_number, rng)
        case "not-finite":
            return np.full_like(own, float(spec.text("value")))
        case "huge":
            return np.where(own > 0.0, -1.0, 1.0) * spec.number("size")
    raise RuntimeError(f"{spec.name} crafts no updates")


def _from_outside(spec: AttackSpec, seen: AttackedRound) -> NDArray[np.floating]:
    """(m, d) of an attack that is not of this package. Raises DataError for another shape."""
    rows = np.asarray(CRAFTING[spec.name](seen, **dict(spec.parameters)))
    if rows.shape not in (seen.own.shape, seen.own.shape[1:]) or rows.dtype.kind not in "fiu":
        raise DataError(f"attack: {spec.name} must return numbers {seen.own.shape}, not {rows.shape} {rows.dtype}")
    return np.broadcast_to(rows, seen.own.shape)


def _over_rounds(
    spec: AttackSpec,
    own: NDArray[np.float64],
    others: NDArray[np.float64] | None,
    model: NDArray[np.float64],
    round_number: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """(m, d) of the attacks that span many rounds."""
    turn = round_number - (int(spec.number("start")) if has_parameter(spec.name, "start") else 1)
    copies = spec.name == "turncoat" and spec.text("before") == "copies"
    before = framing(own, others) if copies and others is not None else own
    if turn < 0:
        return before
    if spec.name == "launder":
        period = int(spec.number("period"))
        burst, counted, noise = (spec.number(name) for name in ("burst", "counted", "noise"))
        return launder(own, model, _aim(spec, model), turn, Laundering(period, burst, counted, noise), rng)
    if spec.name == "acceptable":
        known = own if others is None else np.concatenate([own, others])
        return acceptable(own, known.mean(axis=0), _aim(spec, model), spec.number("least"), spec.number("longest"))
    seen = own
    if others is not None and len(others):
        seen = resembling(others, len(own), spec.number("spread"), rng)
    if spec.name == "creep":
        step, honest, longest = (spec.number(name) for name in ("step", "honest", "longest"))
        return creep(seen, _aim(spec, model), step, honest, longest)
    aim = None if spec.text("towards") == "update" else _aim(spec, model)
    bad = openly_hostile(seen, aim, spec.number("z"))
    match spec.name:
        case "alternate":
            return alternate(own, bad, turn, int(spec.number("period")), int(spec.number("hostile")))
        case "turncoat":
            return turncoat(before, bad, turn)
    return bad


def _aim(spec: AttackSpec, model: NDArray[np.float64]) -> NDArray[np.float64]:
    """(d,) unit vector along which an attack moves the ranker, or zeros."""
    return direction_of(cast("Towards", spec.text("towards")), model, int(spec.number("feature")))


def _turned_against(spec: AttackSpec, model: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """(d,) the direction that is reversed; None for the direction of the updates."""
    match spec.text("against"):
        case "update":
            return None
        case "features":
            return np.ones_like(model)
    return model


def _tolerated(rule: RuleSpec | None, n: int, m: int) -> int:
    """The m of the attacked Krum: the rule's setting, or for another rule the number of attackers."""
    return n_byzantine(rule, n) if rule is not None and rule.rule in {"krum", "multi-krum"} else m
