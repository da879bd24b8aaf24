"""Unlearning jobs: every step is kept, and the swap happens as a whole or not at all."""

import dataclasses
import json
from typing import Any

import pytest
from support.adaptive_memory import memory_of
from support.deaths import dying_at

from foltr.core.erasure.audit import check_chain
from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint
from foltr.storage.erasure.audit_log import stream_audit
from foltr.storage.erasure.unlearning_jobs import last_clean_model, load_job
from foltr.storage.erasure_records import JobCompletion, JobStep, NewJob
from foltr.storage.models import get_model, list_models
from foltr.storage.queries import list_events
from foltr.storage.records import Batch, NewEvent, NewModel

WEIGHTS = b"\0\0\x80?" * 3


@pytest.fixture
async def waiting(learned):
    """`learned`, where c was erased and waits."""
    await learned.erase_with_key("c")
    return learned


async def create(stored, number: int = 1, **other: Any):
    fields = {"strategy": "fed_eraser", "interval": 2, "local_interactions": 3, "start_version": 0, "start_round": 1}
    return await stored.create_job(NewJob(number=number, created_at=stored.at(101), n_steps=2, **(fields | other)))


async def take(stored, step: int, **other: Any) -> None:
    fields = {"round": step, "n_steps": 2, "weights": bytes([step]) * 12, "coverage": 0.5}
    await stored.commit_step(1, JobStep(step, **(fields | other)))


def completion(stored, version: int = 4, **other: Any) -> JobCompletion:
    at = stored.at(101).replace(year=2027)
    fields = {"figures": {"loss": 0.25}, "abandons": 5, "next_opening": stored.opening(6, version)}
    return JobCompletion(version, at, **(fields | other))


SIGNED = []


@pytest.fixture(autouse=True)
def _nothing_is_signed_yet() -> None:
    SIGNED.clear()


def sign(erasure, outcome, entry) -> str:
    SIGNED.append((erasure, outcome, entry))
    return json.dumps([erasure.pseudonym, outcome.model_before, outcome.model_after, entry.seq])


async def complete(stored, number: int = 1, **other: Any):
    return await stored.complete_job(number, completion(stored, **other), sign)


async def test_a_job_starts_from_a_stored_model_for_all_that_wait(waiting) -> None:
    """And the same job again changes nothing: the answer may have been lost."""
    await waiting.erase_with_key("a")
    job = await create(waiting)
    assert (job.state, job.step, job.weights, job.coverage) == ("running", 0, bytes(12), None)
    async with waiting.unchanged():
        assert await create(waiting) == job
    assert await waiting.load_job() == await waiting.load_job(1) == job
    assert await waiting.list_jobs() == [job]
    assert await load_job(waiting.db, "elsewhere") is None
    erasures = await waiting.job_erasures(1)
    assert [(row.client_id, row.state, row.job) for row in erasures] == [("a", "unlearning", 1), ("c", "unlearning", 1)]
    entries = await waiting.job_entries(1, 32)
    assert [entry.kind for entry in entries] == ["client_erased"] * 2
    assert {entry.body["pseudonym"] for entry in entries} == {row.pseudonym for row in erasures}
    assert entries[0].seq > entries[1].seq
    assert await waiting.job_entries(1, 1) == entries[:1]
    assert await waiting.job_entries(2, 32) == []
    assert await waiting.waiting_erasures() == []
    with pytest.raises(ProtocolViolationError, match="job 1 of 'web' was created before, differently"):
        await create(waiting, interval=3)


async def test_what_is_no_start_is_refused(learned) -> None:
    """No erasure waits; the model is tainted or not there; another job is open. Nothing changes."""
    with pytest.raises(ProtocolViolationError, match="no erasure of 'web' waits"):
        await create(learned)
    await learned.erase_with_key("c")
    for version, what in ((2, "tainted"), (9, "not there")):
        async with learned.refuses(match=f"model {version} of 'web' is {what}"):
            await create(learned, start_version=version)
    await create(learned, start_version=1, start_round=2)
    await learned.erase_with_key("a")
    with pytest.raises(ProtocolViolationError, match=r"(?s)refuses to store this.*(unlearning_jobs|one_open)"):
        await create(learned, 2)


