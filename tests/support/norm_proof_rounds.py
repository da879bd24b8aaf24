"""Rounds whose updates prove their norms, for tests: devices and helpers that lie, and what is found of them."""

import math
from collections.abc import Callable

import numpy as np
from sqlalchemy import select
from support.helpers_by_hand import TOPICS, PlayedHelper, turned
from support.secure_federation import CLIP_NORM

from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.helper_messages import CheckAnswer
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.orders import QuarantineClient, RevokeClient
from foltr.core.protocol.signed_orders import issue_order
from foltr.core.protocol.topics import ClientTopic
from foltr.core.secure.norm_proof import proof_shape, prove_norm
from foltr.storage.models import latest_model
from foltr.storage.queries import list_events
from foltr.storage.tables import updates

SHAPE = proof_shape(3, 256)
TOO_LONG = np.array([256 * 50, 0, 0])


async def started(secure, n_clients=5, **changed):
    return await secure(n_clients, proofs=True, **changed)


def forged(vector):
    """What a device sends as the proof of a vector that is too long: that of another one, put right where it can be."""
    return prove_norm(np.clip(vector, -100, 100), SHAPE)


def lie(rounds, client, vector=TOO_LONG, **changed) -> None:
    rounds.send(client, vector=vector, proof=forged(vector), **changed)


async def model_of(rounds) -> np.ndarray:
    model = await latest_model(rounds.served.db, "mail")
    return unpack_vector(model.weights).astype(np.float64)


def mean_of(rounds, clients) -> np.ndarray:
    return sum(rounds.sent[client.name].vector for client in clients) * (CLIP_NORM / 256 / len(clients))


async def faults(rounds) -> list[str]:
    async with rounds.served.db.reading() as connection:
        found = await connection.scalars(select(updates.c.fault).where(updates.c.fault.is_not(None)))
        return sorted(map(str, found))


async def refused(rounds) -> list[str | None]:
    """Of whom an event tells that it was taken out."""
    events = await list_events(rounds.served.db, "mail")
    return [event.client_id for event in events if event.kind == "ticket_refused"]


class AlteringHelper(PlayedHelper):
    """A helper that alters what it says of proofs by ``change``; ``n_left`` times, then no more."""

    change: Callable[[bytes], bytes]
    n_left: float

    def alter(self, _request, message):
        if not isinstance(message, CheckAnswer) or self.n_left <= 0:
            return message
        self.n_left -= 1
        return message.model_copy(update={"proofs": self.change(message.proofs)})


def alter(rounds, change, n_left=math.inf) -> None:
    """Have altered what the second helper says of proofs, page by page."""
    rounds.helpers[1] = turned(rounds.helpers[1], AlteringHelper, change=change, n_left=n_left)


def zeros(proofs: bytes) -> bytes:
    """What a helper that lies says: no proof holds then."""
    return bytes(len(proofs))


async def forget(rounds, client) -> None:
    wish = Forget(federation="mail", client_id=client.name)
    rounds.served.receive(rounds.device(client), ClientTopic.FORGET, wish)
    await rounds.served.turn()
    rounds.served.clock.at += 1.0
    await rounds.served.turn()


def order(rounds, kind, client_id) -> None:
    made = (
        QuarantineClient(federation="mail", client_id=client_id, reason="it lies")
        if kind == "quarantine"
        else RevokeClient(federation="mail", client_id=client_id, void_below=99)
    )
    rounds.hear(TOPICS.operator, issue_order(rounds.federation.operator, made, 1).payload)
