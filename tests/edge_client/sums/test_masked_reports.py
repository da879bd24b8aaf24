"""What a device says under a policy of models and lists: a vote and an evaluation behind the masks; all look alike."""

import numpy as np
import pytest
from support.device_under_policy import DeviceUnderPolicy, identity, learned_update, opened, unmasked
from support.federator_by_hand import N_FEATURES
from support.secure_policies import policy

from foltr.core.protocol.codec import encode
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.policies import allowance_of
from foltr.core.protocol.updates import DenseDelta, Vote
from foltr.core.secure.norm_proof import proof_shape
from foltr.edge_client.sums.masked_update import mask_update

DIM, WEIGHT = 40, 32
KEY = identity().key
VOTE_WEIGHT = 64
PLAIN = policy(DIM, proofs=True)
VOTING = policy(DIM, proofs=True, vote_weight=VOTE_WEIGHT)
EVALUATING = policy(DIM, proofs=True, evaluation_weight=WEIGHT)
BOTH = policy(DIM, proofs=True, vote_weight=VOTE_WEIGHT, evaluation_weight=WEIGHT)
CLICKED_BELOW = Evaluation(clicked=1.0, reward=0.0, base_reward=1.0)
BASE = (3.0, 2.0, 1.0)


def sent(evaluation=None, signed=EVALUATING, vote=None, value=0.0):
    """A masked update, all zeros but its first value; ``vote``: the opinion, None: without one."""
    update = learned_update(DenseDelta(dim=DIM, values=pack_vector(np.r_[value, np.zeros(DIM - 1)])))
    vote = None if vote is None else Vote(anchor_version=3, value=vote)
    return mask_update(update, 5, signed, 2.0, KEY, vote, evaluation, epoch=0)


@pytest.mark.parametrize(("opinion", "votes"), [(-1, [64, 0]), (1, [0, 64]), (0, [0, 0]), (None, [0, 0])])
@pytest.mark.parametrize("value", [0.0, 1e30])
def test_a_vote_is_its_weight_in_one_of_two_numbers(opinion, votes, value):
    """Behind any update; and the proofs, which `opened` checks, pass."""
    update, bound = sent(signed=VOTING, vote=opinion, value=value), VOTING.policy.bound
    integers = opened(update, VOTING, KEY.public)
    assert integers.tolist() == [bound if value else 0, *[0] * (DIM - 1), *votes]
    assert int(integers @ integers) <= bound**2 + VOTE_WEIGHT**2
    # Who has no opinion sends as much as who has, and nothing of it is in the open.
    assert (len(encode(update)), update.vote) == (len(encode(sent(signed=VOTING, vote=1))), None)
    assert len(update.body.proof) == 8 * (proof_shape(DIM, bound).n_proof + 6)


@pytest.mark.parametrize(
    ("evaluation", "numbers"), [(CLICKED_BELOW, [WEIGHT, 0, WEIGHT]), (None, [0, 0, 0])], ids=["told", "not told"]
)
def test_an_evaluation_is_three_numbers_behind_the_update_and_the_vote(evaluation, numbers):
    """Without votes just behind the update; the proofs, which `opened` checks, pass, and nothing is in the open."""
    alone = sent(evaluation)
    assert opened(alone, EVALUATING, KEY.public).tolist() == [0] * DIM + numbers
    both = sent(evaluation, BOTH, -1)
    assert opened(both, BOTH, KEY.public).tolist() == [0] * DIM + [64, 0] + numbers
    assert (alone.evaluation, both.evaluation, both.vote) == (None, None, None)
    assert len(both.body.proof) == 8 * (proof_shape(DIM, BOTH.policy.bound).n_proof + 15)


