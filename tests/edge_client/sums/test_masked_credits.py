"""A device under a policy sends one number for its lists' credits, once, and goes by those of all if it may."""

import shutil

import numpy as np
import pytest
from support.device_under_policy import DeviceUnderPolicy, identity, learned_update, opened
from support.federator_by_hand import N_FEATURES, TOPICS, model
from support.secure_policies import OPERATOR, policy

from foltr.core.errors import MessageError
from foltr.core.learning.credits import Credits
from foltr.core.learning.gate import Gate, Source
from foltr.core.protocol.codec import encode
from foltr.core.protocol.evaluations import Evaluation, EvaluationRequest
from foltr.core.protocol.explorations import NoExploration
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.policies import Policy, SecureEvaluation, allowance_of
from foltr.core.protocol.signed_policies import issue_policy, read_policy
from foltr.core.protocol.signing import sequence_of
from foltr.core.protocol.updates import DenseDelta
from foltr.core.secure.ledger import gaussian_charge, norm_proof_charge
from foltr.edge_client.sums.masked_update import mask_update

DIM, WEIGHT = 40, 64
WEIGHTS = {"vote_weight": 64, "evaluation_weight": 32, "credit_weight": WEIGHT}
KEY = identity().key
CREDITING = policy(DIM, proofs=True, **WEIGHTS)
# In the application's order; the model likes the last one best.
DOCUMENTS = np.eye(4, N_FEATURES, dtype=np.float32)[::-1]
MODEL = model().model_copy(update={"weights": pack_vector([3.0, 2.0, 1.0] + [0.0] * (N_FEATURES - 3))})
BETTER = Credits(20.0, 10.0)


def number_in(credit_total, signed=CREDITING):
    update = learned_update(DenseDelta(dim=DIM, values=pack_vector(np.zeros(DIM))))
    said = Evaluation(clicked=0.0, reward=0.0, base_reward=0.0, credit_total=credit_total)
    masked = mask_update(update, 5, signed, 2.0, KEY, None, said, epoch=0)
    assert masked.evaluation is None
    return opened(masked, signed, KEY.public).tolist()[DIM:]


def test_credits_are_one_number_behind_the_evaluation() -> None:
    """Cut to the weight; the proofs, which `opened` checks, pass; and a policy without says nothing of them."""
    assert [number_in(total) for total in (0.0, 1.0, 2.5, -1e5)] == [
        [0, 0, 0, 0, 0, each] for each in (0, WEIGHT, WEIGHT, -WEIGHT)
    ]
    without = policy(DIM, proofs=True, vote_weight=64, evaluation_weight=32)
    assert number_in(1.0, without) == [0] * 5
    assert without.policy.n_summed + 1 == CREDITING.policy.n_summed
    alone = policy(DIM, proofs=True, evaluation_weight=32, credit_weight=8)
    assert number_in(-3.0, alone) == [0, 0, 0, -8]


def test_the_ledger_charges_them() -> None:
    noise = CREDITING.policy.noise.variance
    charge = gaussian_charge(CREDITING.policy.bound, noise, **WEIGHTS) + norm_proof_charge(CREDITING.policy.bound)
    assert allowance_of(CREDITING.policy).charge == charge
    assert charge.times(20).epsilon_at(1e-6) == pytest.approx(8.0, abs=1e-4)


def test_a_policy_from_before_there_were_credits_is_as_it_was() -> None:
    """Its signed bytes have no such field; and with it, noise that was enough is too little."""
    older = policy(DIM, proofs=True, vote_weight=64, evaluation_weight=32).policy
    fields = older.model_dump()
    del fields["evaluation"]["credit_weight"]

    class Older(Policy):
        def packed(self):
            return fields

    signed = issue_policy(OPERATOR, Older(**older.model_dump()))
    read = read_policy(signed.signed, OPERATOR.public, "mail").policy
    assert (read, read.credit_weight, read.n_summed) == (older, 0, DIM + 5)
    fields["evaluation"]["credit_weight"] = WEIGHT
    with pytest.raises(MessageError, match="needs"):
        read_policy(issue_policy(OPERATOR, Older(**older.model_dump())).signed, OPERATOR.public, "mail")
    with pytest.raises(ValueError, match="evaluation: a weight of 9999 is above the bound"):
        Policy(**{**CREDITING.policy.model_dump(), "evaluation": SecureEvaluation(weight=1, credit_weight=9999)})


# --- a device -----------------------------------------------------------------------------------------------------


def crediting(**changed):
    return policy(N_FEATURES, proofs=True, **WEIGHTS | changed)


