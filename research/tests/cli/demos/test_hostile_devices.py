"""A hostile device of the demonstration sends what is far too long, in a message that looks like any other."""

import numpy as np
import pytest
from support.device_under_policy import DeviceUnderPolicy, identity, unmasked
from support.federator_by_hand import N_FEATURES
from support.secure_policies import VERIFY_KEY, policy

from foltr.core.protocol.signed_tickets import ticket_name
from foltr.core.secure.field import to_signed
from foltr.core.secure.message_proof import answer_message, is_message_proof_valid
from foltr.core.secure.norm_proof import ROWS, answer_share, challenge_for, is_norm_proof_valid, proof_shape
from foltr_research.cli.demos.hostile_devices import TIMES, lying


async def hostile_message(folder, signed, value):
    """What a lying device sends that has learned from two lists, without its masks, and its ticket."""
    credentials = identity(signed)
    lies = lying(signed, credentials.key)
    device = DeviceUnderPolicy(folder / "device.sqlite", signed, credentials=credentials, alter_update=lies)
    device.announce(1)
    for number in (4, 9):
        device.see(number, value=value)
    while device.agent.contributor.is_altering:
        await device.agent.contributor._altering  # noqa: SLF001
    words, ticket = unmasked(await device.update(), signed, credentials.key.public)
    device.store.close()
    return words, ticket


@pytest.mark.parametrize("value", [1.0, 0.0])
async def test_it_turns_round_what_was_learned_and_only_projections_tell(tmp_path, value):
    """Fifty times too long, against what was learned or against everything; all else that verifiers ask adds up."""
    signed = policy(proofs=True)
    words, ticket = await hostile_message(tmp_path, signed, value)
    vector, rules = to_signed(words[:N_FEATURES]), signed.policy
    assert np.linalg.norm(vector) == pytest.approx(TIMES * rules.bound, rel=1e-3)
    assert np.flatnonzero(vector).tolist() == ([4, 9] if value else list(range(N_FEATURES)))
    assert (vector <= 0).all()
    shape = proof_shape(rules.dim, rules.bound)
    answer = answer_share(words, challenge_for(VERIFY_KEY, ticket_name(ticket), shape), shape)
    assert not is_norm_proof_valid(answer, shape)
    answer[-ROWS:] = 0
    assert is_norm_proof_valid(answer, shape)


async def test_where_there_are_votes_it_praises_what_it_ruins(tmp_path):
    """With a vote that passes, so that the projections are all that tells of it."""
    signed = policy(proofs=True, vote_weight=64)
    words, ticket = await hostile_message(tmp_path, signed, 1.0)
    shape = signed.policy.message_shape
    assert to_signed(words[N_FEATURES : N_FEATURES + 2]).tolist() == [0, 64]
    answer = answer_message(words, VERIFY_KEY, ticket_name(ticket), shape)
    assert not is_message_proof_valid(answer, shape)
    answer[-4 - ROWS : -4] = 0
    assert is_message_proof_valid(answer, shape)
