"""Databases that pages are looked at with: a federation that learns, and what may be wrong with it."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import update
from support.api_server import FEDERATION
from support.databases import open_migrated
from support.stored_rounds import founded

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.protocol.evaluations import Evaluation
from foltr.storage import records
from foltr.storage.arrivals import commit_batch
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.erasure.erasures import erase_client, note_key_destroyed
from foltr.storage.erasure_records import ErasureRequest
from foltr.storage.federations import claim_federation
from foltr.storage.lease_tables import leases
from foltr.storage.leases import take_lease
from foltr.storage.rounds import abandon_round

LEADER = "north:47:5e0c93b2"
_KEY = bytes(range(32))


async def many_rounds(db_url, n_rounds=40, n_devices=5, quorum=2):
    """As many rounds of some devices, every tenth without a model; the newest lacks one update of its quorum."""
    now = datetime.now(UTC).replace(microsecond=0)
    began = now - timedelta(seconds=61 * n_rounds)
    names = [f"device-{i}" for i in range(n_devices)]
    async with await open_migrated(db_url) as db:
        opening = records.RoundOpening(1, 0, quorum, n_devices, 0.0, 600.0, began, began + timedelta(seconds=600))
        stored = await founded(db, FEDERATION, replace(opening, aggregation="adaptive"), pseudonym_key=_KEY)
        await stored.open()
        await stored.join(*names, sdk_version="0.1.0")
        await stored.commit(events=[records.NewEvent(began, "federator_started")])
        marks = dict.fromkeys(names, 0)

        def sent(name, at, update_id, **more):
            covers = {"covers_after": marks[name], "covers_through": marks[name] + 5}
            base = stored.opening.base_version
            return stored.update(name, at, update_id=update_id, base_version=base, **covers, **more)

        for number in range(1, n_rounds + 1):
            at = began + timedelta(seconds=61 * number)
            fails = number % 10 == 0
            # From the quorum to all of them, so that bars differ.
            n_sent = 1 if fails else quorum + round((n_devices - quorum) * (0.5 + 0.5 * math.sin(2.4 * number)))
            some = [names[(number + i) % n_devices] for i in range(n_sent)]
            learned = 0.72 - 0.24 * math.exp(-number / 12) + 0.015 * math.sin(1.7 * number)
            does = Evaluation(clicked=0.8, reward=learned, base_reward=0.5 + 0.01 * math.sin(2.9 * number))
            late = [records.NewEvent(at, "update_rejected", "too late", "late", names[-1], number)] * (number % 3)
            await stored.commit(updates=[sent(name, at, f"{number}", evaluation=does) for name in some], events=late)
            following = replace(stored.opening, opened_at=at, closes_at=at + timedelta(seconds=600))
            if fails:
                stored.opening = replace(following, number=number + 1)
                await abandon_round(db, FEDERATION, stored.epoch, number, "too_few_clients", at, stored.opening)
                continue
            marks |= {name: marks[name] + 5 for name in some}
            await stored.complete(at, following=following, aggregation=_fates(some, number))
        await stored.commit(updates=[sent(name, now, "new") for name in names[: quorum - 1]])


def _fates(names, number):
    """The last one of every fourth round is shortened, of every ninth left out."""
    odd = "clipped" if number % 4 == 0 else "dropped" if number % 9 == 0 else "kept"
    why = {"clipped": "norm 3.2 of at most 1", "dropped": "far from its neighbours", "kept": ""}
    n = len(names)
    rest = [records.NewFate(name, "kept", 1 / n, 0.4, "") for name in names[:-1]]
    return records.NewAggregation(
        "mean", "{}", None, [*rest, records.NewFate(names[-1], odd, 0.0 if odd == "dropped" else 1 / n, 3.2, why[odd])]
    )


async def led(db):
    """A leader has led for an hour, and its lease lasts as long as leases do here: nobody renews it."""
    await take_lease(db, FEDERATION, LEADER)
    async with db.transaction() as connection:
        await connection.execute(update(leases).values(taken_at=datetime.now(UTC) - timedelta(hours=1)))


async def leaderless(db):
    """The leader was killed half a minute ago."""
    await take_lease(db, FEDERATION, LEADER)
    async with db.transaction() as connection:
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        await connection.execute(update(leases).values(taken_at=long_ago, expires_at=DatabaseNow(-30.0)))


async def flooded(db, n=20_000):
    """A stranger sent as many malformed updates to round 39, and one device many that were late."""
    at, epoch = datetime.now(UTC) - timedelta(seconds=30), await claim_federation(db, FEDERATION, 0.0)
    junk = [records.NewEvent(at, "update_rejected", "no message of this protocol", "malformed", "mallory", 39, n)]
    slow = [records.NewEvent(at, "update_rejected", "too late", "late", "device-3", 39, 240)]
    await commit_batch(db, FEDERATION, epoch, records.Batch(events=[*junk, *slow]))


async def quarantined(db, name="device-2"):
    """One device is in quarantine, and another offline."""
    at, epoch = datetime.now(UTC) - timedelta(seconds=30), await claim_federation(db, FEDERATION, 0.0)
    gone = records.MembershipChange("device-1", "offline", at, status_sequence=1, sequence=1)
    out = records.QuarantineChange(name, at, "it flips signs")
    noted = [records.NewEvent(at, "client_quarantined", "it flips signs", client_id=name, round=40)]
    await commit_batch(db, FEDERATION, epoch, records.Batch(membership=[gone], quarantines=[out], events=noted))


async def erased(db, name="device-4"):
    """One device was erased: past rounds count fewer updates than they closed with."""
    at, epoch = datetime.now(UTC) - timedelta(seconds=30), await claim_federation(db, FEDERATION, 0.0)
    await erase_client(db, FEDERATION, epoch, ErasureRequest(name, pseudonym(_KEY, name), at, "device", at))
    await note_key_destroyed(db, FEDERATION, epoch, pseudonym(_KEY, name))
