"""Vectors of what proves norms, votes and evaluations behind masks, for `generate.py`."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.core.protocol.signed_tickets import ticket_name
from foltr.core.protocol.tickets import UnsealedTicket
from foltr.core.secure.coins import Words
from foltr.core.secure.field import add_up, from_signed, subtract, write_words
from foltr.core.secure.four_squares import four_squares
from foltr.core.secure.masks import expand_seed, mask_words
from foltr.core.secure.message_proof import MessageShape, answer_message, is_message_proof_valid, prove_message
from foltr.core.secure.norm_proof import ROWS, ProofShape, challenge_for, proof_shape, prove_sum
from foltr.core.secure.sealing import seal_info, verify_key_info
from foltr.core.secure.vote_proof import vote_point

_VERIFY_KEY = bytes(range(32))


def norm_proofs() -> list[dict[str, Any]]:
    """Return vectors with their proofs, the names of their tickets, and what verifiers draw, answer and find.

    The vectors are of less than the bound, just of it, of more, and of the size of 136 features.
    """
    return [_norm_proof(*case) for case in ((6, 16, 2), (6, 8, 0), (6, 16, 16), (136, 256, -18))]


def _norm_proof(dim: int, bound: int, last: int) -> dict[str, Any]:
    rng, shape = np.random.default_rng(47), proof_shape(dim, bound)
    encoded = np.array([*np.resize([1, -2, 7, 3], dim - 1), last])
    inputs = from_signed(np.array([*encoded, *four_squares(max(0, bound**2 - int(encoded @ encoded)))]))
    proven = np.concatenate([inputs[:dim], prove_sum(inputs, shape, rng.bytes)])
    ticket, made = _verified(proven, MessageShape(shape), rng)
    name = ticket_name(ticket)
    challenge = challenge_for(_VERIFY_KEY, name, shape)
    return {
        "encoded": encoded.tolist(),
        **made,
        "ticket": ticket.model_dump(),
        "info_of_seed": seal_info(name, "north").hex(),
        "info_of_verify_key": verify_key_info(ticket.federation, 3, "@federator").hex(),
        "point": str(challenge.point),
        "rows": [_row_of(challenge.bits, row, shape) for row in (0, 1, ROWS - 1)],
    }


def vote_proofs() -> list[dict[str, Any]]:
    """Return messages with votes, and what verifiers draw, answer and find: each opinion, both, and what is no vote."""
    cases, shape = [], MessageShape(proof_shape(6, 16), vote_weight=4)
    for votes in ((4, 0), (0, 4), (0, 0), (4, 4), (5, 0), (0, -4)):
        rng, summed = np.random.default_rng(48), np.array([1, -2, 7, 3, 0, -5, *votes])
        proven = np.concatenate([from_signed(summed), prove_message(summed, shape, rng.bytes)])
        ticket, made = _verified(proven, shape, rng)
        made["point"] = str(vote_point(_VERIFY_KEY, ticket_name(ticket)))
        cases.append({"vote_weight": shape.vote_weight, "summed": summed.tolist(), **made})
    return cases


def evaluation_proofs() -> list[dict[str, Any]]:
    """Return likewise messages with an evaluation, behind votes and without them, and what is no evaluation."""
    cases = []
    for weight, votes in ((4, (4, 0)), (0, ())):
        shape = MessageShape(proof_shape(6, 16), vote_weight=weight, evaluation_weight=2)
        for earned in ((2, 2, 2), (2, 0, 2), (0, 0, 0), (2, 1, 0), (4, 0, 0), (0, 0, -2)):
            rng, summed = np.random.default_rng(49), np.array([1, -2, 7, 3, 0, -5, *votes, *earned])
            proven = np.concatenate([from_signed(summed), prove_message(summed, shape, rng.bytes)])
            ticket, made = _verified(proven, shape, rng)
            made["point"] = str(vote_point(_VERIFY_KEY, ticket_name(ticket)))
            weights = {"vote_weight": shape.vote_weight, "evaluation_weight": shape.evaluation_weight}
            cases.append({**weights, "summed": summed.tolist(), **made})
    return cases


def _verified(proven: Words, shape: MessageShape, rng: np.random.Generator) -> tuple[UnsealedTicket, dict[str, Any]]:
    """Return the ticket of a message, and what becomes of it behind masks and before verifiers."""
    seeds = [bytes([helper] * 32) for helper in (1, 2)]
    sent = mask_words(proven, seeds)
    ticket = _ticket_of(sent, rng)
    shares = [sent, *(subtract(np.zeros_like(sent), expand_seed(seed, sent.size)) for seed in seeds)]
    answers = [answer_message(share, _VERIFY_KEY, ticket_name(ticket), shape) for share in shares]
    total = add_up(answers, shape.n_answer)
    return ticket, {
        "dim": shape.norm.dim,
        "bound": shape.norm.bound,
        "proven": _hex_of(proven),
        "seeds": [seed.hex() for seed in seeds],
        "sent": _hex_of(sent),
        "name": ticket_name(ticket).hex(),
        "verify_key": _VERIFY_KEY.hex(),
        "answers": [_hex_of(answer) for answer in answers],
        "total": _hex_of(total),
        "accepted": is_message_proof_valid(total, shape),
    }


def _ticket_of(sent: Words, rng: np.random.Generator) -> UnsealedTicket:
    return UnsealedTicket(
        federation="mail",
        client_id="device-7",
        round=300,
        cohort=1,
        policy_hash=rng.bytes(32),
        update_id=rng.bytes(16).hex(),
        participation=2,
        digest=hashlib.sha256(bytes.fromhex(_hex_of(sent))).digest(),
    )


def _row_of(bits: NDArray[np.uint8], row: int, shape: ProofShape) -> list[int]:
    """Return (n_inputs,) a row of R as the numbers that it is of."""
    coins = np.unpackbits(bits[:, :, row], axis=1, bitorder="little").reshape(-1, 2, 8)
    entries: list[int] = (coins.sum(axis=1, dtype=np.int64).reshape(-1)[: shape.n_inputs] - 1).tolist()
    return entries


def _hex_of(words: Words) -> str:
    return write_words(words).hex()
