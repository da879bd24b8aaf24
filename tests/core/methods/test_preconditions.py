"""Rules that no round of a federation could follow, and what is advised instead."""

import numpy as np

from foltr.core.aggregation.adaptive import assess
from foltr.core.aggregation.rule_spec import read_rule, shortfall
from foltr.core.methods.preconditions import LEAST_FOR_ADAPTIVE, lacking, ways_out

ADAPTIVE = read_rule("adaptive")


def test_adaptive_needs_so_many_as_it_compares():
    """What is refused at start is what the rule itself looks at: nobody is ever found among fewer."""
    for n in [1, 2, 3, 4, 5]:
        rows = np.eye(n, 8, dtype=np.float32) + 1.0
        memory = assess(None, [f"c{i}" for i in range(n)], rows, np.ones(n), ADAPTIVE).memory
        assert (lacking(ADAPTIVE, n) is None) == bool(memory.clients["n_updates"].any()) == (n >= LEAST_FOR_ADAPTIVE), n


def test_other_rules_lack_what_they_say():
    for rule in ["mean", "krum", "nnm+median", "bulyan"]:
        for n in [1, 5, 11]:
            assert lacking(read_rule(rule), n) == shortfall(read_rule(rule), n), (rule, n)


def test_the_advice_helps():
    """Numbers that can be used as they stand, and nothing that would not help."""
    for rule, n, advice in [
        (ADAPTIVE, 3, "raise clients to 4, or choose another aggregation"),
        (read_rule("krum", byzantine=2), 6, "raise clients to 7, lower byzantine to 1, or choose another aggregation"),
        # Five would do, and seven: 0.2 of six is two.
        (read_rule("krum"), 6, "raise clients to 7, lower byzantine to 1, or choose another aggregation"),
        # Among six Bulyan tolerates nobody; to lower byzantine to 0 would be no advice.
        (read_rule("bulyan", byzantine=1), 6, "raise clients to 7, or choose another aggregation"),
        (read_rule("trimmed-mean", parameters={"beta": 3}), 5, "raise clients to 7, or choose another aggregation"),
    ]:
        assert ways_out(rule, n, "raise clients") == advice, (rule, n, advice)