def test_a_mean_between_is_one_of_the_two_at_random():
    """By the system's randomness; never anything between, and all messages are as long as each other."""
    halves = [sent(Evaluation(clicked=1.0, reward=0.5, base_reward=0.5)) for _ in range(60)]
    numbers = np.array([opened(update, EVALUATING, KEY.public)[DIM:] for update in halves])
    assert (numbers[:, 0] == WEIGHT).all()
    assert (numbers[:, 1] == numbers[:, 2]).all(), "one draw decides all"
    assert set(numbers[:, 1]) == {0, WEIGHT}
    assert len({len(encode(update)) for update in [*halves, sent(None)]}) == 1


def test_a_policy_hears_what_it_asks_for():
    """What is sent else is as long as it was before there was anything to say."""
    for signed, n in ((PLAIN, 0), (VOTING, 2), (policy(DIM), 0)):
        update = sent(CLICKED_BELOW, signed, 1)
        assert (update.body.dim, update.evaluation, update.vote) == (DIM + n, None, None)
        assert opened(update, signed, KEY.public).tolist() == [0] * DIM + [0, 64][:n]


@pytest.mark.parametrize(("signed", "n"), [(EVALUATING, 9), (VOTING, 6)])
def test_what_hides_the_numbers_is_drawn_for_each_message(signed, n):
    """Two messages that say the same have no random number in common."""
    proofs = [unmasked(sent(CLICKED_BELOW, signed, 1), signed, KEY.public)[0][-n:] for _ in range(2)]
    assert (proofs[0] != proofs[1]).all()


def asking(**changed):
    return policy(N_FEATURES, proofs=True, evaluation_weight=WEIGHT, **changed)


def click(device, *places):
    """Show a list of three for each, and click on the document that is at this place of the base order; or on none."""
    for number, place in enumerate(places):
        features = np.zeros((3, N_FEATURES), np.float32)
        features[:, number % N_FEATURES] = 1.0
        serp = device.agent.rank(features, k=3, base=BASE)
        device.agent.record_clicks(serp, [] if place is None else [serp.ranking.tolist().index(place)])


async def numbers_in(device, update):
    return device.open(update)[N_FEATURES:].tolist()


async def test_a_device_says_what_its_lists_have_earned(tmp_path):
    """What the base order has first is clicked: it says so for sure; it pays for all three; and nobody asked aloud."""
    device = DeviceUnderPolicy(tmp_path / "store", asking())
    device.announce(1)
    click(device, 0, 0)
    update = await device.update()
    clicked, _, base_reward = await numbers_in(device, update)
    assert (clicked, base_reward, update.evaluation) == (WEIGHT, WEIGHT, None)
    assert device.store.spent().charge == allowance_of(device.signed.policy).charge
    device.answer(update)
    device.announce(2)
    click(device, None, None)
    assert await numbers_in(device, await device.update()) == [0, 0, 0]


async def test_who_switched_it_off_sends_zeros(tmp_path):
    """As many numbers as anybody, or the federator would see who has."""
    device = DeviceUnderPolicy(tmp_path / "store", asking(), evaluation=False)
    device.announce(1)
    click(device, 0, 0)
    assert await numbers_in(device, await device.update()) == [0, 0, 0]


async def test_a_newer_policy_says_whether_it_is_asked_for(tmp_path):
    """With another weight, with none, and with one again: each update is as its own round's policy has it."""
    first = asking()
    device = DeviceUnderPolicy(tmp_path / "store", first)
    second = policy(N_FEATURES, proofs=True, evaluation_weight=8, after=first)
    third = policy(N_FEATURES, proofs=True, vote_weight=64, after=second)
    heard = [second, third, policy(N_FEATURES, proofs=True, vote_weight=64, evaluation_weight=8, after=third)]
    found = []
    for number, signed in enumerate(heard, start=1):
        device.hear_policy(signed)
        device.signed = signed
        device.join()  # under another policy it asks for its watermark again
        device.announce(number)
        click(device, 0, 0)
        update = await device.update()
        found.append(await numbers_in(device, update))
        device.answer(update)
    weights = [[each for each in numbers if each] for numbers in found]
    assert [len(numbers) for numbers in found] == [3, 2, 5]
    assert [set(each) for each in weights] == [{8}, set(), {8}]
