"""A database with rounds whose updates say what their lists earned, as a federator would leave it."""

from datetime import timedelta

from support.databases import open_migrated
from support.history_database import OPENED
from support.stored_rounds import founded

from foltr.core.protocol.evaluations import Evaluation
from foltr.storage.records import RoundOpening

REWARDS = {1: None, 2: 0.5, 3: 0.7, 4: 0.25}


async def made_evaluations(url: str) -> None:
    """Four rounds of clients a and b, who vote, too; the first says nothing, and round 5 is open."""
    at = OPENED + timedelta(seconds=30)
    opening = RoundOpening(1, 0, 2, 10, 0.0, 60.0, OPENED, OPENED + timedelta(seconds=60), anchor_version=0)
    async with await open_migrated(url) as db:
        stored = await founded(db, "mail", opening)
        await stored.open()
        await stored.join(*"ab")
        for reward in REWARDS.values():
            told = None if reward is None else Evaluation(clicked=0.75, reward=reward, base_reward=0.375)
            await stored.commit(updates=[stored.update(name, at, vote=0, evaluation=told) for name in "ab"])
            await stored.complete(at)
