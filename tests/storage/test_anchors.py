"""Votes are counted in SQL, and a model is restored from the anchor as a whole or not at all."""

import itertools
from collections import Counter

import numpy as np
import pytest
from support.adaptive_memory import memory_of
from support.deaths import dying_at

from foltr.core.aggregation.client_records import ClientRecords, split_records
from foltr.core.aggregation.vote_result import VoteResult, result_of_votes
from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint
from foltr.storage.erasure_records import JobCompletion, NewJob
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation
from foltr.storage.models import get_model, list_models
from foltr.storage.queries import get_round, list_events
from foltr.storage.records import Batch, MembershipChange, NewEvent, QuarantineChange
from foltr.storage.restored_records import Restoration

from .conftest import at


async def end(stored, number: int, version: int, votes: dict[str, int | None], anchor: int | None) -> None:
    """End a round, of which clients sent these votes, with a model; the next one has this anchor."""
    new = [stored.update(name, f"{name}{number}", number, vote=vote) for name, vote in votes.items()]
    await stored.commit(Batch(updates=new))
    following = stored.opening(number + 1, version, anchor_version=anchor)
    await stored.end(number, version, following, optimizer_state=b"moments %d" % version)


async def standing(stored, anchor: int, number: int, n_rounds: int = 50) -> VoteResult:
    return await stored.count_votes(anchor, number, n_rounds)


async def restore(stored, version: int = 5, anchor: int = 1, **other) -> None:
    event = NewEvent(at(60), "model_rolled_back", "4 of 6", round=5)
    following = stored.opening(6, version, anchor_version=version)
    fields = {"abandons": 5, "next_opening": following, "events": [event]}
    await stored.restore_anchor(Restoration(version, anchor, at(60), "the model was rolled back", **(fields | other)))


@pytest.fixture
async def voting(stored):
    """Clients a to e, and round 1 that is open on model 0, the anchor."""
    await stored.join(*"abcde")
    await stored.open(1, anchor_version=0)
    return stored


@pytest.fixture
async def ruined(voting):
    """Models 1 to 4 of rounds 1 to 4; the anchor is model 1 since round 2. Round 5 is open, with updates of a and b."""
    for number in range(1, 5):
        names = {1: "abc", 2: "abcd", 3: "de", 4: "ab"}[number]
        await end(voting, number, number, dict.fromkeys(names, -1), 1)
    new = [voting.update(name, f"{name}5", 5, base_version=4, vote=-1) for name in "ab"]
    await voting.commit(Batch(updates=new))
    return voting


async def test_who_is_in_quarantine_or_gone_has_no_vote(voting) -> None:
    """Nor who was forgotten, or whose enrolment is void."""
    await end(voting, 1, 1, dict.fromkeys("abcde", -1), 0)
    gone = [MembershipChange("b", "left", at(0), sequence=1), MembershipChange("c", "revoked", at(0))]
    await voting.commit(Batch(quarantines=[QuarantineChange("a", at(0), "liar")], membership=gone))
    await voting.erase("d")
    assert (await get_round(voting.db, "web", 1)).n_worse == 4
    assert await standing(voting, 0, 1) == VoteResult(1, 1, n_worse=1, n_better=0)
    await voting.commit(Batch(quarantines=[QuarantineChange("a", at(0), None)]))
    assert await standing(voting, 0, 1) == VoteResult(2, 2, n_worse=2, n_better=0)


async def test_the_count_is_that_of_the_newest_votes(voting) -> None:
    """Of a drawn history, at every round and with every memory: what the rule in Python makes of the same votes."""
    rng = np.random.default_rng(5)
    anchors, votes = {1: 0}, {}
    for number in range(1, 9):
        anchors[number + 1] = max(anchors[number], int(rng.choice([0, number])))
        here = {name: rng.choice([-1, 0, 1, None]) for name in "abcde" if rng.random() < 0.6} or {"a": None}
        votes[number] = here
        await end(voting, number, number, here, anchors[number + 1])
        for n_rounds, anchor in itertools.product((1, 3, 50), {0, anchors[number]}):
            newest, n_updates = {}, Counter()
            for past in range(max(1, number - n_rounds + 1), number + 1):
                n_updates.update(votes[past].keys())
                for name, vote in votes[past].items():
                    counts = vote is not None and anchors[past] == anchor
                    newest[name] = vote if counts else newest.get(name, 0)
            assert await standing(voting, anchor, number, n_rounds) == result_of_votes(newest, n_updates)


