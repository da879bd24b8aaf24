"""A database with one round that a rule closed, a proposal and a quarantine, as a federator would leave it."""

from datetime import UTC, datetime, timedelta

from support.databases import open_migrated
from support.stored_rounds import founded

from foltr.storage.records import NewAggregation, NewEvent, NewFate, QuarantineChange, RoundOpening

OPENED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KRUM = {"aggregation": "krum", "byzantine": 1.0}
FATES = (
    NewFate("a", "kept", 0.75, 1.5, ""),
    NewFate("b", "clipped", 0.25, 3.0, "norm 3 of at most 1"),
    NewFate("c", "dropped", 0.0, 9.0, "far from its neighbours"),
)


async def made_history(db_url: str, federation: str) -> None:
    """Clients a, b and c; round 1 fell back from Krum to the median; b is in quarantine, c proposed for it."""
    at = OPENED + timedelta(seconds=30)
    opening = RoundOpening(1, 0, 2, 10, 0.0, 60.0, OPENED, OPENED + timedelta(seconds=60), **KRUM)
    async with await open_migrated(db_url) as db:
        stored = await founded(db, federation, opening)
        await stored.open()
        await stored.join(*"abc")
        await stored.commit(updates=[stored.update(name, at) for name in "abc"])
        parameters = '{"n": 3.0, "m": 1.0}'
        made = NewAggregation("median", parameters, "krum needs 5 updates, 3 arrived", FATES)
        proposals = [
            NewEvent(at, "quarantine_proposed", "far away in 9 of 10 rounds", client_id=name, round=1) for name in "bc"
        ]
        await stored.complete(at, aggregation=made, events=proposals)
        await stored.commit(
            quarantines=[QuarantineChange("b", at, "it flips signs")],
            events=[NewEvent(at, "client_quarantined", "it flips signs", client_id="b", round=2)],
        )
