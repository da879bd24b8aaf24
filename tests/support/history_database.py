"""A database with one round that a rule closed, a proposal and a quarantine, as a federator would leave it."""

import dataclasses
from datetime import UTC, datetime, timedelta

from support.databases import open_migrated

from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.records import (
    Batch,
    MembershipChange,
    NewAggregation,
    NewEvent,
    NewFate,
    NewModel,
    NewUpdate,
    QuarantineChange,
    RoundOpening,
)
from foltr.storage.rounds import begin_aggregation, complete_round, open_round

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
        await create_federation(db, federation, 1, "linear", bytes(4), OPENED)
        epoch = await claim_federation(db, federation, 0.0)
        joined = [MembershipChange(name, "joined", OPENED) for name in "abc"]
        await open_round(db, federation, epoch, opening)
        sent = [NewUpdate(1, name, f"{name}1", 0, 0, 5, 5, "dense_f32", bytes(4), at) for name in "abc"]
        await commit_batch(db, federation, epoch, Batch(updates=sent, membership=joined))
        await begin_aggregation(db, federation, epoch, 1)
        parameters = '{"n": 3.0, "m": 1.0}'
        made = NewAggregation("median", parameters, "krum needs 5 updates, 3 arrived", FATES)
        proposals = [
            NewEvent(at, "quarantine_proposed", "far away in 9 of 10 rounds", client_id=name, round=1) for name in "bc"
        ]
        model = NewModel(1, bytes(4), aggregation=made, events=proposals)
        following = dataclasses.replace(opening, number=2, base_version=1)
        await complete_round(db, federation, epoch, 1, model, at, following)
        quarantine = Batch(
            quarantines=[QuarantineChange("b", at, "it flips signs")],
            events=[NewEvent(at, "client_quarantined", "it flips signs", client_id="b", round=2)],
        )
        await commit_batch(db, federation, epoch, quarantine)