async def test_steps_are_kept_one_by_one(waiting) -> None:
    """The newest weights, what the optimiser remembers, and how many took part; a step is repeated, never left out."""
    await create(waiting)
    for _ in range(2):
        await take(waiting, 1, coverage=1.0, optimizer_state=b"moments", defence_state=memory_of("a", "b"))
    await take(waiting, 2, n_steps=7)
    job = await waiting.load_job()
    assert (job.step, job.last_round, job.n_steps, job.weights, job.coverage) == (2, 2, 7, b"\2" * 12, 0.75)
    assert (job.optimizer_state, job.defence_state) == (None, None)
    await waiting.pause_job(1, "nobody is online")
    assert (await waiting.load_job(1)).state == "paused"
    await waiting.resume_job(1)
    for step in (1, 4):
        with pytest.raises(ProtocolViolationError, match=f"step {step} of unlearning job 1 of 'web'; 2 is done"):
            await take(waiting, step, n_steps=9)
    with pytest.raises(ProtocolViolationError, match="has no unlearning job 2"):
        await waiting.commit_step(2, JobStep(1, 1, 2, WEIGHTS, 1.0))


async def test_a_failed_job_makes_way_for_another(waiting) -> None:
    """Its erasures wait again, what it made so far is gone, and both attempts are remembered."""
    await create(waiting)
    await take(waiting, 1)
    at = completion(waiting).completed_at
    told = NewEvent(at, "unlearning_failed", "3 of 20")
    for _ in range(2):
        await waiting.fail_job(1, "low_coverage", at, [told])
    async with waiting.refuses():
        await waiting.resume_job(1)
    (erasure,) = await waiting.waiting_erasures()
    assert (erasure.client_id, erasure.job) == ("c", 1)
    assert len(await list_events(waiting.db, "web", kind="unlearning_failed")) == 1
    await create(waiting, 2, strategy="relearn")
    failed, running = await waiting.list_jobs()
    assert (failed.state, failed.reason, failed.weights, failed.closed_at) == ("failed", "low_coverage", None, at)
    assert (running.state, running.strategy, running.step) == ("running", "relearn", 0)
    assert [row.job for row in await waiting.job_erasures(2)] == [2]
    with pytest.raises(ProtocolViolationError, match="is failed, not running"):
        await complete(waiting)


async def test_the_swap(waiting) -> None:
    """One transaction: the unlearned model is the newest, tainted ones lose their weights, the erasure is done."""
    await create(waiting)
    await take(waiting, 1, coverage=1.0)
    await take(waiting, 2, weights=WEIGHTS)
    told = NewEvent(completion(waiting).completed_at, "model_unlearned")
    (erasure,) = await complete(waiting, optimizer_state=b"new", events=[told])
    async with waiting.unchanged():
        assert await complete(waiting, optimizer_state=b"new", events=[told]) == [erasure]
    # A receipt gets the erasure as it will be stored, how it ended, and its place in the audit log.
    (signed,) = SIGNED
    assert signed[0] == dataclasses.replace(erasure, receipt=None)
    assert dataclasses.asdict(signed[1]) == {
        "strategy": "fed_eraser", "completed_at": erasure.completed_at, "rounds_replayed": 2, "model_before": 3,
        "model_after": 4, "models_withdrawn": 2, "coverage": 0.75, "figures": {"loss": 0.25},
    }  # fmt: skip
    assert signed[2].seq == erasure.audit_seq

    model = await waiting.latest_model()
    assert (model.version, model.base_version, model.round, model.unlearning_job) == (4, 0, None, 1)
    assert (model.weights, model.optimizer_state, model.tainted_at) == (WEIGHTS, b"new", None)
    assert await waiting.newest_unlearned() == 4
    at = completion(waiting).completed_at
    older = (await list_models(waiting.db, "web"))[:-1]
    assert [(found.version, found.weights, found.withdrawn_at) for found in older] == [
        (0, bytes(12), None), (1, b"\1" * 12, None), (2, b"", at), (3, b"", at),
    ]  # fmt: skip
    assert (await get_model(waiting.db, "web", 3)).optimizer_state is None
    found = await waiting.load_open_round()
    assert (found[0].number, found[0].base_version) == (6, 4)
    assert [(row[2], row[11]) for row in (await waiting.dump())["rounds"]][4] == ("abandoned", "unlearned")

    assert (erasure.state, erasure.completed_at, erasure.job) == ("done", at, 1)
    assert json.loads(erasure.receipt or "") == [erasure.pseudonym, 3, 4, erasure.audit_seq]
    assert await waiting.find_erasure(erasure.pseudonym) == erasure
    job = await waiting.load_job(1)
    assert (job.state, job.model_version, job.weights, job.figures) == ("done", 4, None, '{"loss": 0.25}')
    assert await waiting.load_job() is None
    entries = [entry async for entry in stream_audit(waiting.db, "web")]
    assert [entry.kind for entry in entries] == ["client_erased", "job_started", "job_completed", "erasure_completed"]
    assert check_chain(entries) == 4
    assert len(await list_events(waiting.db, "web", kind="model_unlearned")) == 1


