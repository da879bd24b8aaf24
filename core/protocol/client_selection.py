"""A round selects clients at random, and each of them can check that.

Every client has a ticket for every round: the first 8 bytes of SHA-256 over the round's seed and its name. The lowest
tickets are selected. The seed follows from the federation's first seed, drawn once and never changed, and the round's
number, so a federator cannot try seeds until the clients it wants come out.
"""

import hashlib
from collections.abc import Iterable

TICKET_BYTES = 8
HIGHEST_TICKET = b"\xff" * TICKET_BYTES


def round_seed(first_seed: bytes, round_number: int) -> bytes:
    """The 32-byte seed of a round."""
    return hashlib.sha256(b"foltr selection\n" + first_seed + round_number.to_bytes(8, "big")).digest()


def ticket(seed: bytes, client_id: str) -> bytes:
    """The client's ticket, uniform over 8 bytes; compared as bytes."""
    return hashlib.sha256(seed + client_id.encode()).digest()[:TICKET_BYTES]


def cutoff(seed: bytes, eligible: Iterable[str], n_wanted: int) -> bytes:
    """Return a number above which no client is selected; the highest possible if at most ``n_wanted`` are online.

    It lies between the last selected ticket and the first other one, and reveals no more than what separates the two:
    their common leading bits, a 0, and 1s to the end. It is announced and stored, and a ticket is a hash of a name,
    which can be found by trying names.
    """
    tickets = sorted(ticket(seed, client_id) for client_id in eligible)
    if len(tickets) <= n_wanted:
        return HIGHEST_TICKET
    last, first_left_out = (int.from_bytes(each) for each in tickets[n_wanted - 1 : n_wanted + 1])
    # Bits below the first that differs. Equal tickets, one pair in 2^64, are both selected.
    n_below = max(0, (last ^ first_left_out).bit_length() - 1)
    return (last | ((1 << n_below) - 1)).to_bytes(TICKET_BYTES)


def is_selected(seed: bytes, highest: bytes, client_id: str) -> bool:
    """Whether this client is selected; a client that joins later is too if its ticket is low enough."""
    return ticket(seed, client_id) <= highest
