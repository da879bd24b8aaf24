"""What was deleted is counted with the deletion, and noted as purged up to where a purge began."""

from foltr.storage.erasure_records import JobCompletion, NewJob


async def counts(stored) -> tuple[int, int]:
    federation = await stored.get_federation()
    return federation.n_deletions, federation.n_purged


def sign(*_: object) -> str:
    return "a receipt"


async def test_every_deletion_is_counted(learned) -> None:
    """An erasure, a name that goes, models that are withdrawn; and what deletes nothing, or is done again, is not."""
    at, request = learned.at(101), learned.request("c")
    assert await learned.deletions_to_purge() is None
    for _ in range(2):
        await learned.erase("c")
    assert await counts(learned) == (1, 0)
    await learned.note_key_destroyed(request.pseudonym)
    assert await counts(learned) == (1, 0)
    for _ in range(2):
        await learned.note_told(request.pseudonym)
    assert await counts(learned) == (2, 0)
    await learned.create_job(NewJob(1, "relearn", 1, 3, at, 0, 1, 1))
    completion = JobCompletion(4, at, figures={}, abandons=5, next_opening=learned.opening(6, 4))
    for _ in range(2):
        await learned.complete_job(1, completion, sign)
    assert await counts(learned) == (3, 0)
    assert await learned.deletions_to_purge() == 3


async def test_names_that_go_late_are_counted(stored) -> None:
    """With the key, with the receipt, or after thirty days; where no name goes there is nothing to purge."""
    for n_deletions, name in ((1, "a"), (2, "b")):
        await stored.erase(name)
        assert await counts(stored) == (n_deletions, 0)
    told, untold = stored.request("a"), stored.request("b")
    await stored.note_told(told.pseudonym)
    assert await counts(stored) == (2, 0), "it is needed for the key still"
    for _ in range(2):
        await stored.complete_erasure(told.pseudonym, told.erased_at, sign)
    assert await counts(stored) == (3, 0)
    await stored.complete_erasure(untold.pseudonym, untold.erased_at, sign)
    assert await counts(stored) == (3, 0)
    for _ in range(2):
        await stored.drop_untold_names(stored.at(86_501))
    assert await counts(stored) == (4, 0)


async def test_a_purge_is_for_what_was_deleted_before_it(stored) -> None:
    """What was deleted meanwhile is left to the next one, however often the end of the first is noted."""
    await stored.erase("a")
    n_deletions = await stored.deletions_to_purge()
    assert n_deletions == 1
    assert await stored.db.purge("clients")
    await stored.erase("b")
    for _ in range(2):
        await stored.note_purge(n_deletions)
    assert await counts(stored) == (2, 1)
    assert await stored.deletions_to_purge() == 2
    await stored.note_purge(2)
    assert await stored.deletions_to_purge() is None
