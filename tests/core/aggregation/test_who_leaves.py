"""The adaptive rule where clients leave, so that few are many of those that still come."""

import numpy as np
from support.adaptive_rounds import ADAPTIVE, Federation, clipped, dropped

from foltr.core.aggregation.round_aggregation import aggregate_round


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


def test_a_fleet_that_was_mostly_off_comes_back_to_what_it_left() -> None:
    """Three hostile clients of eight lead nobody astray while 32 of 40 are away for very long."""
    federation = Federation(n=40, n_attackers=16, attack=lambda rows, _: -rows)
    federation.play(150, n_present=12)
    stay = [0, 1, 2, 16, 17, 18, 19, 20]
    for _ in range(220):
        assert play(federation, stay) <= federation.attackers
    federation.played.clear()
    federation.play(40, n_present=12)
    assert federation.ever_dropped() == federation.attackers
    assert not set().union(*(clipped(one) for one in federation.played))
    ahead = [one.vector @ federation.direction for one in federation.played]
    assert np.mean(ahead) > 0.9 * federation.signal * (federation.direction @ federation.direction)
    assert not federation.refused


def test_who_leads_while_most_are_away_does_so_no_longer_than_that() -> None:
    """Eight hostile clients are the most of eleven; ten rounds after the others are back nobody follows them."""
    federation = Federation(n=40, n_attackers=16, attack=lambda rows, _: -rows)
    federation.play(150, n_present=12)
    for _ in range(40):
        play(federation, [*range(8), 16, 17, 18])
    federation.play(10, n_present=12)
    federation.played.clear()
    federation.play(30, n_present=12)
    ahead = [one.vector @ federation.direction for one in federation.played]
    assert min(ahead) > 0.0
