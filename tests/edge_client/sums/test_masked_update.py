"""What a device sends under a policy: its update to the integer once the masks are off, and noise without them."""

import hashlib

import numpy as np
import pytest
from support.device_under_policy import identity, learned_update, opened, unmasked
from support.secure_policies import policy

from foltr.core.numerics.compiled import plain_functions
from foltr.core.protocol.chunks import needs_chunks
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, pack_vector
from foltr.core.protocol.policies import cohort_of
from foltr.core.protocol.signed_tickets import open_ticket
from foltr.core.protocol.tickets import MAX_TICKET_BYTES
from foltr.core.protocol.updates import MAX_PROOF_BYTES, DenseDelta, PartDelta
from foltr.core.secure.norm_proof import proof_shape
from foltr.edge_client.sums.masked_update import encode_body, mask_update

DIM, CLIP_NORM = 40, 2.0
CREDENTIALS = identity()
KEY = CREDENTIALS.key


def draft(values, start=None):
    """An update as it was learned, before it is masked."""
    values = np.asarray(values, np.float32)
    if start is None:
        body = DenseDelta(dim=len(values), values=pack_vector(values))
    else:
        body = PartDelta(dim=DIM, start=start, values=pack_vector(values))
    return learned_update(body)


def sent(values, signed, clip_norm=CLIP_NORM, start=None):
    return mask_update(draft(values, start), 5, signed, clip_norm, KEY, epoch=0)


def recovered(update, signed):
    return opened(update, signed, KEY.public)


def norm_of(encoded, signed):
    power = 2 if signed.policy.noise.kind == "gaussian" else 1
    return np.linalg.norm(encoded.astype(float), power)


@pytest.mark.parametrize("gamma", [False, True], ids=["gaussian", "gamma"])
def test_without_its_masks_it_is_the_update_on_the_grid(gamma, rng):
    """Each integer is one of the two beside the number that it stands for, and none is longer than C_int."""
    signed = policy(DIM, gamma=gamma)
    bound = signed.policy.bound
    values = rng.standard_normal(DIM).astype(np.float32)
    values *= 1.5 / np.linalg.norm(values, 1 if gamma else 2)
    encoded = recovered(sent(values, signed), signed)
    assert np.abs(encoded - values.astype(float) * bound / CLIP_NORM).max() < 1.0
    assert norm_of(encoded, signed) <= bound


def test_what_is_sent_is_a_mask_to_whoever_lacks_one_seed():
    """Uniform over the field: neither the federator nor a helper sees that the update is all zeros."""
    signed = policy(4000)
    words = np.frombuffer(sent(np.zeros(4000), signed).body.values, "<u8")
    counts = np.bincount((words >> np.uint64(60)).astype(int), minlength=16)
    assert ((counts - 250) ** 2 / 250).sum() < 50, "16 bins, 4,000 words: 15 on average"
    again = np.frombuffer(sent(np.zeros(4000), signed).body.values, "<u8")
    assert not (words == again).any()


@pytest.mark.parametrize("gamma", [False, True], ids=["gaussian", "gamma"])
def test_what_is_not_finite_is_sent_as_zeros(gamma):
    """And so are zeros: the bytes are as many, and the ticket is like any other."""
    signed, zeros = policy(DIM, gamma=gamma), np.zeros(DIM - 1)
    among_huge_ones = np.r_[np.nan, np.full(DIM - 1, 1e38)]
    for values in (np.full(DIM, np.nan), np.r_[np.inf, zeros], np.r_[zeros, -np.inf], among_huge_ones, np.zeros(DIM)):
        update = sent(values, signed)
        assert not recovered(update, signed).any(), values
        assert len(update.body.values) == 8 * DIM