async def test_the_anchor_is_the_newest_model_again(ruined) -> None:
    """With its weights and its optimiser, in one transaction with the next round; done again nothing changes."""
    memory = memory_of("a", "b")
    await restore(ruined, defence_state=memory)
    newest = await ruined.latest_model()
    assert (newest.defence_state, ClientRecords.from_bytes(memory, 3).client_ids) == (memory, ("a", "b"))
    assert (newest.version, newest.base_version, newest.restored_version, newest.round) == (5, 1, 1, None)
    assert (newest.weights, newest.optimizer_state) == (bytes([1]) * 12, b"moments 1")
    taken_back = await get_round(ruined.db, "web", 5)
    assert (taken_back.state, taken_back.reason, taken_back.n_updates) == ("abandoned", "model_rolled_back", 2)
    opened, counting = await ruined.load_open_round()
    assert (opened.number, opened.base_version, opened.anchor_version, counting) == (6, 5, 5, [])
    assert [event.detail for event in await list_events(ruined.db, "web", kind="model_rolled_back")] == ["4 of 6"]
    async with ruined.unchanged():
        await restore(ruined, defence_state=memory)
    # It has no votes; those before it still do, of other anchors.
    assert await standing(ruined, 5, 6) == VoteResult(5, 11, 0, 0)
    assert await standing(ruined, 1, 6) == VoteResult(5, 11, n_worse=11, n_better=0)
    # No click is lost: what the open round had may be sent again.
    for name in "ab":
        ruined.give_back(name, f"{name}5")
    await ruined.send(*"ab", number=6, base_version=5)
    _, counting = await ruined.load_open_round()
    assert [update.client_id for update in counting] == ["a", "b"]


async def test_unlearning_passes_over_rounds_that_lead_nowhere(ruined) -> None:
    """Rounds 2 to 4 are gone through no more; the next ones are, on top of the restored model."""
    assert await ruined.list_stored_rounds(1, 9) == [1, 2, 3, 4]
    await restore(ruined)
    assert await ruined.list_stored_rounds(1, 9) == [1]
    await end(ruined, 6, 6, {"c": None}, 5)
    assert await ruined.list_stored_rounds(1, 9) == [1, 6]
    assert await ruined.first_round_on(5) == 6
    assert [(row.version, row.restored_version) for row in await ruined.restored_versions()] == [(5, 1)]


async def test_what_does_not_follow_is_refused(ruined) -> None:
    """Another version than the next one; an anchor that is not there; a writer that died in it, or was replaced."""
    async with ruined.unchanged():
        with dying_at(Failpoint.IN_RESTORATION_TRANSACTION, "storage.anchors"):
            await restore(ruined)
    for version, anchor, what in ((6, 1, "4 is the newest"), (5, 9, "model 9 of 'web' is not there")):
        async with ruined.refuses(match=what):
            await restore(ruined, version, anchor)
    await claim_federation(ruined.db, "web", 0.0)
    async with ruined.refuses(WriterFencedError):
        await restore(ruined)


async def test_of_the_anchor_what_all_did_together_is_kept(voting) -> None:
    """As long as it is the anchor; of clients the newest model has all, and nobody takes the anchor's for that."""
    memories = {version: memory_of("a", "b", n_rounds=version) for version in (1, 2, 3)}
    for number, anchor in ((1, 1), (2, 1), (3, 3)):
        await voting.send("a", number=number)
        following = voting.opening(number + 1, number, anchor_version=anchor)
        await voting.end(number, opens=following, defence_state=memories[number])
        kept = await voting.get_anchor(1)
        assert kept.defence_state == (split_records(memories[1])[0] if anchor == 1 else None)
        assert (await voting.latest_model()).defence_state == memories[number]
        assert [row.defence_state for row in await list_models(voting.db, "web")][:-1] == [None] * number


