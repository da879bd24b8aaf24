"""Selection: left to chance, fixed by the seed, and checkable by everybody who was or was not asked."""

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
