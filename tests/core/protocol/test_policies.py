"""Policies: what an operator may sign, whose turn it is, and what goes with a ticket."""

import hashlib
from collections import Counter
from itertools import pairwise

import pytest
from pydantic import ValidationError
from support.secure_policies import HELPERS

from foltr.core.errors import MessageError
from foltr.core.protocol.policies import (
    MAX_SECURE_DIM,
    GammaNoise,
    GaussianNoise,
    L2NormProof,
    Policy,
    SecureEvaluation,
    SecureVotes,
    allowance_of,
    cohort_of,
    is_turn_of,
    least_noise,
)
from foltr.core.protocol.signed_policies import issue_policy, read_policy
from foltr.core.protocol.signed_tickets import (
    issue_ticket,
    open_ticket,
    read_ticket,
    set_digest,
    ticket_hash,
    ticket_mismatch,
)
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.tickets import Ticket
from foltr.core.protocol.updates import MaskedVector
from foltr.core.secure.ledger import Charge, Spent, norm_proof_charge, participations_left

FIELDS = {
    "federation": "mail",
    "version": 1,
    "issued_at": 1000.0,
    "helpers": HELPERS,
    "noise": GaussianNoise(variance=622_754),
    "dim": 136,
    "bound": 256,
    "n_min": 100,
    "n_max": 10_000,
    "n_interactions": 5,
    "epoch_s": 10**10,
    "max_participations": 20,
    "epsilon": 8.0,
    "delta": 1e-6,
}
PROOF = L2NormProof(federator_key=bytes(32), federator_seal=bytes(80), helper_seals=[bytes(80)] * 2)
PROVEN = {"norm_proof": PROOF, "noise": GaussianNoise(variance=622_756)}
VOTING = {**PROVEN, "votes": SecureVotes(weight=64), "noise": GaussianNoise(variance=661_679)}
EVALUATING = {**VOTING, "evaluation": SecureEvaluation(weight=32), "noise": GaussianNoise(variance=690_870)}
LONGEST = {"dim": MAX_SECURE_DIM - 1, "bound": 1300, "noise": GaussianNoise(variance=10**9)}
KEY, DEVICE = SigningKey(bytes(range(32))), SigningKey(bytes(range(1, 33)))


def refusal(**changed) -> str:
    with pytest.raises(ValidationError) as caught:
        Policy(**{**FIELDS, **changed})
    return str(caught.value)


def test_a_policy_with_too_little_noise_is_none():
    """One unit less is refused. C^2 / (2 sigma^2) for one participation, or C / s: k of them, and no more."""
    assert least_noise(Policy(**FIELDS)) == 622_754
    assert "needs 622754" in refusal(noise=GaussianNoise(variance=622_753))
    assert "needs 640" in refusal(noise=GammaNoise(scale=639))
    assert Policy(**{**FIELDS, "noise": GammaNoise(scale=640)})
    assert "needs" in refusal(max_participations=21)
    assert "needs" in refusal(epsilon=7.9)
    assert "needs" in refusal(delta=1e-7)
    assert "needs" in refusal(bound=257)
    assert least_noise(Policy(**{**FIELDS, **PROVEN})) == 622_756
    assert "needs 622756" in refusal(norm_proof=PROOF, noise=GaussianNoise(variance=622_755))
    assert "needs 641" in refusal(norm_proof=PROOF, noise=GammaNoise(scale=640))
    assert Policy(**{**FIELDS, "norm_proof": PROOF, "noise": GammaNoise(scale=641)})
    allowed = allowance_of(Policy(**FIELDS))
    assert (allowed.participations, allowed.epsilon, allowed.delta) == (20, 8.0, 1e-6)
    assert allowed.charge == Charge(256**2 / (2 * 622_754), None)
    assert allowance_of(Policy(**{**FIELDS, "noise": GammaNoise(scale=640)})).charge == Charge(0.4**2 / 2, 0.4)
    assert participations_left(Spent(), allowed) == 20


@pytest.mark.parametrize("noise", [GaussianNoise(variance=622_756), GammaNoise(scale=641)], ids=lambda one: one.kind)
def test_a_policy_with_norm_proofs_charges_them(noise):
    """Beside the noise, whose charge is as ever; and k participations are still what it was made for."""
    proven = allowance_of(Policy(**{**FIELDS, "norm_proof": PROOF, "noise": noise}))
    bare = allowance_of(Policy(**{**FIELDS, "noise": noise}))
    assert proven.charge == bare.charge + norm_proof_charge(256)
    assert (proven.is_pure, bare.is_pure) == (False, noise.kind == "gamma")
    assert participations_left(Spent(), proven) == 20


