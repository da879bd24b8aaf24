"""What a device sends of its vote under a policy: one of two numbers behind the masks, or none, and all look alike."""

import numpy as np
import pytest
from support.device_under_policy import identity, learned_update, opened, unmasked
from support.secure_policies import policy

from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.updates import DenseDelta, Vote
from foltr.core.secure.norm_proof import proof_shape
from foltr.edge_client.sums.masked_update import mask_update

DIM, WEIGHT = 40, 64
KEY = identity().key
VOTING = policy(DIM, proofs=True, vote_weight=WEIGHT)


def sent(opinion, signed=VOTING, values=None):
    """A masked update with this opinion; None: without a vote."""
    values = np.zeros(DIM) if values is None else values
    update = learned_update(DenseDelta(dim=DIM, values=pack_vector(values)))
    vote = None if opinion is None else Vote(anchor_version=3, value=opinion)
    return mask_update(update, 5, signed, 2.0, KEY, vote, epoch=0)


@pytest.mark.parametrize(("opinion", "votes"), [(-1, [WEIGHT, 0]), (1, [0, WEIGHT]), (0, [0, 0]), (None, [0, 0])])
@pytest.mark.parametrize("value", [0.0, 1e30])
def test_a_vote_is_its_weight_in_one_of_two_numbers(opinion, votes, value):
    """Behind the update, whatever that is; and the proofs, which `opened` checks, pass."""
    values = np.r_[value, np.zeros(DIM - 1)]
    integers = opened(sent(opinion, values=values), VOTING, KEY.public)
    assert integers.tolist() == [VOTING.policy.bound if value else 0, *[0] * (DIM - 1), *votes]
    assert int(integers @ integers) <= VOTING.policy.bound**2 + WEIGHT**2


def test_who_has_no_opinion_sends_as_much_as_who_has():
    """And nothing of the vote is in the open."""
    updates = [sent(opinion) for opinion in (-1, 0, 1, None)]
    assert len({len(encode(update)) for update in updates}) == 1
    assert {update.vote for update in updates} == {None}
    assert len(updates[0].body.proof) == 8 * (proof_shape(DIM, VOTING.policy.bound).n_proof + 6)


@pytest.mark.parametrize("proofs", [False, True])
def test_a_policy_without_votes_hears_none(proofs):
    """What is sent is as long as it was before there were votes."""
    signed = policy(DIM, proofs=proofs)
    update = sent(1, signed)
    assert (update.body.dim, update.vote) == (DIM, None)
    assert opened(update, signed, KEY.public).tolist() == [0] * DIM


def test_what_hides_a_vote_is_drawn_anew():
    """Two messages with one opinion have no random number in common."""
    proofs = [unmasked(sent(1), VOTING, KEY.public)[0][-6:] for _ in range(2)]
    assert (proofs[0] != proofs[1]).all()
