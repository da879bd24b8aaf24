"""A federation with secure sums: its actor on a real database, its clients, and its helpers, all in one process."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from support.federator_without_network import Served
from support.helpers_by_hand import PlayedHelper
from support.secure_cohorts import FEDERATION, Contribution, MaskingClient, SecureFederation
from support.waiting import PATIENCE_S

from foltr.broker.link import InboundMessage
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import Message
from foltr.core.protocol.policies import GaussianNoise
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import MaskedVector, ModelUpdate
from foltr.core.secure.field import write_words
from foltr.storage.records import RoundRow
from foltr.storage.rounds import find_round

CLIP_NORM = 2.56
"""A step of the grid is a hundredth, with a bound of 256."""
# Norm proofs are checked in a thread, for as long as that takes.
PAUSE_S = 0.002
# Next to no noise: a model shows what it was made of.
QUIET = {"epsilon": 1e6, "noise": GaussianNoise(variance=1)}


@dataclass(frozen=True)
class SigningDevice:
    """A client as it speaks with the federator."""

    client_id: str
    key: SigningKey
    enrolment: bytes

    def payload(self, topic: ClientTopic, message: Message, sequence: int) -> bytes:
        return encode(message, Topics(FEDERATION).client(self.client_id, topic), sequence, self.key)


class Heard:
    """What devices hear of rounds: each that was announced, and whether it was open when it was last."""

    def __init__(self, rounds: "SecureRounds") -> None:
        self.rounds: list[RoundAnnouncement] = []
        self.open: dict[int, bool] = {}
        rounds.served.actor.attach(self)

    def announce(self, _model: object, announced: RoundAnnouncement, *_others: object) -> None:
        self.rounds.append(announced)
        self.open[announced.round] = announced.open

    @property
    def newest(self) -> tuple[int, bool, bool]:
        announced = self.rounds[-1]
        return announced.round, announced.open, announced.last


@dataclass
class SecureRounds:
    """The federation, and what is said in it."""

    federation: SecureFederation
    start_actor: Callable[..., Any]
    served: Served
    helpers: list[PlayedHelper]
    clients: list[MaskingClient]
    sent: dict[str, Contribution] = field(default_factory=dict)

    @property
    def state(self) -> RoundState:
        return self.served.actor.state.current_round.state

    @property
    def number(self) -> int:
        return self.served.actor.state.current_round.number

    def device(self, client: MaskingClient) -> SigningDevice:
        return SigningDevice(client.name, client.key, client.enrolment)

    def update(
        self,
        client: MaskingClient,
        participation: int | None = None,
        vector: Collection[int] | None = None,
        number: int | None = None,
        update: dict[str, Any] | None = None,
        **ticket: Any,
    ) -> ModelUpdate:
        """Make what a client sends to the open round, with other fields of the update or the ticket if given."""
        current = self.served.actor.state.current_round
        number = current.number if number is None else number
        members = self.served.actor.state.members
        participation = participation or (members.counted_through(client.name) or 0) + 1
        fields = {"update_id": f"{number:028x}{participation:04x}"} | ticket
        integers = None if vector is None else np.array(list(vector), np.int64)
        policy = fields.pop("policy", current.terms.policy if current.terms else self.federation.policy)
        made = self.federation.contribute(client, number, participation, policy=policy, vector=integers, **fields)
        self.sent[client.name] = made
        values, proof = (write_words(words) for words in (made.masked, made.proof))
        body = MaskedVector(dim=made.masked.size, values=values, ticket=made.ticket, proof=proof)
        return ModelUpdate(
            federation=FEDERATION,
            client_id=client.name,
            update_id=f"{number:028x}{participation:04x}",
            round=number,
            base_version=current.base_version,
            after=min(members.counted_through(client.name) or 0, participation - 1),
            through=participation,
            base_hash=self.served.actor.state.model_hashes[current.base_version],
            n_interactions=1,
            body=body,
        ).model_copy(update=update or {})

    def send(self, client: MaskingClient, **changes: Any) -> None:
        self.served.receive(self.device(client), ClientTopic.UPDATES, self.update(client, **changes))

    async def send_all(self, clients: Collection[MaskingClient] | None = None) -> None:
        for client in self.clients if clients is None else clients:
            self.send(client)
        await self.served.turn()

    async def answer(self, *, without: Collection[str] = (), cohort: int | None = None) -> None:
        """Carry what was sent to the helpers, and their answers back: of this cohort alone, where one is named."""
        for request in self.served.requests.take():
            for helper in self.helpers:
                is_carried = helper.pair.name not in without and cohort in (None, request.cohort)
                if helper.pair.name == request.helper and is_carried:
                    for payload in helper.answer(request):
                        self.hear(helper.topic, payload)
        await self.served.turn()

    def hear(self, topic: str, payload: bytes) -> None:
        self.served.actor.receive(InboundMessage(topic, payload, retained=False))

    async def until_closed(self, number: int = 1, *, without: Collection[str] = ()) -> RoundRow:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                row = await find_round(self.served.db, FEDERATION, number)
                assert row is not None
                if row.closed_at is not None:
                    return row
                await self.answer(without=without)
                await asyncio.sleep(PAUSE_S)

    async def until(self, state: RoundState, *, without: Collection[str] = ()) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.state is not state:
                await self.answer(without=without)
                await asyncio.sleep(PAUSE_S)

    async def restart(self) -> None:
        clock = self.served.clock
        self.served = await self.start_actor()
        self.served.clock.at = clock.at
        await self.served.turn()

    def publish(self, policy: SignedPolicy) -> None:
        for helper in self.helpers:
            helper.hear(policy)
        self.hear(f"foltr/v1/{FEDERATION}/policy", policy.signed)
