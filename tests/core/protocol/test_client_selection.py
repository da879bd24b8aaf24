"""Selection: left to chance, fixed by the seed, and checkable by everybody who was or was not asked."""

from itertools import pairwise

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.protocol.client_selection import HIGHEST_TICKET, cutoff, is_selected, round_seed, ticket
from foltr.core.protocol.fields import NAME_PATTERN

CLIENTS = [f"device-{i:04d}" for i in range(20)]
names = st.from_regex(NAME_PATTERN, fullmatch=True)
seeds = st.binary(min_size=32, max_size=32)


def selected(seed, clients, n_wanted):
    highest = cutoff(seed, clients, n_wanted)
    return {client_id for client_id in clients if is_selected(seed, highest, client_id)}


def test_tickets_and_seeds_are_what_any_other_program_computes():
    """By sha256sum: text, line break, seed, round in 8 bytes; seed, name. 3e and 70 differ in the second bit."""
    first = bytes(range(32))
    assert round_seed(first, 4).hex() == "afbf3001f7db874b779a06cf14c916c0f07afc460800af83be443ce5e9343a8a"
    assert ticket(bytes(32), "device-7").hex() == "70a3d24b7de78e87"
    assert ticket(bytes(32), "device-8").hex() == "3e141da7b528134f"
    seed = bytes(32)
    assert cutoff(seed, ["device-7", "device-8"], 1).hex() == "3fffffffffffffff"
    assert selected(seed, ["device-7", "device-8"], 1) == {"device-8"}
    assert cutoff(bytes(32), CLIENTS, 20) == cutoff(bytes(32), [], 1) == HIGHEST_TICKET
    assert is_selected(bytes(32), HIGHEST_TICKET, "a-late-comer")


@settings(derandomize=True)
@given(seeds, st.sets(names, min_size=2, max_size=40), st.data())
def test_the_cutoff_is_nobodys_ticket(seed, clients, data):
    """It is stored for ever: between two tickets, with few bits; the lowest tickets are asked, in whatever order."""
    n_wanted = data.draw(st.integers(1, len(clients) - 1))
    tickets = sorted(ticket(seed, client_id) for client_id in clients)
    announced = cutoff(seed, data.draw(st.permutations(sorted(clients))), n_wanted)
    assert announced == cutoff(seed, sorted(clients), n_wanted)
    assert tickets[n_wanted - 1] < announced < tickets[n_wanted]
    assert selected(seed, clients, n_wanted) == {name for name in clients if ticket(seed, name) in tickets[:n_wanted]}
    bits = f"{int.from_bytes(announced):064b}"
    assert len(bits.rstrip("1")) <= 24


def test_every_client_is_asked_equally_often():
    """Over 1,500 rounds of a federation the counts are those of fair draws (chi-square, p > 0.001)."""
    for n_wanted in [1, 5, 19]:
        counts = np.zeros(len(CLIENTS))
        n_rounds = 1_500
        for number in range(n_rounds):
            asked = selected(round_seed(b"\x07" * 32, number), CLIENTS, n_wanted)
            counts += [client_id in asked for client_id in CLIENTS]
        share = n_wanted / len(CLIENTS)
        # Draws without replacement: their covariance is n p (1 - p) N / (N - 1) (I - J / N), which scales the sum.
        scale = n_rounds * share * (1 - share) * len(CLIENTS) / (len(CLIENTS) - 1)
        statistic = ((counts - n_rounds * share) ** 2).sum() / scale
        assert scipy.stats.chi2.sf(statistic, df=len(CLIENTS) - 1) > 0.001, n_wanted


def test_being_asked_says_nothing_about_the_next_round():
    """Rounds are independent: of those asked in one round the expected share is asked in the next."""
    n_rounds, n_wanted = 4_000, 5
    rounds = [selected(round_seed(b"\x08" * 32, number), CLIENTS, n_wanted) for number in range(n_rounds)]
    again = sum(len(one & other) for one, other in pairwise(rounds))
    expected = (n_rounds - 1) * n_wanted * n_wanted / len(CLIENTS)
    assert again == pytest.approx(expected, rel=0.05)