async def waits(stored, name: str) -> None:
    await stored.erase_with_key(name)
    assert [row.client_id for row in await stored.waiting_erasures()] == [name]


async def tainted(stored) -> list[int]:
    return [row.version for row in await list_models(stored.db, "web") if row.tainted_at is not None]


async def test_an_anchor_that_somebody_erased_is_in_is_none(ruined) -> None:
    """The open round names it no more, and it is not restored."""
    await ruined.erase("c")
    assert await tainted(ruined) == [1, 2, 3, 4]
    assert (await ruined.latest_round()).anchor_version is None
    assert await ruined.get_anchor(1) is None
    with pytest.raises(ProtocolViolationError, match="model 1 of 'web' is tainted: it cannot be restored"):
        await restore(ruined)


async def test_who_came_after_the_anchor_leaves_it_as_it_is(ruined) -> None:
    """What is restored from it is free of the client: unlearning starts from there."""
    await waits(ruined, "d")
    assert (await ruined.latest_round()).anchor_version == 1
    assert await tainted(ruined) == [2, 3, 4]
    await restore(ruined)
    await end(ruined, 6, 6, {"c": None}, 5)
    assert await tainted(ruined) == [2, 3, 4]
    assert (await ruined.last_clean_model(2)).version == 6


async def test_who_taught_the_dead_branch_alone_is_in_no_later_model(ruined) -> None:
    """Erased after the restoration: what leads nowhere is tainted, and will be withdrawn with the job's swap."""
    await restore(ruined)
    await end(ruined, 6, 6, {"c": None}, 5)
    await waits(ruined, "e")
    assert await tainted(ruined) == [3, 4]
    assert (await ruined.latest_round()).anchor_version == 5
    assert (await ruined.last_clean_model(3)).version == 6


async def test_who_taught_what_was_restored_is_in_all_that_follows(ruined) -> None:
    """And who taught since: unlearning begins before, never on the dead branch."""
    await restore(ruined)
    await end(ruined, 6, 6, {"e": None}, 5)
    await waits(ruined, "e")
    assert await tainted(ruined) == [3, 4, 6]
    assert (await ruined.last_clean_model(3)).version == 1
    await ruined.erase_with_key("b")
    assert await tainted(ruined) == [1, 2, 3, 4, 5, 6]
    assert (await ruined.latest_round()).anchor_version is None
    assert (await ruined.last_clean_model(1)).version == 0


JOB = NewJob(1, "relearn", 1, 3, at(101), 1, 2, 3)


async def test_a_job_that_is_open_begins_again(ruined) -> None:
    """It has gone through rounds that count no more; who waits for it, waits for the next one."""
    await waits(ruined, "d")
    await ruined.create_job(JOB)
    await restore(ruined)
    (failed,) = await ruined.list_jobs()
    assert (failed.state, failed.reason, failed.weights) == ("failed", "the model was rolled back", None)
    assert [row.client_id for row in await ruined.waiting_erasures()] == ["d"]


async def test_the_model_of_a_job_is_no_anchor_while_others_wait(ruined) -> None:
    """They may be in its steps. Of nobody else it is the anchor of the round that follows."""
    await waits(ruined, "d")
    await ruined.create_job(JOB)
    await ruined.erase_with_key("e")
    completion = JobCompletion(5, at(60), abandons=5, next_opening=ruined.opening(6, 5, anchor_version=5))
    await ruined.complete_job(1, completion, lambda *_: None)
    assert (await ruined.latest_round()).anchor_version is None
    assert (await get_model(ruined.db, "web", 5)).tainted_at is not None
