"""Votes are counted in SQL, and a model is restored from the anchor as a whole or not at all."""

import itertools
from collections import Counter
from dataclasses import replace
from datetime import datetime

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
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewModel, QuarantineChange
from foltr.storage.restored_records import Restoration


def opening(stored, number: int, base: int, anchor: int | None):
    return replace(stored.opening(number, base), anchor_version=anchor)


async def end(stored, number: int, version: int, votes: dict[str, int | None], anchor: int | None) -> None:
    """End a round, of which clients sent these votes, with a model; the next one has this anchor."""
    new = [stored.update(name, f"{name}{number}", number, vote=vote) for name, vote in votes.items()]
    await stored.commit(Batch(updates=new))
    await stored.begin_aggregation(number)
    model = NewModel(version, bytes([version]) * 12, b"moments %d" % version)
    following = opening(stored, number + 1, version, anchor)
    await stored.complete_round(number, model, stored.at(60), following)


async def standing(stored, anchor: int, number: int, n_rounds: int = 50) -> VoteResult:
    return await stored.count_votes(anchor, number, n_rounds)


def restoration(stored, version: int, anchor: int, number: int, **other) -> Restoration:
    """Of model ``version`` from the anchor; the round ``number`` is open."""
    at = stored.at(60)
    event = NewEvent(at, "model_rolled_back", "4 of 6", round=number)
    following = opening(stored, number + 1, version, version)
    fields = {"abandons": number, "next_opening": following, "events": [event]}
    return Restoration(version, anchor, at, "the model was rolled back", **(fields | other))


async def restore(stored, *args, **other) -> None:
    await stored.restore_anchor(restoration(stored, *args, **other))


@pytest.fixture
async def voting(stored):
    """Clients a to e, and round 1 that is open on model 0, the anchor."""
    await stored.join(*"abcde")
    await stored.open_round(opening(stored, 1, 0, 0))
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


async def test_of_each_client_its_newest_vote_counts(voting) -> None:
    """Who did not vote has no opinion, and does not lose the one it had; the round that ends now counts, too."""
    await end(voting, 1, 1, {"a": -1, "b": 1, "c": None, "d": -1}, 0)
    await end(voting, 2, 2, {"a": 1, "b": None, "d": 0}, 0)
    assert await standing(voting, 0, 2) == VoteResult(4, 7, n_worse=0, n_better=4)
    await voting.commit(Batch(updates=[voting.update("e", "e3", 3, vote=-1), voting.update("c", "c3", 3, vote=-1)]))
    assert await standing(voting, 0, 2) == VoteResult(4, 7, n_worse=0, n_better=4)
    assert await standing(voting, 0, 3) == VoteResult(5, 9, n_worse=3, n_better=4)
    row = await get_round(voting.db, "web", 1)
    assert (row.anchor_version, row.n_worse, row.n_none, row.n_better) == (0, 2, 0, 1)


async def test_a_vote_is_about_one_anchor_and_grows_old(voting) -> None:
    """On another anchor nobody has an opinion yet; whoever has not come in so many rounds is no voter."""
    await end(voting, 1, 1, dict.fromkeys("abcde", -1), 1)
    await end(voting, 2, 2, {"a": 1}, 1)
    assert await standing(voting, 1, 3) == VoteResult(5, 6, n_worse=0, n_better=2)
    assert await standing(voting, 0, 3) == VoteResult(5, 6, n_worse=6, n_better=0)
    assert await standing(voting, 1, 2, n_rounds=1) == VoteResult(1, 1, n_worse=0, n_better=1)


async def test_who_is_in_quarantine_or_gone_has_no_vote(voting) -> None:
    """Nor who was forgotten, or whose enrolment is void."""
    await end(voting, 1, 1, dict.fromkeys("abcde", -1), 0)
    at = voting.at(0)
    gone = [MembershipChange("b", "left", at, sequence=1), MembershipChange("c", "revoked", at)]
    await voting.commit(Batch(quarantines=[QuarantineChange("a", at, "liar")], membership=gone))
    await voting.erase("d")
    assert await standing(voting, 0, 1) == VoteResult(1, 1, n_worse=1, n_better=0)
    await voting.commit(Batch(quarantines=[QuarantineChange("a", at, None)]))
    assert await standing(voting, 0, 1) == VoteResult(2, 2, n_worse=2, n_better=0)