@pytest.mark.parametrize(
    ("asking", "least", "squared"),
    [(VOTING, 661_679, 256**2 + 64**2), (EVALUATING, 690_870, 256**2 + 64**2 + 3 * 32**2)],
    ids=["votes", "evaluations"],
)
def test_votes_and_evaluations_need_more_noise_and_are_charged(asking, least, squared):
    """(C^2 + v^2 + 3 u^2) / (2 sigma^2) beside the proofs; k participations are still what it was made for."""
    assert least_noise(Policy(**{**FIELDS, **asking})) == least
    assert pytest.approx(squared / 256**2, rel=1e-5) == least / 622_756
    assert f"needs {least}" in refusal(**{**asking, "noise": GaussianNoise(variance=least - 1)})
    assert "needs" in refusal(**{**asking, "votes": SecureVotes(weight=65)})
    allowed = allowance_of(Policy(**{**FIELDS, **asking}))
    assert allowed.charge == Charge(squared / (2 * least), None) + norm_proof_charge(256)
    assert participations_left(Spent(), allowed) == 20
    assert allowed.charge.times(20).epsilon_at(1e-6) == pytest.approx(8.0, abs=1e-4)


def test_a_sum_has_more_numbers_where_clients_vote_or_evaluate():
    """Of the update, worse, better, and three of lists; no proven message is longer than all of these."""
    plain, voting = Policy(**{**FIELDS, **PROVEN}), Policy(**{**FIELDS, **VOTING})
    assert (plain.n_summed, plain.vote_weight, plain.longest_message) == (136, 0, 256)
    assert (voting.n_summed, voting.vote_weight, voting.longest_message) == (138, 64, 272)
    assert voting.longest_message**2 >= 256**2 + 2 * 64**2 > (voting.longest_message - 1) ** 2
    both, alone = Policy(**{**FIELDS, **EVALUATING}), Policy(**{**FIELDS, **EVALUATING, "votes": None})
    assert (both.n_summed, both.evaluation_weight) == (141, 32)
    assert (alone.n_summed, alone.vote_weight) == (139, 0)
    for made, squared in ((both, 256**2 + 2 * 64**2 + 3 * 32**2), (alone, 256**2 + 3 * 32**2)):
        assert made.longest_message**2 >= squared > (made.longest_message - 1) ** 2
    assert both.message_shape.weights == (64, 64, 32, 32, 32)


def test_votes_and_evaluations_that_cannot_be_protected_are_refused():
    """The error says what to choose instead; evaluations are tried without votes, too; a sum must fit a message."""
    alone = {**EVALUATING, "votes": None}
    much = GaussianNoise(variance=10**7)
    for promised, changed, words in [
        (VOTING, {"noise": GammaNoise(scale=700)}, "choose --mechanism gaussian, or --no-votes"),
        (VOTING, {"norm_proof": None}, "choose --norm-proof l2, or --no-votes"),
        (VOTING, {"votes": SecureVotes(weight=257), "noise": much}, "257 is above the bound .256"),
        (alone, {"noise": GammaNoise(scale=700)}, "choose --mechanism gaussian, or --no-evaluation"),
        (alone, {"norm_proof": None}, "choose --norm-proof l2, or --no-evaluation"),
        (alone, {"evaluation": SecureEvaluation(weight=257), "noise": much}, "257 is above the"),
        (alone, LONGEST | {"dim": MAX_SECURE_DIM - 2}, "or --no-evaluation"),
    ]:
        with pytest.raises(ValidationError, match=words):
            Policy(**{**FIELDS, **promised, **changed})
    assert "choose a smaller --dim, or --no-votes" in refusal(**{**VOTING, **LONGEST})
    assert Policy(**{**FIELDS, **VOTING, **LONGEST, "votes": None}).n_summed == MAX_SECURE_DIM - 1
    fits = Policy(**{**FIELDS, **VOTING, **LONGEST, "dim": MAX_SECURE_DIM - 2})
    assert MaskedVector(dim=fits.n_summed, values=bytes(8 * fits.n_summed), ticket=b"x").dim == MAX_SECURE_DIM


def test_norm_proofs_that_cannot_be_kept_are_refused():
    """Each error says what to choose; one helper, helpers that are one, cohorts nobody opens, sums that wrap around."""
    for changed, words in [
        ({"noise": GammaNoise(scale=641, n_shares=90)}, "choose --noise-by helpers, or --norm-proof none"),
        ({"norm_proof": PROOF.model_copy(update={"helper_seals": [bytes(80)] * 3})}, "3 sealed verify keys for 2"),
        ({"epsilon": 0.01, "noise": GaussianNoise(variance=10**12)}, "a proof costs rho 4.6e-08"),
        ({"delta": 3e-11, "noise": GaussianNoise(variance=10**12)}, "choose a larger delta"),
        ({"dim": 474_526, "bound": 2756, "noise": GaussianNoise(variance=10**12)}, "too long for the masks"),
    ]:
        assert words in refusal(**{**PROVEN, **changed}), (changed, words)
    assert "helpers" in refusal(helpers=HELPERS[:1])
    assert "same name or key" in refusal(helpers=[HELPERS[0], HELPERS[0]])
    same = HELPERS[1].model_copy(update={"sealing_key": HELPERS[0].sealing_key})
    assert "same name or key" in refusal(helpers=[HELPERS[0], same])
    assert "below n_min" in refusal(n_max=99)
    assert "n_shares (101) is above n_min" in refusal(noise=GammaNoise(scale=641, n_shares=101))
    assert "above n_min" in refusal(noise=GammaNoise(scale=640, n_shares=101))
    longest = {"bound": 2**31 - 1, "noise": GammaNoise(scale=2**28), "max_participations": 1}
    assert Policy(**{**FIELDS, **longest})
    assert "62 bits" in refusal(**longest, n_max=2**31 - 1)
    assert "draw noise of a scale up to" in _gamma_refusal(scale=2**17, n_shares=2)
    assert "--shares 2 or more, or --noise-by helpers" in _gamma_refusal(scale=640, n_shares=1)


