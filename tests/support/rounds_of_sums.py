"""Rounds of secure sums as a federator stores them, from the round's opening to its model."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from foltr.core.protocol.helper_messages import TicketFault
from foltr.storage.records import Batch, NewModel, RoundOpening
from foltr.storage.rounds import complete_round
from foltr.storage.sum_records import NewAnswer, NewSet
from foltr.storage.sums import begin_opening, begin_summing, store_answers

_WORDS = b"\1" * 24
POLICY = bytes(32)


def opening(stored: Any, number: int, base: int, anchor: int | None = 0) -> RoundOpening:
    return replace(stored.opening(number, base), policy_hash=POLICY, clip_norm=1.0, anchor_version=anchor)


async def end(stored: Any, number: int, names: str, anchor: int | None = 0, left_out: str = "", **said: Any) -> None:
    """End a round with a sum of these clients, which has said this; the next one has this anchor."""
    masked = {"encoding": "masked_u64", "body": _WORDS, "n_interactions": 1, "cohort": 0}
    sent = [
        stored.update(name, f"{name}{number}", number, position=i, ticket=name.encode(), **masked)
        for i, name in enumerate(names)
    ]
    await stored.commit(Batch(updates=sent, stop_collecting=number))
    new = NewSet(0, len(names), len(names) - len(left_out), b"\xf0", bytes(32))
    model = NewModel(number, bytes([number]) * 12, **said)
    at, following = stored.opening(1).closes_at, opening(stored, number + 1, number, anchor)
    await sum_up(stored, new, _WORDS, model, at, following, dict.fromkeys(left_out, TicketFault.NOT_OPENED))


async def sum_up(
    stored: Any,
    new: NewSet,
    words: bytes,
    model: NewModel,
    at: datetime,
    following: RoundOpening,
    faults: Mapping[str, TicketFault] | None = None,
) -> None:
    """Open the sum of a round that has stopped collecting, and make its model."""
    about = stored.db, stored.name, stored.epoch, following.number - 1
    await begin_opening(*about, [new], faults or {})
    await store_answers(*about, [NewAnswer(0, "first", 0, bytes(32), b"answer")])
    await begin_summing(*about, {0: words}, 1)
    for _ in range(2):  # a federator that lost the answer does it again
        await complete_round(*about, model, at, following)