async def test_a_round_that_was_taken_back_has_no_votes(ruined) -> None:
    """Its updates count no more; those before it still do, of other anchors."""
    await restore(ruined, 5, 1, 5)
    assert await standing(ruined, 5, 6) == VoteResult(5, 11, 0, 0)
    assert await standing(ruined, 1, 6) == VoteResult(5, 11, n_worse=11, n_better=0)


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
    await restore(ruined, 5, 1, 5)
    newest = await ruined.latest_model()
    assert (newest.version, newest.base_version, newest.restored_version, newest.round) == (5, 1, 1, None)
    assert (newest.weights, newest.optimizer_state) == (bytes([1]) * 12, b"moments 1")
    taken_back = await get_round(ruined.db, "web", 5)
    assert (taken_back.state, taken_back.reason, taken_back.n_updates) == ("abandoned", "model_rolled_back", 2)
    opened, counting = await ruined.load_open_round()
    assert (opened.number, opened.base_version, opened.anchor_version, counting) == (6, 5, 5, [])
    assert [event.detail for event in await list_events(ruined.db, "web", kind="model_rolled_back")] == ["4 of 6"]
    before = await ruined.dump()
    await restore(ruined, 5, 1, 5)
    assert await ruined.dump() == before


async def test_what_the_open_round_had_may_be_sent_again(ruined) -> None:
    """No click is lost: the watermarks are where they were before it."""
    await restore(ruined, 5, 1, 5)
    for name in "ab":
        ruined.take_back(name, f"{name}5")
    await ruined.commit(Batch(updates=[ruined.update(name, f"{name}6", 6, base_version=5) for name in "ab"]))
    _, counting = await ruined.load_open_round()
    assert [update.client_id for update in counting] == ["a", "b"]


async def test_unlearning_passes_over_rounds_that_lead_nowhere(ruined) -> None:
    """Rounds 2 to 4 are gone through no more; the next ones are, on top of the restored model."""
    assert await ruined.list_stored_rounds(1, 9) == [1, 2, 3, 4]
    await restore(ruined, 5, 1, 5)
    assert await ruined.list_stored_rounds(1, 9) == [1]
    await end(ruined, 6, 6, {"c": None}, 5)
    assert await ruined.list_stored_rounds(1, 9) == [1, 6]
    assert await ruined.first_round_on(5) == 6
    assert [(row.version, row.restored_version) for row in await ruined.restored_versions()] == [(5, 1)]


async def test_a_death_within_it_leaves_all_as_it_was(ruined) -> None:
    """Before the commit nothing of it is there."""
    before = await ruined.dump()
    with dying_at(Failpoint.IN_RESTORATION_TRANSACTION, "storage.anchors"):
        await restore(ruined, 5, 1, 5)
    assert await ruined.dump() == before


async def test_a_replaced_writer_takes_nothing_back(ruined) -> None:
    """Another federator has claimed the federation since."""
    await claim_federation(ruined.db, "web", 0.0)
    with pytest.raises(WriterFencedError):
        await restore(ruined, 5, 1, 5)


async def test_what_does_not_follow_is_refused(ruined) -> None:
    """Another version than the next one; an anchor that is not there."""
    before = await ruined.dump()
    for version, anchor, what in ((6, 1, "4 is the newest"), (5, 9, "model 9 of 'web' is not there")):
        with pytest.raises(ProtocolViolationError, match=what):
            await restore(ruined, version, anchor, 5)
    assert await ruined.dump() == before


async def test_of_the_anchor_what_all_did_together_is_kept(voting) -> None:
    """As long as it is the anchor; of clients the newest model has all, and nobody takes the anchor's for that."""
    await voting.commit(Batch(updates=[voting.update("a")]))
    memories = {version: memory_of("a", "b", n_rounds=version) for version in (1, 2, 3)}
    for number, anchor in ((1, 1), (2, 1), (3, 3)):
        if number > 1:
            await voting.commit(Batch(updates=[voting.update("a", f"a{number}", number)]))
        await voting.begin_aggregation(number)
        model = NewModel(number, bytes(12), None, memories[number])
        following = opening(voting, number + 1, number, anchor)
        await voting.complete_round(number, model, voting.at(60), following)
        kept = await voting.get_anchor(1)
        assert kept.defence_state == (split_records(memories[1])[0] if anchor == 1 else None)
        assert (await voting.latest_model()).defence_state == memories[number]
        assert [row.defence_state for row in await list_models(voting.db, "web")][:-1] == [None] * number