def _gamma_refusal(**fields) -> str:
    with pytest.raises(ValidationError) as caught:
        GammaNoise(**fields)
    return str(caught.value)


def test_a_policy_is_read_from_its_operator_only():
    """Signed by another key or for another federation it is refused; its hash is that of the signed bytes."""
    issued = issue_policy(KEY, Policy(**FIELDS))
    assert read_policy(issued.signed, KEY.public, "mail") == issued
    assert issued.hash == hashlib.sha256(issued.signed).digest()
    with pytest.raises(MessageError, match="not signed"):
        read_policy(issued.signed, DEVICE.public, "mail")
    with pytest.raises(MessageError, match="not signed"):
        read_policy(issued.signed, KEY.public, "search")
    for changed in (PROVEN, VOTING, EVALUATING, {**EVALUATING, "votes": None}):
        made = Policy(**{**FIELDS, **changed})
        assert read_policy(issue_policy(KEY, made).signed, KEY.public, "mail").policy == made


def test_every_client_has_one_turn_in_a_period():
    """One of the rounds of a period is a client's; who is with whom changes with the round and with the policy."""
    for client_id in ("device-1", "device-2", "device-3"):
        turns = [number for number in range(1, 41) if is_turn_of(bytes(32), 4, number, client_id)]
        assert len(turns) == 10
        assert {later - sooner for sooner, later in pairwise(turns)} == {4}
    assert all(is_turn_of(bytes(32), 1, number, "device-1") for number in range(1, 10))
    clients = [f"device-{i}" for i in range(2000)]
    sizes = Counter(cohort_of(bytes(32), 20, 1, client_id) for client_id in clients)
    assert set(sizes) == set(range(20))
    assert max(sizes.values()) < 150
    first, second, other = (
        [cohort_of(policy_hash, 20, number, client_id) for client_id in clients]
        for policy_hash, number in ((bytes(32), 1), (bytes(32), 2), (b"\x01" * 32, 1))
    )
    for drawn in (second, other):
        assert sum(a == b for a, b in zip(first, drawn, strict=True)) < 200


def ticket(policy, **changed) -> Ticket:
    fields = {
        "federation": "mail",
        "client_id": "device-7",
        "round": 4,
        "cohort": 0,
        "policy_hash": policy.hash,
        "update_id": "0123456789abcdef" * 2,
        "participation": 1,
        "digest": bytes(32),
        "seals": [bytes(80), bytes(80)],
    }
    return Ticket(**{**fields, **changed})


def test_a_ticket_is_its_clients():
    """It is read with its client's key; another key, or another name, is refused."""
    policy = issue_policy(KEY, Policy(**FIELDS))
    signed = issue_ticket(DEVICE, ticket(policy))
    assert read_ticket(signed, DEVICE.public, "mail", "device-7") == ticket(policy)
    assert open_ticket(signed).ticket == ticket(policy)
    assert open_ticket(signed).is_signed_by(DEVICE.public)
    with pytest.raises(MessageError, match="not signed by its client"):
        read_ticket(signed, KEY.public, "mail", "device-7")
    with pytest.raises(MessageError, match="another client's"):
        read_ticket(signed, DEVICE.public, "mail", "device-8")


def test_a_ticket_that_was_moved_is_found():
    """Another policy, round, cohort or helpers, a participation too many. A set is named by its tickets in order."""
    for changed, words in [
        ({"policy_hash": bytes(32)}, "another policy"),
        ({"round": 5}, "of round 5"),
        ({"cohort": 1}, "of cohort 1"),
        ({"seals": [bytes(80)] * 3}, "3 seals for 2"),
        ({"participation": 21}, "participation 21 of 20"),
    ]:
        policy = issue_policy(KEY, Policy(**FIELDS))
        assert ticket_mismatch(ticket(policy), policy, 4) is None, (changed, words)
        assert words in ticket_mismatch(ticket(policy, **changed), policy, 4), (changed, words)
    named = {set_digest(map(ticket_hash, each)) for each in ([b"a", b"b"], [b"b", b"a"], [b"a"], [b"ab"], [])}
    assert len(named) == 5
