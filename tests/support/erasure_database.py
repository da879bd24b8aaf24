"""A database in which clients were forgotten, each in another state, as a federator would leave it."""

import contextlib
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.databases import open_migrated
from support.erasure_receipts import KEY
from support.stored_rounds import founded

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.federator.eraser import signed_by
from foltr.storage.erasure.erasures import complete_erasure, erase_client, note_key_destroyed
from foltr.storage.erasure.unlearning_jobs import commit_step, complete_job, create_job, fail_job, pause_job
from foltr.storage.erasure_records import ErasureRequest, JobCompletion, JobStep, NewJob
from foltr.storage.records import RoundOpening

NAME = "mail"
PSEUDONYM_KEY = bytes(range(32, 64))
BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WAITING, PAUSED, DONE, IDLE, STAYED = (f"device-{number}" for number in (5, 6, 7, 8, 9))
"""What became of whom. IDLE had contributed nothing, and is done; STAYED was not forgotten."""
PAUSE_REASON = "no device has answered for 3600 s"


def pseudonym_of(client_id: str) -> str:
    return pseudonym(PSEUDONYM_KEY, client_id)


def at(minutes: int) -> datetime:
    return BEGAN + timedelta(minutes=minutes)


async def made_erasures(db_url: str, *, signs: bool = True) -> None:
    """Round 1 of all but IDLE, round 2 of all but IDLE and DONE; three jobs, of which the second failed.

    Args:
        signs: whether the federator has a key; else there are no receipts.
    """
    sign = signed_by(KEY if signs else None)
    async with await open_migrated(db_url) as db:
        opening = RoundOpening(1, 0, 1, 10, 0.0, 60.0, at(0), at(1))
        stored = await founded(db, NAME, opening, 3, pseudonym_key=PSEUDONYM_KEY)
        epoch = stored.epoch

        async def erase(client_id: str, minutes: int) -> None:
            by = "operator" if client_id == WAITING else "device"
            request = ErasureRequest(client_id, pseudonym_of(client_id), at(minutes), by, at(minutes + 1))
            await erase_client(db, NAME, epoch, request)
            await note_key_destroyed(db, NAME, epoch, pseudonym_of(client_id))

        async def complete_round_of(*client_ids: str) -> None:
            number, base = stored.opening.number, stored.opening.base_version
            await stored.commit(updates=[stored.update(name, at(number), base_version=base) for name in client_ids])
            await stored.complete(at(number))

        def job(number: int, minutes: int) -> NewJob:
            return NewJob(number, "rollback", 1, 3, at(minutes), 0, 1, 2)

        await stored.join(WAITING, PAUSED, DONE, IDLE, STAYED)
        await stored.open()
        await complete_round_of(WAITING, PAUSED, DONE, STAYED)
        await complete_round_of(WAITING, PAUSED, STAYED)

        await erase(DONE, 10)
        await create_job(db, NAME, epoch, job(1, 12))
        for step in (1, 2):
            await commit_step(db, NAME, epoch, 1, JobStep(step, step, 2, bytes(12), coverage=0.5 * step))
        swap = JobCompletion(
            3, at(15), {"cosine": 0.75}, abandons=3, next_opening=replace(opening, number=4, base_version=3)
        )
        await complete_job(db, NAME, epoch, 1, swap, sign)

        await erase(IDLE, 20)
        await complete_erasure(db, NAME, epoch, pseudonym_of(IDLE), at(22), sign)

        await erase(PAUSED, 30)
        await create_job(db, NAME, epoch, job(2, 32))
        await fail_job(db, NAME, epoch, 2, "coverage 10%, of at least 50%", at(33))
        await create_job(db, NAME, epoch, job(3, 34))
        await commit_step(db, NAME, epoch, 3, JobStep(1, 1, 2, bytes(12), coverage=0.9))
        await pause_job(db, NAME, epoch, 3, PAUSE_REASON)

        await erase(WAITING, 40)


def tampered(folder: Path, statement: str) -> None:
    """Change ``foltr.sqlite`` in a folder as somebody would who may write it."""
    with contextlib.closing(sqlite3.connect(folder / "foltr.sqlite")) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)
        connection.commit()