async def test_what_a_restored_model_remembers_is_the_newest_memory(ruined) -> None:
    """The records of clients stay; there is one row for each."""
    memory = memory_of("a", "b")
    await restore(ruined, 5, 1, 5, defence_state=memory)
    assert (await ruined.latest_model()).defence_state == memory
    assert ClientRecords.from_bytes(memory, 3).client_ids == ("a", "b")


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
        await restore(ruined, 5, 1, 5)


async def test_who_came_after_the_anchor_leaves_it_as_it_is(ruined) -> None:
    """What is restored from it is free of the client: unlearning starts from there."""
    await waits(ruined, "d")
    assert (await ruined.latest_round()).anchor_version == 1
    assert await tainted(ruined) == [2, 3, 4]
    await restore(ruined, 5, 1, 5)
    await end(ruined, 6, 6, {"c": None}, 5)
    assert await tainted(ruined) == [2, 3, 4]
    assert (await ruined.last_clean_model(2)).version == 6


async def test_who_taught_the_dead_branch_alone_is_in_no_later_model(ruined) -> None:
    """Erased after the restoration: what leads nowhere is tainted, and will be withdrawn with the job's swap."""
    await restore(ruined, 5, 1, 5)
    await end(ruined, 6, 6, {"c": None}, 5)
    await waits(ruined, "e")
    assert await tainted(ruined) == [3, 4]
    assert (await ruined.latest_round()).anchor_version == 5
    assert (await ruined.last_clean_model(3)).version == 6


async def test_who_taught_what_was_restored_is_in_all_that_follows(ruined) -> None:
    """And who taught since: unlearning begins before, never on the dead branch."""
    await restore(ruined, 5, 1, 5)
    await end(ruined, 6, 6, {"e": None}, 5)
    await waits(ruined, "e")
    assert await tainted(ruined) == [3, 4, 6]
    assert (await ruined.last_clean_model(3)).version == 1
    await ruined.erase_with_key("b")
    assert await tainted(ruined) == [1, 2, 3, 4, 5, 6]
    assert (await ruined.latest_round()).anchor_version is None
    assert (await ruined.last_clean_model(1)).version == 0


def job(stored, **other) -> NewJob:
    fields = {"strategy": "relearn", "interval": 1, "local_interactions": 3, "start_version": 1, "start_round": 2}
    return NewJob(number=1, created_at=datetime.now(stored.at(0).tzinfo), **(fields | other), n_steps=3)


async def test_a_job_that_is_open_begins_again(ruined) -> None:
    """It has gone through rounds that count no more; who waits for it, waits for the next one."""
    await waits(ruined, "d")
    await ruined.create_job(job(ruined))
    await restore(ruined, 5, 1, 5)
    (failed,) = await ruined.list_jobs()
    assert (failed.state, failed.reason, failed.weights) == ("failed", "the model was rolled back", None)
    assert [row.client_id for row in await ruined.waiting_erasures()] == ["d"]


async def test_the_model_of_a_job_is_no_anchor_while_others_wait(ruined) -> None:
    """They may be in its steps. Of nobody else it is the anchor of the round that follows."""
    await waits(ruined, "d")
    await ruined.create_job(job(ruined))
    await ruined.erase_with_key("e")
    following = opening(ruined, 6, 5, 5)
    completion = JobCompletion(5, ruined.at(60), abandons=5, next_opening=following)
    await ruined.complete_job(1, completion, lambda *_: None)
    assert (await ruined.latest_round()).anchor_version is None
    assert (await get_model(ruined.db, "web", 5)).tainted_at is not None


async def test_a_vote_goes_with_its_client(ruined) -> None:
    """It is a column of the client's updates."""
    await ruined.erase_client(ruined.request("d"))
    row = await get_round(ruined.db, "web", 2)
    assert (row.n_worse, row.n_updates) == (3, 3)
