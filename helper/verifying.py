"""What a helper says of the proofs of a page: of each message's norm, and of its votes, if there are any. No I/O.

Its share of a message is the mask that its seed makes, taken away. What it says of that is linear in it, so it tells
nothing by itself, and the answers of all verifiers add up to the verdict. Of one ticket it always says the same: two
different challenges to one proof would tell more of the vector than one.
"""

from collections.abc import Iterable

import numpy as np

from foltr.core.secure.field import subtract, write_words
from foltr.core.secure.masks import expand_seed
from foltr.core.secure.message_proof import answer_message
from foltr.helper.checking import GoodTicket
from foltr.helper.terms import Terms


def answer_proofs(good: Iterable[GoodTicket], terms: Terms) -> bytes:
    """Return what this helper says of each ticket's proofs, in their order, as words of 64 bits.

    Nothing is said where the policy asks for no proofs.
    """
    shape, verify_key = terms.policy.policy.message_shape, terms.verify_key
    if shape is None or verify_key is None:
        return b""
    nothing = np.zeros(shape.n_values, np.uint64)
    answers = (
        answer_message(
            subtract(nothing, expand_seed(ticket.seed, shape.n_values)), verify_key, ticket.ticket_name, shape
        )
        for ticket in good
    )
    return b"".join(write_words(answer) for answer in answers)