@pytest.mark.parametrize("gamma", [False, True], ids=["gaussian", "gamma"])
@pytest.mark.parametrize("times", [50.0, 1e30])
def test_fifty_times_the_clip_norm_is_sent_as_the_clip_norm(gamma, times, rng):
    """Shortened to it, in the same direction: nobody is in the sum with more than C_int."""
    signed = policy(DIM, gamma=gamma)
    values = rng.standard_normal(DIM)
    values *= times * CLIP_NORM / np.linalg.norm(values, 1 if gamma else 2)
    encoded = recovered(sent(values, signed), signed)
    assert 0.9 * signed.policy.bound < norm_of(encoded, signed) <= signed.policy.bound
    assert encoded @ values / np.linalg.norm(encoded) / np.linalg.norm(values) > 0.99


@pytest.mark.parametrize("proofs", [False, True])
def test_a_part_is_sent_as_all_of_the_model(proofs):
    """Zeros where nothing is shared: nothing but the policy's dimension is seen. It is proven so, too."""
    signed = policy(DIM, proofs=proofs)
    encoded = recovered(sent([1.0, -1.0], signed, start=7), signed)
    assert np.flatnonzero(encoded).tolist() == [7, 8]
    half = signed.policy.bound // 2
    assert proofs or encoded.tolist() == [0] * 7 + [half, -half] + [0] * (DIM - 9)


def test_the_share_of_the_noise_is_in_what_clients_add():
    """Where the noise is theirs: of 400 clients with zeros the sum has the variance of 400 shares."""
    signed = policy(DIM, gamma=True, n_shares=10)
    scale = signed.policy.noise.scale
    total = sum(encode_body(draft(np.zeros(DIM)).body, signed.policy, CLIP_NORM) for _ in range(400))
    expected = 400 / 10 * 2 * scale**2  # discrete Laplace of this scale, forty times
    assert 0.4 * expected < (total.astype(float) ** 2).mean() < 2.0 * expected
    helpers = policy(DIM, gamma=True)
    assert not encode_body(draft(np.zeros(DIM)).body, helpers.policy, CLIP_NORM).any()


def test_no_seed_of_the_application_decides_what_is_drawn(monkeypatch):
    """Masks, noise and rounding come from the system, whatever numpy was seeded with."""
    drawn = []

    def counting(n):
        drawn.append(n)
        return bytes([len(drawn) % 256]) * n

    monkeypatch.setattr("os.urandom", counting)
    signed = policy(DIM)
    sent(np.full(DIM, 0.01), signed)
    assert drawn.count(32) >= 3, "two masks and the rounding"
    drawn.clear()
    sent(np.full(DIM, 0.01), policy(DIM, proofs=True))
    assert drawn.count(32) >= 4, "and what hides the update in its proof"


def test_rounding_is_right_on_average():
    """A hundredth of a step is one step once in a hundred times."""
    signed = policy(DIM)
    value = 0.01 * CLIP_NORM / signed.policy.bound
    total = sum(recovered(sent(np.full(DIM, value), signed), signed).sum() for _ in range(100))
    assert 15 < total < 75, "40 on average, with a deviation of 6.3"


def test_the_ticket_names_all_that_the_update_is_for():
    """Round, cohort, policy, client, update, participation, and the digest of the vector; a seal for each helper."""
    signed = policy(DIM, cohorts=20)
    update = sent(np.zeros(DIM), signed)
    ticket = open_ticket(update.body.ticket).ticket
    assert (ticket.federation, ticket.client_id, ticket.round) == ("mail", "device-7", 3)
    assert ticket.cohort == cohort_of(signed.hash, 20, 3, "device-7")
    assert (ticket.policy_hash, ticket.update_id, ticket.participation) == (signed.hash, "a" * 32, 5)
    assert ticket.digest == hashlib.sha256(update.body.values).digest()
    assert update.body.proof == b""
    assert len(ticket.seals) == 2
    recovered(update, signed)


