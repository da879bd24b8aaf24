"""Suspects alone come back once nobody else has come for long, and no sooner: those who are away are not replaced."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from support.adaptive_rounds import ADAPTIVE, Federation, dropped

from foltr.core.aggregation.client_records import ClientRecords
from foltr.core.aggregation.reference_clients import after_suspects_alone
from foltr.core.aggregation.round_aggregation import OnlySuspectsError, TooFewUpdatesError, aggregate_round

LONG = 200


@dataclass
class Left:
    """What is left of a federation whose rounds a part of the clients come to; a loop as that of the federator."""

    federation: Federation
    # Rounds of suspects only since the last model; of each round, how far its model went the honest way, NaN of none.
    n_alone: int = 0
    made: list[float] = field(default_factory=list)

    def play(self, here: list[int], rounds: int = 1, *, honest: bool = False) -> "Left":
        federation = self.federation
        for _ in range(rounds):
            attack, federation.attack = federation.attack, None if honest else federation.attack
            rows = federation.updates()[here].astype(np.float32)
            federation.attack = attack
            names = [federation.names[i] for i in here]
            memory = after_suspects_alone(federation.memory, self.n_alone)
            try:
                one = aggregate_round(ADAPTIVE, names, rows, np.ones(len(here)), memory)
            except OnlySuspectsError:
                self.n_alone += 1
                self.made.append(np.nan)
                continue
            federation.memory, self.n_alone = one.memory, 0
            federation.played.append(one)
            self.made.append(float(one.vector @ federation.direction / (federation.direction @ federation.direction)))
        return self


def attacked(n: int = 10, n_attackers: int = 4) -> Left:
    """A federation that has found those who turn their updates round."""
    left = Left(Federation(n=n, n_attackers=n_attackers, attack=lambda rows, _: -rows)).play(list(range(n)), 100)
    assert dropped(left.federation.played[-1]) == left.federation.attackers
    left.made.clear()
    return left


ATTACKERS, ALL = [0, 1, 2, 3], list(range(10))


def test_suspects_who_are_left_alone_make_models_again() -> None:
    """After 200 rounds of nobody else they are the ones who come, and are judged by what they send now."""
    left = attacked().play(ATTACKERS, LONG + 100, honest=True)
    assert np.isnan(left.made[:LONG]).all()
    assert not np.isnan(left.made[LONG:]).any()
    assert np.mean(left.made[LONG:]) == pytest.approx(left.federation.signal, abs=0.1)
    assert dropped(left.federation.played[-1]) == set()


def test_what_they_send_is_in_a_model_only_once_nobody_else_has_come_for_so_long() -> None:
    """Others that come once in so long are enough: the model is theirs, and the time begins anew."""
    left = attacked()
    for others in 2 * ([4, 5, 6], [7, 8, 9]):
        left.play(ATTACKERS, LONG - 1).play([*ATTACKERS, *others])
    made = np.array(left.made)
    assert np.flatnonzero(~np.isnan(made)).tolist() == list(range(LONG - 1, 4 * LONG, LONG))
    assert dropped(left.federation.played[-1]) == left.federation.attackers


def test_absences_of_a_night_change_nothing_at_all() -> None:
    """The same bytes, and the next round makes the same model; after longer nothing but the time is another."""
    left, other = attacked(), attacked()
    left.play(ATTACKERS, LONG - 1)
    assert left.federation.memory == other.federation.memory
    rows, names = other.federation.updates().astype(np.float32), other.federation.names
    made = [
        aggregate_round(ADAPTIVE, names, rows, np.ones(10), after_suspects_alone(other.federation.memory, n))
        for n in (0, LONG - 1)
    ]
    np.testing.assert_array_equal(made[0].vector, made[1].vector)
    assert made[0].memory == made[1].memory
    federation = attacked().federation
    before = ClientRecords.from_bytes(federation.memory, 24)
    after = ClientRecords.from_bytes(after_suspects_alone(federation.memory, LONG), 24)
    assert (after.n_rounds, after.client_ids) == (before.n_rounds + LONG, before.client_ids)
    assert after.clients.tobytes() == before.clients.tobytes()
    assert after_suspects_alone(None, 10 * LONG) is None


def test_who_returns_is_among_those_who_come_again_at_once() -> None:
    """Attackers that were alone for long lead the model while they are; no longer than until the others are back."""
    left = attacked().play(ATTACKERS, LONG + 50)
    assert np.mean(left.made[LONG:]) < 0.0
    left.made.clear()
    left.play(ALL, 60)
    assert all(dropped(one) == left.federation.attackers for one in left.federation.played[-30:])
    assert np.mean(left.made[-30:]) == pytest.approx(left.federation.signal, abs=0.1)


def test_a_round_in_which_somebody_else_has_sent_what_cannot_be_used_is_none_of_suspects_only() -> None:
    federation = attacked().federation
    rows = federation.updates()[[0, 1, 2, 9]]
    rows[3] = np.nan
    names = [federation.names[i] for i in (0, 1, 2, 9)]
    with pytest.raises(TooFewUpdatesError) as raised:
        aggregate_round(ADAPTIVE, names, rows, np.ones(4), federation.memory)
    assert not isinstance(raised.value, OnlySuspectsError)
