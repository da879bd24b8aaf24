"""Rounds in a database, stored by the service's own transactions."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from foltr.storage.arrivals import commit_batch
from foltr.storage.database import Database
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.records import Batch, MembershipChange, NewModel, NewUpdate, RoundOpening
from foltr.storage.rounds import begin_aggregation, complete_round, open_round


@dataclass
class StoredRounds:
    """A federation whose models have ``dim`` values; ``opening`` is of its newest round."""

    db: Database
    name: str
    epoch: int
    opening: RoundOpening
    dim: int

    async def commit(self, **batch: Any) -> None:
        await commit_batch(self.db, self.name, self.epoch, Batch(**batch))

    async def join(self, *names: str, **more: Any) -> None:
        at = self.opening.opened_at
        await self.commit(membership=[MembershipChange(name, "joined", at, **more) for name in names])

    async def open(self) -> None:
        await open_round(self.db, self.name, self.epoch, self.opening)

    def update(self, client_id: str, at: datetime, **more: Any) -> NewUpdate:
        """An update of five interactions to the newest round, by a client that was in each before."""
        number = self.opening.number
        covers = 5 * number - 5, 5 * number
        made = NewUpdate(number, client_id, f"{client_id}{number}", 0, *covers, 5, "dense_f32", bytes(4 * self.dim), at)
        return replace(made, **more)

    async def complete(self, at: datetime, *, following: RoundOpening | None = None, **made: Any) -> None:
        number, version = self.opening.number, self.opening.base_version + 1
        await begin_aggregation(self.db, self.name, self.epoch, number)
        following = replace(following or self.opening, number=number + 1, base_version=version)
        model = NewModel(version, bytes(4 * self.dim), **made)
        await complete_round(self.db, self.name, self.epoch, number, model, at, following)
        self.opening = following


async def founded(db: Database, name: str, opening: RoundOpening, dim: int = 1, **more: Any) -> StoredRounds:
    await create_federation(db, name, dim, "linear", bytes(4 * dim), opening.opened_at, **more)
    return StoredRounds(db, name, await claim_federation(db, name, 0.0), opening, dim)
