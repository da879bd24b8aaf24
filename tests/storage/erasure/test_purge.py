"""What was deleted is counted with the deletion, and noted as purged up to where a purge began."""

from datetime import timedelta

import pytest

import foltr.storage.erasure.erasures
from foltr.storage.erasure.erasures import (
    complete_erasure,
    deletions_to_purge,
    drop_untold_names,
    erase_client,
    note_key_destroyed,
    note_purge,
    note_told,
)
from foltr.storage.erasure.unlearning_jobs import complete_job, create_job
from foltr.storage.erasure_records import JobCompletion, NewJob
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation, get_federation


async def counts(stored) -> tuple[int, int]:
    federation = await get_federation(stored.db, "web")
    return federation.n_deletions, federation.n_purged


def sign(*_: object) -> str:
    return "a receipt"


async def test_every_deletion_is_counted(learned) -> None:
    """An erasure, a name that goes, models that are withdrawn; and what deletes nothing, or is done again, is not."""
    db, epoch, request = learned.db, learned.epoch, learned.request("c")
    assert await deletions_to_purge(db, "web") is None
    for _ in range(2):
        await learned.erase("c")
    assert await counts(learned) == (1, 0)
    await note_key_destroyed(db, "web", epoch, request.pseudonym)
    assert await counts(learned) == (1, 0)
    for _ in range(2):
        await note_told(db, "web", epoch, request.pseudonym)
    assert await counts(learned) == (2, 0)
    job = NewJob(1, "relearn", 1, 3, request.erased_at, 0, 1, 1)
    await create_job(db, "web", epoch, job)
    completion = JobCompletion(4, request.erased_at, figures={}, abandons=5, next_opening=learned.opening(6, 4))
    for _ in range(2):
        await complete_job(db, "web", epoch, 1, completion, sign)
    assert await counts(learned) == (3, 0)
    assert await deletions_to_purge(db, "web") == 3


async def test_names_that_go_late_are_counted(stored) -> None:
    """With the key, with the receipt, or after thirty days; where no name goes there is nothing to purge."""
    db, epoch = stored.db, stored.epoch
    for n_deletions, name in ((1, "a"), (2, "b")):
        await stored.erase(name)
        assert await counts(stored) == (n_deletions, 0)
    told, untold = stored.request("a"), stored.request("b")
    await note_told(db, "web", epoch, told.pseudonym)
    assert await counts(stored) == (2, 0), "it is needed for the key still"
    for _ in range(2):
        await complete_erasure(db, "web", epoch, told.pseudonym, told.erased_at, sign)
    assert await counts(stored) == (3, 0)
    await complete_erasure(db, "web", epoch, untold.pseudonym, untold.erased_at, sign)
    assert await counts(stored) == (3, 0)
    for _ in range(2):
        await drop_untold_names(db, "web", epoch, untold.erased_at + timedelta(days=1))
    assert await counts(stored) == (4, 0)


async def test_an_erasure_that_failed_is_not_counted(stored, monkeypatch) -> None:
    """The count is a part of the transaction: nothing was deleted."""

    def fail(_name: object) -> None:
        raise OSError("the process ends here")

    monkeypatch.setattr(foltr.storage.erasure.erasures, "failpoint", fail)
    with pytest.raises(OSError, match="ends here"):
        await stored.erase("a")
    assert await counts(stored) == (0, 0)


async def test_a_purge_is_for_what_was_deleted_before_it(stored) -> None:
    """What was deleted meanwhile is left to the next one, however often the end of the first is noted."""
    await stored.erase("a")
    n_deletions = await deletions_to_purge(stored.db, "web")
    assert n_deletions == 1
    assert await stored.db.purge("clients")
    await stored.erase("b")
    for _ in range(2):
        await note_purge(stored.db, "web", stored.epoch, n_deletions)
    assert await counts(stored) == (2, 1)
    assert await deletions_to_purge(stored.db, "web") == 2
    await note_purge(stored.db, "web", stored.epoch, 2)
    assert await deletions_to_purge(stored.db, "web") is None


async def test_only_the_writer_notes_a_purge(stored) -> None:
    """Another federator that has taken over purges itself; the old one's count would be behind."""
    await stored.erase("a")
    epoch = await claim_federation(stored.db, "web", 0.0)
    with pytest.raises(WriterFencedError):
        await note_purge(stored.db, "web", stored.epoch, 1)
    assert await deletions_to_purge(stored.db, "web") == 1
    await erase_client(stored.db, "web", epoch, stored.request("b"))
    await note_purge(stored.db, "web", epoch, 2)
    assert await counts(stored) == (2, 2)
