"""Attackers that come and go: the name of each in a round, and the rounds in which it takes part.

Evidence belongs to a name, and a new name has none. Admission decides how cheap names are; here they cost nothing.

- `sybils` take new names every ``life`` rounds, so the rule keeps meeting strangers.
- `late-joiners` send nothing before ``start``: they join when the others are known, and were never compared.
"""

from collections.abc import Sequence

from foltr_research.attacks.registry import AttackSpec


def is_there(spec: AttackSpec, round_number: int) -> bool:
    """Whether the attackers of an attack send updates in a round, from 1."""
    return spec.name != "late-joiners" or round_number >= int(spec.number("start"))


def n_rounds_there(spec: AttackSpec, n_rounds: int) -> int:
    """Return in how many of the first ``n_rounds`` rounds they send."""
    first = int(spec.number("start")) if spec.name == "late-joiners" else 1
    return max(0, n_rounds - first + 1)


def name_in(spec: AttackSpec, name: str, round_number: int) -> str:
    """Return the name that this attacker uses in a round, from 1: first its own, then others."""
    life = (round_number - 1) // int(spec.number("life")) if spec.name == "sybils" else 0
    return f"{name}.{life + 1}" if life else name


def all_names(spec: AttackSpec, names: Sequence[str], n_rounds: int) -> list[str]:
    """Return all names that these attackers use in ``n_rounds`` rounds, grouped by attacker, in order of time."""
    rounds = range(1, n_rounds + 1)
    return list(dict.fromkeys(name_in(spec, name, number) for name in names for number in rounds))
