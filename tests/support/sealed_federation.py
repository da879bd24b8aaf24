"""A federation of three devices whose updates are sealed: it has no network, and its rounds are completed by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from support.databases import open_migrated
from support.federator_without_network import GENEROUS, Served
from support.made_updates import made_update
from support.unlearning_steps import forget

from foltr.core.protocol.codec import encode
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.trainings import EvolutionTraining
from foltr.core.protocol.updates import EvolutionPair, ModelUpdate
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.keys import KeyStore

NAMES = ("alice", "bob", "carol")
TRAINING = EvolutionTraining(noise_scale=0.1, server_learning_rate=0.5)


class Device:
    """One that signs nothing."""

    enrolment = None

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id

    def payload(self, topic: ClientTopic, message, sequence: int) -> bytes:
        return encode(message, Topics("mail").client(self.client_id, topic), sequence, None)

    def update(self, number: int, base: int, update_id: str, after: int) -> ModelUpdate:
        rng = np.random.default_rng([number, NAMES.index(self.client_id)])
        plus, minus = (float(x) for x in rng.random(2))
        body = EvolutionPair(seed=int(rng.integers(2**40)), plus=plus, minus=minus)
        covered = {"after": after, "through": after + 5}
        return made_update(
            body, client_id=self.client_id, update_id=update_id, round=number, base_version=base, **covered
        )


class SealedFederation:
    """Federation mail, of FOLtR-ES, and its newest completed round."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._devices = {name: Device(name) for name in NAMES}
        self.newest = 0

    async def start(self) -> None:
        await self._served.actor.start()
        await self._served.join(self._devices.values())

    async def learn(self, n_rounds: int) -> None:
        for _ in range(n_rounds):
            self.newest += 1
            for device in self._devices.values():
                self._served.update(device, self.newest, self.newest - 1)
            await self._served.turn()

    async def forget(self, name: str) -> None:
        await forget(self._served, self._devices.pop(name))
        await self._served.turn()


@asynccontextmanager
async def sealed_federation(url: str, keys: Path) -> AsyncIterator[SealedFederation]:
    """Begin one in a database, whose data keys are in this folder."""
    async with await open_migrated(url, KeyStore(keys)) as db:
        plan = FederationPlan("mail", 5, RoundPolicy(3, 3, 0.0, 60.0), TRAINING)
        served = Served(db, plan, GENEROUS)
        federation = SealedFederation(served)
        await federation.start()
        try:
            yield federation
        finally:
            # What an erasure still purges has the database open.
            await served.actor.close()