async def test_a_device_that_was_told_needs_its_name_no_more(waiting) -> None:
    """One that was not is told with the receipt."""
    await waiting.erase_with_key("a")
    await create(waiting)
    await waiting.note_told(waiting.request("a").pseudonym)
    await take(waiting, 1)
    assert [row.client_id for row in await complete(waiting)] == [None, "c"]


async def test_who_was_erased_meanwhile_may_be_in_the_new_model(waiting) -> None:
    """It took part in the job's steps: the model serves, and is tainted from the beginning, for the next job."""
    await create(waiting)
    await take(waiting, 1)
    await waiting.erase_with_key("b")
    done = await complete(waiting)
    assert [row.client_id for row in done] == ["c"]
    model = await waiting.latest_model()
    assert model.tainted_at == completion(waiting).completed_at
    assert [row.client_id for row in await waiting.waiting_erasures()] == ["b"]
    await create(waiting, 2)
    (other,) = await complete(waiting, 2, version=5, abandons=6, next_opening=waiting.opening(7, 5))
    assert other.client_id == "b"
    assert [(found.version, found.tainted_at is None) for found in await list_models(waiting.db, "web")][-2:] == [
        (4, False), (5, True),
    ]  # fmt: skip


async def test_a_swap_that_does_not_fit_changes_nothing(waiting) -> None:
    """A version that is not the next one, a round that was completed, a receipt that cannot be made."""
    await create(waiting)
    await take(waiting, 1)
    async with waiting.refuses(match="model 3 of 'web' from unlearning; 3 is the newest"):
        await complete(waiting, version=3)
    async with waiting.refuses(match="round 4 of 'web' is completed and cannot be abandoned"):
        await complete(waiting, abandons=4)

    def fails(*_: object) -> str:
        raise ValueError("no key")

    async with waiting.refuses(ValueError, "no key"):
        await waiting.complete_job(1, completion(waiting), fails)


async def test_live_rounds_go_on_beside_a_job_and_after_it(waiting) -> None:
    """Models of rounds that end meanwhile are made from a tainted one: they serve until the swap, and go with it."""
    await create(waiting)
    await waiting.commit(Batch(updates=[waiting.update("a", "a5", 5)]))
    await waiting.begin_aggregation(5)
    at = completion(waiting).completed_at
    await waiting.complete_round(5, NewModel(4, WEIGHTS), at, waiting.opening(6, 4))
    live = await waiting.latest_model()
    assert (live.version, live.tainted_at) == (4, at)
    await take(waiting, 1)
    await complete(waiting, version=5, abandons=6, next_opening=waiting.opening(7, 5))
    assert [found.version for found in await list_models(waiting.db, "web") if found.weights] == [0, 1, 5]
    newest = await waiting.latest_round()
    assert (newest.number, newest.base_version) == (7, 5)


async def test_a_rollback_starts_before_the_leaver_came(waiting) -> None:
    """From the newest model that it is not in, made before its first round."""
    erasure = await waiting.find_erasure(waiting.request("c").pseudonym)
    assert erasure.first_round == 2
    for before, version in ((1, 0), (2, 1), (5, 1)):
        model = await waiting.last_clean_model(before)
        assert model.version == version
    assert await last_clean_model(waiting.db, "elsewhere", 2) is None


async def test_a_schedule_uses_rounds_that_are_stored(waiting) -> None:
    """Completed ones with updates of clients that are left, of which not even one was thinned; a few at a time."""

    async def listed(first: int = 1, limit: int = 9) -> list[int]:
        return await waiting.list_stored_rounds(first, limit)

    assert (await listed(), await listed(2), await listed(1, 2)) == ([1, 2, 4], [2, 4], [1, 2])
    await waiting.delete_old_bodies(before_round=5, interval=9, first_round=2, limit=1)
    assert await listed() == [1, 4]
    await waiting.delete_old_bodies(before_round=5, interval=3)
    assert await listed() == [1, 4]
    await waiting.erase_with_key("a")
    assert await listed() == [1, 4]
    await waiting.erase_with_key("b")
    assert await listed() == []


async def test_a_federator_that_dies_in_the_swap_has_swapped_nothing(waiting) -> None:
    """The old model serves, the round is open, the job runs; the same swap again succeeds."""
    await create(waiting)
    await take(waiting, 1)
    async with waiting.unchanged():
        with dying_at(Failpoint.IN_SWAP_TRANSACTION, "storage.erasure.unlearning_jobs"):
            await complete(waiting)
    assert [row.state for row in await complete(waiting)] == ["done"]
