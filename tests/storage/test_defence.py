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

from .conftest import at


async def rows_by_job(stored) -> dict[int, int]:
    """How many clients have a row, by the number of the job; 0 for rounds."""
    return dict(await stored.read(select(defence_records.c.job, func.count()).group_by(defence_records.c.job)))


async def remembered(stored) -> bytes | None:
    model = await stored.latest_model()
    return model.defence_state


async def test_a_model_row_names_nobody_and_who_reads_it_gets_all(learned) -> None:
    """A record is a row with the client's key; of two reads the bytes are those that were stored."""
    memory = memory_of("a", "b", "c")
    await learned.end(5, 4, defence_state=memory)
    assert await remembered(learned) == memory
    assert (await get_model(learned.db, "web", 4)).defence_state == memory
    ((shared,),) = await learned.read(select(models.c.defence_state).where(models.c.defence_state.is_not(None)))
    records = await learned.read(select(defence_records.c.record).order_by(defence_records.c.client))
    assert (shared, {name: record for name, (record,) in zip("abc", records, strict=True)}) == split_records(memory)
    assert (await rows_of(learned.db, "web", "c"))["defence_records"] == 1


async def test_whoever_is_not_remembered_any_more_has_no_row(learned) -> None:
    """The next model's memory takes the place of the last one's; a rule that remembers nothing deletes all."""
    await learned.end(5, 4, defence_state=memory_of("a", "c"))
    memory = memory_of("b", "c", n_rounds=2)
    await learned.end(6, 5, defence_state=memory)
    assert (await remembered(learned), await rows_by_job(learned)) == (memory, {0: 2})
    await learned.end(7, 6)
    assert (await remembered(learned), await rows_by_job(learned)) == (None, {})


async def test_to_forget_a_client_deletes_its_record_and_writes_no_model(learned) -> None:
    """Everybody else's record stays as it was, and the federation's other part."""
    await learned.end(5, 4, defence_state=memory_of("b", "c"))
    untouched = select(*(column for column in models.columns if column is not models.c.tainted_at))
    before = await learned.read(untouched)
    await learned.erase("c")
    assert await learned.read(untouched) == before
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
    await learned.end(5, 4, defence_state=memory_of("a", "b", "c"))
    assert await rows_by_job(learned) == {0: 2}
    assert await learned.read(select(defence_records).where(defence_records.c.client == key_of("web", "c"))) == []


@pytest.fixture
async def unlearning(learned):
    """A federation whose rounds remember a, and whose job, begun as c was forgotten, remembers a and b after a step."""
    await learned.end(5, 4, defence_state=memory_of("a", "c"))
    await learned.erase_with_key("c")
    # It begins with each record of those who stay as it is, and no progress yet: its models go along another path.
    created = await learned.create_job(NewJob(1, "fed_eraser", 2, 3, at(101), 0, 1, 2))
    assert created == await learned.load_job()
    before, begun = (ClientRecords.from_bytes(each, 3) for each in (await remembered(learned), created.defence_state))
    assert (begun.client_ids, begun.n_rounds, begun.progress.tolist()) == (("a",), 1, [0.0] * 3)
    assert begun.clients.tobytes() == before.clients.tobytes()
    await learned.commit_step(1, JobStep(1, 1, 2, bytes(12), 1.0, defence_state=memory_of("a", "b")))
    return learned


@pytest.mark.parametrize("fails", [False, True])
async def test_a_job_remembers_apart_from_the_rounds(unlearning, fails) -> None:
    """Both are read whole, and each forgets its own; a job that failed leaves nothing."""
    assert (await unlearning.load_job()).defence_state == memory_of("a", "b")
    assert [found.defence_state for found in await unlearning.list_jobs()] == [memory_of("a", "b")]
    assert await rows_by_job(unlearning) == {0: 1, 1: 2}
    if fails:
        await unlearning.fail_job(1, "nobody answers", at(101))
    else:
        await unlearning.erase_with_key("b")
    assert await rows_by_job(unlearning) == ({0: 1} if fails else {0: 1, 1: 1})


async def test_what_was_remembered_at_a_swap_stays_with_its_model(unlearning) -> None:
    """While the rounds go on; whoever is forgotten vanishes from it, and it says that it is not whole."""
    memory, following = memory_of("a", "b", n_rounds=7), memory_of("a", "b", n_rounds=8)
    await swap(unlearning, memory)
    assert (await remembered(unlearning), await rows_by_job(unlearning)) == (memory, {0: 2, 1: 2})
    await unlearning.end(7, 6, defence_state=following)
    assert await remembered(unlearning) == following
    assert await kept_defence(unlearning.db, "web", 5) == memory
    assert (await get_model(unlearning.db, "web", 5)).defence_state == memory
    assert await kept_defence(unlearning.db, "web", 0) is None
    await unlearning.erase("b")
    with pytest.raises(DataError, match="given with model 5 is not whole, as clients were erased"):
        await kept_defence(unlearning.db, "web", 5)
    assert await rows_by_job(unlearning) == {0: 1, 1: 1}
    await unlearning.end(8, 7)  # by a rule that remembers nothing: what was kept stays
    assert (await remembered(unlearning), await rows_by_job(unlearning)) == (None, {1: 1})


async def test_what_was_kept_goes_with_a_model_that_is_withdrawn(unlearning) -> None:
    """Nothing can be repeated from it."""
    await unlearning.erase_with_key("b")
    await swap(unlearning, memory_of("a", n_rounds=7))
    await unlearning.create_job(NewJob(2, "relearn", 2, 3, at(101), 0, 1, 2))
    await swap(unlearning, memory_of("a", n_rounds=8), job=2, version=6)
    assert await rows_by_job(unlearning) == {0: 1, 2: 1}
    assert await kept_defence(unlearning.db, "web", 5) is None
    assert await kept_defence(unlearning.db, "web", 6) == memory_of("a", n_rounds=8)


async def swap(stored, memory: bytes, job: int = 1, version: int = 5) -> None:
    following = stored.opening(version + 2, version)
    completion = JobCompletion(version, at(101), {}, version + 1, following, defence_state=memory)
    await stored.complete_job(job, completion, lambda *_: "")