@pytest.mark.parametrize("gamma", [False, True], ids=["gaussian", "gamma"])
def test_whatever_was_learned_its_norm_is_proven(gamma):
    """By what is behind the vector and the same masks: verifiers take it, and the ticket is for both."""
    signed = policy(DIM, gamma=gamma, proofs=True)
    alike = [np.full(DIM, value) for value in (0.0, 0.01, 1e30, np.nan)]
    for values in (*alike, np.r_[50.0, np.zeros(DIM - 1)], np.r_[-CLIP_NORM, np.zeros(DIM - 1)]):
        update = sent(values, signed)
        assert norm_of(recovered(update, signed), signed) <= signed.policy.bound, values
        assert len(update.body.proof) == 8 * proof_shape(DIM, signed.policy.bound).n_proof
        ticket = open_ticket(update.body.ticket).ticket
        assert ticket.digest == hashlib.sha256(update.body.values + update.body.proof).digest()


def test_no_number_of_a_proof_is_sent_twice():
    """Of one update there are ever new masks, and a new proof behind them: what hides the vector in it is fresh."""
    signed = policy(DIM, proofs=True)
    shape = proof_shape(DIM, signed.policy.bound)
    updates = [sent(np.zeros(DIM), signed) for _ in range(2)]
    behind_masks = np.concatenate([np.frombuffer(each.body.proof, "<u8") for each in updates])
    assert np.unique(behind_masks).size == 2 * shape.n_proof
    one, other = (unmasked(each, signed, KEY.public)[0][DIM:] for each in updates)
    assert (one[:4] == other[:4]).all(), "the four squares, which are those of nothing"
    begin = 4 + 96
    assert (one[4:begin] != other[4:begin]).any(), "noise"
    assert (one[begin : begin + shape.n_wires] != other[begin : begin + shape.n_wires]).all(), "what wires begin with"


def test_without_numba_the_same_is_sent(monkeypatch, rng):
    """From the same random bytes a device with machine code and one without make the same message but its seals."""
    signed = policy(DIM, proofs=True)
    values = rng.standard_normal(DIM)

    def sent_from(seed):
        monkeypatch.setattr("os.urandom", np.random.default_rng(seed).bytes)
        return sent(values, signed).body

    usual = sent_from(5)
    with plain_functions():
        plain = sent_from(5)
    assert (plain.values, plain.proof) == (usual.values, usual.proof)


@pytest.mark.parametrize("proofs", [False, True])
def test_nothing_that_is_sent_tells_how_much_was_learned(proofs):
    """All else being equal the messages of two devices have the same length and the same fields but the random ones."""
    signed = policy(DIM, proofs=proofs)
    one, other = sent(np.zeros(DIM), signed), sent(np.full(DIM, 0.3), signed)
    assert one.model_copy(update={"body": None}) == other.model_copy(update={"body": None})
    assert len(encode(one, "t", 1, KEY)) == len(encode(other, "t", 1, KEY))
    assert one.n_interactions == other.n_interactions == 1


def test_what_is_sent_is_within_what_is_read():
    """A ticket of eight helpers; the largest vector in chunks; twenty thousand numbers and a proof in one message."""
    (one, *_) = policy().policy.helpers
    keys = [
        one.model_copy(
            update={
                "name": f"helper-{i}" + "x" * 50,
                "signing_key": bytes([i + 50]) * 32,
                "sealing_key": bytes([i + 90]) * 32,
                "epoch_keys": [bytes([i + 90]) * 32],
            }
        )
        for i in range(8)
    ]
    update = sent(np.zeros(DIM), policy(DIM, helpers=keys))
    assert len(update.body.ticket) <= MAX_TICKET_BYTES
    assert 8 * 2_000_000 + MAX_PROOF_BYTES + MAX_TICKET_BYTES + 1000 <= MAX_CHUNKED_BYTES
    signed = policy(20_000, proofs=True)
    update = sent(np.full(20_000, 1e-3), signed)
    assert recovered(update, signed).any()
    assert len(update.body.proof) == 8 * 513
    assert not needs_chunks(encode(update, "t", 1, KEY))
