"""A whole federation on this machine: broker, operator, federator, database, and devices' credentials."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.broker.embedded import embedded_broker
from foltr.core.operator.credentials import BrokerAccess, Credentials, device_identity
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.trainings import Training
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.database import Database
from foltr.storage.migrate import upgrade
from foltr.storage.models import list_models

NAME: Final = "desktop-search"
_LONGEST_ROUND_S: Final = 60.0


@dataclass(frozen=True)
class Federation:
    """A running federation.

    Attributes:
        credentials: of its devices, by name.
        federating: ends with the last round.
    """

    credentials: dict[str, Credentials]
    federating: asyncio.Task[None]
    database: Database

    async def models(self) -> list[NDArray[np.float32]]:
        """Return the weights of all announced models, oldest first."""
        rows = await list_models(self.database, NAME, limit=1_000_000)
        return [unpack_vector(row.weights) for row in rows]


@asynccontextmanager
async def running_federation(
    names: Sequence[str],
    schema: FeatureSchema,
    training: Training,
    n_rounds: int,
    folder: Path,
    first_weights: NDArray[np.float32] | None = None,
) -> AsyncIterator[Federation]:
    """Run a federation whose rounds end when all devices have sent.

    Args:
        folder: for its database.
        first_weights: (features,) of the model it begins with; None: zeros.
    """
    operator, federator = SigningKey.generate(), SigningKey.generate()
    policy = RoundPolicy(len(names), len(names), 0.0, _LONGEST_ROUND_S)
    plan = FederationPlan(
        NAME,
        schema.n_features,
        policy,
        training,
        stop_after_round=n_rounds,
        enrolment_key=operator.public,
        schema=schema,
        first_weights=None if first_weights is None else pack_vector(first_weights),
    )
    with embedded_broker() as address:
        access = BrokerAccess(broker_url=str(address), username=address.username, password=address.password)
        credentials = {
            name: device_identity(operator, federator.public, NAME, name, serial, access)
            for serial, name in enumerate(names, start=1)
        }
        async with await Database.connect(f"sqlite:///{folder}/federation.sqlite") as database:
            await upgrade(database)
            service = FederatorService(plan, database, address, key=federator, give_up_after_s=_LONGEST_ROUND_S)
            async with asyncio.TaskGroup() as group:
                yield Federation(credentials, group.create_task(service.run()), database)
