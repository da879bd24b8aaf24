"""A database with secure rounds that have tallies of votes, as a federator would leave it."""

from dataclasses import replace
from datetime import timedelta

from support.databases import open_migrated
from support.history_database import OPENED
from support.secure_policies import policy

from foltr.core.aggregation.vote_result import RoundEvaluation, RoundTally
from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.policies import adopt_policy
from foltr.storage.records import Batch, MembershipChange, NewModel, NewUpdate, RoundOpening
from foltr.storage.rounds import complete_round, open_round
from foltr.storage.sum_records import NewAnswer, NewSet, PolicyRecord
from foltr.storage.sums import begin_opening, begin_summing, store_answers


async def made_tallies(url: str, evaluation: RoundEvaluation | None = None) -> None:
    """Five rounds under a policy with votes; the anchor is model 0, and round 6 is open.

    Args:
        evaluation: of each round, if its policy asks for one.
    """
    at, signed, votes = OPENED + timedelta(seconds=30), policy(dim=1), RoundTally(40, 33.4, -2.25, 3.0)
    opening = RoundOpening(1, 0, 2, 40, 0.0, 60.0, OPENED, OPENED + timedelta(seconds=60), anchor_version=0)
    opening = replace(opening, policy_hash=signed.hash, clip_norm=1.0)
    async with await open_migrated(url) as db:
        await create_federation(db, "mail", 1, "linear", bytes(4), OPENED)
        epoch = await claim_federation(db, "mail", 0.0)
        await adopt_policy(db, "mail", epoch, PolicyRecord(signed.hash, 1, signed.signed, OPENED))
        await open_round(db, "mail", epoch, opening)
        await commit_batch(db, "mail", epoch, Batch(membership=[MembershipChange("a", "joined", OPENED)]))
        for number in range(1, 6):
            sent = NewUpdate(number, "a", f"a{number}", 0, 5 * number - 5, 5 * number, 5, "masked_u64", bytes(8), at)
            sent = replace(sent, ticket=b"ticket", cohort=0, position=0)
            await commit_batch(db, "mail", epoch, Batch(updates=[sent], stop_collecting=number))
            await begin_opening(db, "mail", epoch, number, [NewSet(0, 1, 1, b"\x80", bytes(32))], {})
            await store_answers(db, "mail", epoch, number, [NewAnswer(0, "first", 0, bytes(32), b"answer")])
            await begin_summing(db, "mail", epoch, number, {0: bytes(8)}, 1)
            made, following = (
                NewModel(number, bytes(4), tally=votes, evaluation=evaluation),
                replace(opening, number=number + 1),
            )
            await complete_round(db, "mail", epoch, number, made, at, replace(following, base_version=number))
