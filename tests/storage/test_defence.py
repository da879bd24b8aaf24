"""What the rule of aggregation remembers: of each client in a row that goes with the client, and whole for who asks."""

import pytest
from sqlalchemy import func, select
from support.adaptive_memory import memory_of

from foltr.core.aggregation.client_records import ClientRecords, split_records
from foltr.core.errors import DataError
from foltr.storage.aggregation_tables import defence_records
from foltr.storage.clients import key_of
from foltr.storage.defence import kept_defence
from foltr.storage.erasure.client_rows import rows_of
from foltr.storage.erasure_records import JobCompletion, JobStep, NewJob
from foltr.storage.model_tables import models
from foltr.storage.models import get_model
from foltr.storage.records import NewModel

WEIGHTS = bytes(12)


async def end_round(stored, memory: bytes | None) -> None:
    """End round 5, which the round 6 follows, with model 4."""
    await stored.begin_aggregation(5)
    model, following = NewModel(4, WEIGHTS, None, memory), stored.opening(6, 4)
    await stored.complete_round(5, model, stored.at(60), following)


async def rows_by_job(stored) -> dict[int, int]:
    """How many clients have a row, by the number of the job; 0 for rounds."""
    counted = select(defence_records.c.job, func.count()).group_by(defence_records.c.job)
    async with stored.db.reading() as connection:
        return {row[0]: row[1] for row in await connection.execute(counted)}


async def remembered(stored) -> bytes | None:
    model = await stored.latest_model()
    return model.defence_state


async def test_a_model_row_names_nobody_and_who_reads_it_gets_all(learned) -> None:
    """A record is a row with the client's key; of two reads the bytes are those that were stored."""
    memory = memory_of("a", "b", "c")
    await end_round(learned, memory)
    assert await remembered(learned) == memory
    assert (await get_model(learned.db, "web", 4)).defence_state == memory
    async with learned.db.reading() as connection:
        (shared,) = await connection.scalars(select(models.c.defence_state).where(models.c.defence_state.is_not(None)))
        records = list(await connection.scalars(select(defence_records.c.record).order_by(defence_records.c.client)))
    assert (shared, dict(zip("abc", records, strict=True))) == split_records(memory)
    assert (await rows_of(learned.db, "web", "c"))["defence_records"] == 1


async def test_whoever_is_not_remembered_any_more_has_no_row(learned) -> None:
    """The next model's memory takes the place of the last one's; a rule that remembers nothing deletes all."""
    await end_round(learned, memory_of("a", "c"))
    await learned.begin_aggregation(6)
    at = learned.at(60)
    memory = memory_of("b", "c", n_rounds=2)
    model = NewModel(5, WEIGHTS, None, memory)
    await learned.complete_round(6, model, at, learned.opening(7, 5))
    assert await remembered(learned) == memory
    assert await rows_by_job(learned) == {0: 2}
    await learned.begin_aggregation(7)
    model = NewModel(6, WEIGHTS, None, None)
    await learned.complete_round(7, model, at, learned.opening(8, 6))
    assert (await remembered(learned), await rows_by_job(learned)) == (None, {})


async def test_to_forget_a_client_deletes_its_record_and_writes_no_model(learned) -> None:
    """Everybody else's record stays as it was, and the federation's other part."""
    await end_round(learned, memory_of("b", "c"))
    before = (await learned.dump())["models"]
    await learned.erase("c")
    after = (await learned.dump())["models"]
    untouched = [index for index, column in enumerate(models.columns) if column is not models.c.tainted_at]
    assert [[row[i] for i in untouched] for row in after] == [[row[i] for i in untouched] for row in before]
    assert await rows_by_job(learned) == {0: 1}
    memory = await remembered(learned)
    assert memory is not None
    assert (b"\xa1c" in memory, b"\xa1b" in memory) == (False, True)
    assert "defence_records" not in await rows_of(learned.db, "web", "c")


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_memory_made_before_a_client_was_forgotten_stores_nothing_of_it(learned, is_told) -> None:
    """A job's step takes seconds, and the client may be erased meanwhile; also once its name is gone as well."""
    row = await learned.erase_with_key("c")
    if is_told:
        await learned.note_told(row.pseudonym)
    await end_round(learned, memory_of("a", "b", "c"))
    assert await rows_by_job(learned) == {0: 2}
    async with learned.db.reading() as connection:
        of_c = defence_records.c.client == key_of("web", "c")
        assert list(await connection.scalars(select(defence_records.c.client).where(of_c))) == []


@pytest.fixture
async def unlearning(learned):
    """A federation whose rounds remember a, and whose job, begun as c was forgotten, remembers a and b after a step."""
    await end_round(learned, memory_of("a", "c"))
    await learned.erase_with_key("c")
    at = learned.at(101)
    new = NewJob(1, "fed_eraser", 2, 3, at, 0, 1, 2)
    await learned.create_job(new)
    step = JobStep(1, 1, 2, WEIGHTS, 1.0, defence_state=memory_of("a", "b"))
    await learned.commit_step(1, step)
    return learned


