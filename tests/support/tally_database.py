"""A database with secure rounds that have tallies of votes, as a federator would leave it."""

from dataclasses import replace
from datetime import timedelta

from support.databases import open_migrated
from support.history_database import OPENED
from support.rounds_of_sums import sum_up
from support.secure_policies import policy
from support.stored_rounds import founded

from foltr.core.aggregation.vote_result import RoundEvaluation, RoundTally
from foltr.storage.policies import adopt_policy
from foltr.storage.records import NewModel, RoundOpening
from foltr.storage.sum_records import NewSet, PolicyRecord


async def made_tallies(url: str, evaluation: RoundEvaluation | None = None) -> None:
    """Five rounds under a policy with votes; the anchor is model 0, and round 6 is open.

    Args:
        evaluation: of each round, if its policy asks for one.
    """
    at, signed, votes = OPENED + timedelta(seconds=30), policy(dim=1), RoundTally(40, 33.4, -2.25, 3.0)
    secure = {"anchor_version": 0, "policy_hash": signed.hash, "clip_norm": 1.0}
    opening = RoundOpening(1, 0, 2, 40, 0.0, 60.0, OPENED, OPENED + timedelta(seconds=60), **secure)
    masked = {"encoding": "masked_u64", "body": bytes(8), "ticket": b"ticket", "cohort": 0, "position": 0}
    async with await open_migrated(url) as db:
        stored = await founded(db, "mail", opening)
        await adopt_policy(db, "mail", stored.epoch, PolicyRecord(signed.hash, 1, signed.signed, OPENED))
        await stored.open()
        await stored.join("a")
        for number in range(1, 6):
            await stored.commit(updates=[stored.update("a", at, **masked)], stop_collecting=number)
            model = NewModel(number, bytes(4), tally=votes, evaluation=evaluation)
            stored.opening = replace(opening, number=number + 1, base_version=number)
            await sum_up(stored, NewSet(0, 1, 1, b"\x80", bytes(32)), bytes(8), model, at, stored.opening)
