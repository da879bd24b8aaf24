"""The adaptive rule where clients leave, so that few are many of those that still come."""

import numpy as np
from defended import ADAPTIVE, Federation, dropped

from foltr.aggregation.round_aggregation import aggregate_round


def play(federation: Federation, here: list[int]) -> set[str]:
    """One round of these clients; who is left out."""
    rows = federation.updates()[here].astype(np.float32)
    one = aggregate_round(ADAPTIVE, [federation.names[i] for i in here], rows, np.ones(len(here)), federation.memory)
    federation.memory = one.memory
    return dropped(one)


def test_a_round_of_unsuspected_clients_has_a_model_where_most_of_the_others_are_suspected() -> None:
    """Four suspects come in each fifth round; two of the six honest ones are gone before they come again."""
    federation = Federation(n_attackers=4, attack=lambda rows, _: -3.0 * rows)
    for number in range(100):
        play(federation, list(range(0 if number % 5 == 0 else 4, 10)))
    assert play(federation, list(range(10))) == federation.attackers
    for _ in range(12):
        assert play(federation, [4, 5, 6, 7]) == set()