async def test_a_job_begins_with_what_the_rounds_remember_of_those_who_stay(learned) -> None:
    """Each record as it is, and no progress yet: its models go along another path."""
    await end_round(learned, memory_of("a", "c"))
    await learned.erase_with_key("c")
    at = learned.at(101)
    created = await learned.create_job(NewJob(1, "fed_eraser", 2, 3, at, 0, 1, 2))
    job = await learned.load_job()
    before, begun = (ClientRecords.from_bytes(memory, 3) for memory in (await remembered(learned), job.defence_state))
    assert (begun.client_ids, begun.n_rounds, begun.progress.tolist()) == (("a",), 1, [0.0] * 3)
    assert begun.clients.tobytes() == before.clients.tobytes()
    assert created == job


async def test_a_job_remembers_apart_from_the_rounds(unlearning) -> None:
    """Both are read whole, and each forgets its own."""
    job = await unlearning.load_job()
    assert job.defence_state == memory_of("a", "b")
    assert [found.defence_state for found in await unlearning.list_jobs()] == [memory_of("a", "b")]
    assert await rows_by_job(unlearning) == {0: 1, 1: 2}
    await unlearning.erase_with_key("b")
    assert await rows_by_job(unlearning) == {0: 1, 1: 1}


async def test_a_job_that_failed_leaves_nothing_that_it_remembered(unlearning) -> None:
    at = unlearning.at(101)
    await unlearning.fail_job(1, "nobody answers", at)
    assert await rows_by_job(unlearning) == {0: 1}


async def test_a_swap_stores_what_the_rounds_go_on_from(unlearning) -> None:
    """With the job's model, in the one transaction; of what the job remembered nothing stays."""
    memory = memory_of("a", n_rounds=7)
    await swap(unlearning, memory)
    assert await remembered(unlearning) == memory
    assert await kept_defence(unlearning.db, "web", 5) == memory
    assert await rows_by_job(unlearning) == {0: 1, 1: 1}


async def test_what_was_remembered_at_a_swap_stays_with_its_model(unlearning) -> None:
    """While the rounds go on; whoever is forgotten vanishes from it, and it says that it is not whole."""
    memory = memory_of("a", "b", n_rounds=7)
    await swap(unlearning, memory)
    await unlearning.begin_aggregation(7)
    at, following = unlearning.at(60), memory_of("a", "b", n_rounds=8)
    model = NewModel(6, WEIGHTS, None, following)
    await unlearning.complete_round(7, model, at, unlearning.opening(8, 6))
    assert await remembered(unlearning) == following
    assert await kept_defence(unlearning.db, "web", 5) == memory
    assert (await get_model(unlearning.db, "web", 5)).defence_state == memory
    assert await kept_defence(unlearning.db, "web", 0) is None
    await unlearning.erase("b")
    with pytest.raises(DataError, match="given with model 5 is not whole, as clients were erased"):
        await kept_defence(unlearning.db, "web", 5)
    assert await rows_by_job(unlearning) == {0: 1, 1: 1}


async def test_a_rule_that_remembers_nothing_after_a_swap_leaves_what_was_kept(unlearning) -> None:
    """The rounds' rows go, and those that belong to the swap's model stay with it."""
    await swap(unlearning, memory_of("a"))
    await unlearning.begin_aggregation(7)
    at, model = unlearning.at(60), NewModel(6, WEIGHTS, None, None)
    await unlearning.complete_round(7, model, at, unlearning.opening(8, 6))
    assert (await remembered(unlearning), await rows_by_job(unlearning)) == (None, {1: 1})


async def test_what_was_kept_goes_with_a_model_that_is_withdrawn(unlearning) -> None:
    """Nothing can be repeated from it."""
    await unlearning.erase_with_key("b")
    await swap(unlearning, memory_of("a", n_rounds=7))
    await unlearning.create_job(NewJob(2, "relearn", 2, 3, unlearning.at(101), 0, 1, 2))
    await swap(unlearning, memory_of("a", n_rounds=8), job=2, version=6)
    assert await rows_by_job(unlearning) == {0: 1, 2: 1}
    assert await kept_defence(unlearning.db, "web", 5) is None
    assert await kept_defence(unlearning.db, "web", 6) == memory_of("a", n_rounds=8)


async def swap(stored, memory: bytes, job: int = 1, version: int = 5) -> None:
    """Put a job's model in service, in the place of the round that is open."""
    at = stored.at(101)
    completion = JobCompletion(version, at, {}, version + 1, stored.opening(version + 2, version), defence_state=memory)
    await stored.complete_job(job, completion, lambda *_: "")