class Searched(DeviceUnderPolicy):
    """A device whose gate mixes many lists, and how its user searches."""

    def search(self, n, liked, **options):
        for _ in range(n):
            serp = self.agent.rank(DOCUMENTS, k=4, base=[4.0, 3.0, 2.0, 1.0], **options)
            clicks = np.flatnonzero(np.isin(serp.ranking, liked))[:1].tolist()
            self.agent.record_clicks(serp, clicks)

    def tell(self, of_all=BETTER, since=0):
        total, squares = of_all
        request = EvaluationRequest(federation="mail", credits_since=since, credit_total=total, credit_squares=squares)
        self.say(TOPICS.evaluation, request)

    @property
    def gate(self) -> Gate:
        return self.agent.gate.gate

    async def credit(self):
        """The number in the update that it sends now, which counts."""
        update = await self.update()
        self.answer(update)
        return self.open(update).tolist()[-1]


@pytest.fixture
def searching(path):
    device = Searched(path, crediting())
    device.tell()  # which has half of the lists mixed
    device.announce(1, newest=MODEL)
    return device


async def test_a_device_sends_the_credits_of_all_lists_since_the_last_update_once(searching) -> None:
    """Most of them wait for later updates, which send theirs: not these again, also after a restart."""
    searching.search(30, [3])
    await searching.credit()  # it was made as soon as there were enough lists
    assert searching.gate.credits.total > 2.0
    searching.announce(2, newest=MODEL)
    assert await searching.credit() == WEIGHT
    assert searching.store.n_waiting() > 20
    searching.restart()
    searching.tell()
    searching.announce(3, newest=MODEL)
    assert await searching.credit() == 0


async def test_a_store_that_is_put_back_from_a_copy_sends_no_credits_again(searching, path) -> None:
    """The federation's count tells it that later updates had them."""
    searching.search(30, [3])
    await searching.credit()
    copy = path.with_name("copy.sqlite")
    searching.store.close()
    shutil.copyfile(path, copy)
    searching.start()
    searching.tell()
    searching.announce(2, newest=MODEL)
    assert await searching.credit() == WEIGHT
    searching.store.close()
    shutil.copyfile(copy, path)
    searching.start()
    searching.tell()
    searching.announce(3, newest=MODEL)
    assert await searching.credit() == 0


async def test_credits_of_the_other_order_are_below_nothing(searching) -> None:
    searching.search(30, [0])
    await searching.credit()
    assert searching.gate.credits.total < -2.0
    searching.announce(2, newest=MODEL)
    assert await searching.credit() == -WEIGHT


async def test_lists_of_a_withdrawn_model_credit_nothing(searching) -> None:
    searching.search(30, [3])
    await searching.credit()
    searching.tell(since=MODEL.version + 1)
    searching.announce(2, newest=MODEL)
    assert await searching.credit() == 0


@pytest.mark.parametrize("options", [{"evaluation": False}, {}], ids=["switched off", "no mixed lists"])
async def test_who_has_nothing_to_say_sends_nothing(path, options) -> None:
    device = Searched(path, crediting(), **options)
    device.announce(1, newest=MODEL)
    device.search(30, [3], **({} if options else {"exploration": NoExploration()}))
    assert await device.credit() == 0
    device.announce(2, newest=MODEL)
    assert await device.credit() == 0
    assert device.gate.shared == Credits()


async def test_a_gate_under_a_policy_opens_by_the_credits_of_all(searching) -> None:
    """And the own clicks close it as ever."""
    assert searching.gate.shared == BETTER
    searching.search(60, [3, 0], exploration=NoExploration())
    assert searching.gate.is_open
    assert searching.gate.growth == 1.0
    searching.search(40, [])
    assert not searching.gate.is_open
    assert searching.gate.count(Source.MODEL).lists > 0


async def test_what_does_not_fit_the_policy_or_the_epoch_opens_no_gate(path) -> None:
    """A federator that announces credits which this policy's sums do not have is not believed."""
    device = Searched(path, crediting(credit_weight=0))
    device.tell()
    device.announce(1, newest=MODEL)
    assert device.gate.shared == Credits()
    following = crediting(after=device.signed)
    device.hear_policy(following)
    device.signed = following
    device.join()
    device.announce(2, newest=MODEL)
    assert device.gate.shared == BETTER
    device.sequence = sequence_of(1, 0)
    device.announce(3, newest=MODEL)
    assert device.gate.shared == Credits(), "what an earlier federator left"


def test_a_message_says_nothing_of_credits() -> None:
    """All messages under a policy are as long as each other."""
    update = learned_update(DenseDelta(dim=DIM, values=pack_vector(np.zeros(DIM))))
    said = [None, *(Evaluation(clicked=0.0, reward=0.0, base_reward=0.0, credit_total=each) for each in (-9.0, 0.5))]
    sent = [mask_update(update, 5, CREDITING, 2.0, KEY, None, each, epoch=0) for each in said]
    assert len({len(encode(each)) for each in sent}) == 1
