"""A database with rounds whose updates say what their lists earned, as a federator would leave it."""

from dataclasses import replace
from datetime import timedelta

from support.databases import open_migrated
from support.history_database import OPENED

from foltr.core.protocol.evaluations import Evaluation
from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.records import Batch, MembershipChange, NewModel, NewUpdate, RoundOpening
from foltr.storage.rounds import begin_aggregation, complete_round, open_round

REWARDS = {1: None, 2: 0.5, 3: 0.7, 4: 0.25}


async def made_evaluations(url: str) -> None:
    """Four rounds of clients a and b, who vote, too; the first says nothing, and round 5 is open."""
    at = OPENED + timedelta(seconds=30)
    opening = RoundOpening(1, 0, 2, 10, 0.0, 60.0, OPENED, OPENED + timedelta(seconds=60), anchor_version=0)
    async with await open_migrated(url) as db:
        await create_federation(db, "mail", 1, "linear", bytes(4), OPENED)
        epoch = await claim_federation(db, "mail", 0.0)
        await open_round(db, "mail", epoch, opening)
        joined = [MembershipChange(name, "joined", OPENED) for name in "ab"]
        await commit_batch(db, "mail", epoch, Batch(membership=joined))
        for number, reward in REWARDS.items():
            told = None if reward is None else Evaluation(clicked=0.75, reward=reward, base_reward=0.375)
            covers = 5 * number - 5, 5 * number
            sent = [
                NewUpdate(number, name, f"{name}{number}", 0, *covers, 5, "dense_f32", bytes(4), at, vote=0)
                for name in "ab"
            ]
            sent = [replace(each, evaluation=told) for each in sent]
            await commit_batch(db, "mail", epoch, Batch(updates=sent))
            await begin_aggregation(db, "mail", epoch, number)
            following = replace(opening, number=number + 1, base_version=number)
            await complete_round(db, "mail", epoch, number, NewModel(number, bytes(4)), at, following)
