"""What of a masked update is refused when it arrives, as no helper would take its ticket."""

import hashlib

import numpy as np
from support.secure_cohorts import UPDATE_ID, SecureFederation

from foltr.core.errors import MessageError
from foltr.core.protocol.policies import SecureVotes
from foltr.core.protocol.signed_tickets import issue_ticket, open_ticket
from foltr.core.secure.field import write_words
from foltr.core.secure.norm_proof import proof_shape
from foltr.federator.deciding.tickets import check_ticket
from foltr.federator.reading import ReceivedUpdate
from foltr.federator.round import UpdateHeader
from foltr.federator.secure_terms import SecureTerms

FEDERATION = SecureFederation(proofs=True)
CLIENT = FEDERATION.client("device-7")
PROVEN, PLAIN = (FEDERATION.issue(version=version, proofs=version == 2) for version in (2, 3))
VOTING = FEDERATION.issue(version=4, votes=SecureVotes(weight=64))
N_PROOF = proof_shape(3, 256).n_proof


def offered(policy=PROVEN, n_words=None, swapped=None, digested=None):
    """What arrives under a policy, perhaps ``swapped`` for its proof, or with a ticket for what is ``digested``."""
    made = FEDERATION.contribute(CLIENT, policy=policy, vector=np.array([3, -4, 12]))
    values, proof = (write_words(words) for words in (made.masked, made.proof))
    if n_words is not None:
        proof = (proof + bytes(8 * n_words))[: 8 * n_words]
    digest = hashlib.sha256(values + (proof if digested is None else digested)).digest()
    ticket = open_ticket(made.ticket).ticket.model_copy(update={"digest": digest})
    return ReceivedUpdate(
        UpdateHeader("device-7", UPDATE_ID, 4, 3, 0, 1),
        base_hash=bytes(16),
        n_interactions=1,
        encoding="masked_u64",
        body=values + (proof if swapped is None else swapped),
        signed=None,
        digest=bytes(16),
        ticket=issue_ticket(CLIENT.key, ticket),
    )


def refusal_of(reading, policy=PROVEN):
    try:
        check_ticket(reading, SecureTerms(policy, 1.0), CLIENT.key.public, "mail")
    except MessageError as error:
        return str(error.code), error.detail
    return None


def test_a_round_that_asks_for_proofs_takes_those_of_the_right_length_alone():
    """Helpers make their shares as long as the policy has them."""
    for n_words in [0, 1, N_PROOF - 1, N_PROOF + 1, 2 * N_PROOF, 4103]:
        assert refusal_of(offered()) is None, n_words
        detail = f"{3 + n_words} numbers; the round's policy asks for 3 to sum and {N_PROOF} that prove them"
        assert refusal_of(offered(n_words=n_words)) == ("wrong_shape", detail), n_words


def test_a_round_that_asks_for_votes_takes_messages_with_votes_alone():
    """Two numbers more in the sum, and six that prove them; nor does any other round take one with votes."""
    for n_words in [0, N_PROOF, N_PROOF + 5, N_PROOF + 7]:
        assert refusal_of(offered(VOTING), VOTING) is None, n_words
        detail = f"{5 + n_words} numbers; the round's policy asks for 5 to sum and {N_PROOF + 6} that prove them"
        assert refusal_of(offered(VOTING, n_words=n_words), VOTING) == ("wrong_shape", detail), n_words
        # As long as one with votes, but its ticket is for this policy.
        detail = f"{3 + N_PROOF + 8} numbers; the round's policy asks for 3 to sum and {N_PROOF} that prove them"
        assert refusal_of(offered(PROVEN, n_words=N_PROOF + 8)) == ("wrong_shape", detail), n_words


def test_a_round_that_asks_for_no_proof_takes_none():
    """Else what is stored would be as long as its sender likes."""
    for n_words in [1, N_PROOF]:
        assert refusal_of(offered(PLAIN), PLAIN) is None, n_words
        detail = f"{3 + n_words} numbers; the round's policy asks for 3 to sum and 0 that prove them"
        assert refusal_of(offered(PLAIN, n_words=n_words), PLAIN) == ("wrong_shape", detail), n_words


def test_a_ticket_is_for_the_vector_and_the_proof():
    """Neither of the two can be another one than was signed."""
    for changed in [
        {"swapped": b""},
        {"digested": b""},
        {"swapped": bytes(8 * N_PROOF)},
        {"digested": bytes(8 * N_PROOF)},
    ]:
        assert refusal_of(offered(**changed)) == (
            "misplaced",
            "the ticket: it is of another vector, or of another proof",
        ), changed


def test_what_was_made_under_another_policy_is_refused_as_that():
    """By a device that was off while proofs came or went, in a database that was restored: the cause is the policy."""
    for made, asked in [(PROVEN, PLAIN), (PLAIN, PROVEN)]:
        assert refusal_of(offered(made), asked) == ("misplaced", "the ticket: it is under another policy"), made
