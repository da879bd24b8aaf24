"""Decides on arrivals, message by message; each kind's rules are in `foltr.federator.deciding`.

The shell (`foltr.federator.actor`) reads messages, has them decided, commits the decisions in one transaction, and only
then sends the answers. The state has changed by then; if the commit fails, the process ends, and the next one starts
from the database. So no decision may become visible before it is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from foltr.broker.buffer import RefusedSender
from foltr.core.erasure.states import Requester
from foltr.core.protocol.topics import Topics
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.erasure import decide_erasure
from foltr.federator.deciding.membership import decide_membership
from foltr.federator.deciding.orders import decide_order
from foltr.federator.deciding.policies import decide_policy, decide_roster
from foltr.federator.deciding.refusals import answer_part, answer_turned_away, decide_refused
from foltr.federator.deciding.state import FederationState
from foltr.federator.deciding.updates import decide_unlearned, decide_update
from foltr.federator.reading import (
    ChunkAnswer,
    ReceivedErasureRequest,
    ReceivedMembership,
    ReceivedStatement,
    ReceivedUnlearningUpdate,
    ReceivedUpdate,
    RefusedMessage,
)
from foltr.storage.records import NewOrder, StoredUpdate

MAX_STRANGERS = 10
Decidable = (
    ReceivedUpdate
    | ReceivedMembership
    | ReceivedErasureRequest
    | ReceivedUnlearningUpdate
    | ReceivedStatement
    | RefusedMessage
    | ChunkAnswer
)


class Timed(NamedTuple):
    """A reading and the moment its message arrived, in epoch seconds."""

    reading: Decidable
    at: float


@dataclass(frozen=True)
class Backlog:
    """Messages that have arrived and are not decided on yet.

    Attributes:
        stored: what is stored of the messages' updates, by (client_id, update_id).
        turned_away: senders of messages that did not fit the intake; they are answered too.
        n_turned_away: the number of these messages.
        orders: the operator's orders among the messages that were carried out or refused before.
        strangers_left: see `foltr.federator.deciding.erasure.decide_erasure`.
    """

    messages: Sequence[Timed]
    stored: Mapping[tuple[str, str], StoredUpdate] = field(default_factory=dict)
    turned_away: Sequence[RefusedSender] = ()
    n_turned_away: int = 0
    orders: Mapping[int, NewOrder] = field(default_factory=dict)
    strangers_left: int = MAX_STRANGERS

    @property
    def is_empty(self) -> bool:
        return not self.messages and not self.n_turned_away

    def knowing(self, orders: Sequence[NewOrder]) -> "Backlog":
        """The same messages, once these orders are stored."""
        if not orders:
            return self
        return replace(self, orders={**self.orders, **{order.number: order for order in orders}})


def decide(state: FederationState, backlog: Backlog, now: float) -> tuple[Decisions, Backlog]:
    """Decide on messages in order, until all are decided or the round is full; also return the rest.

    The rest belongs to the next round: no sender hears that a round is over before it is. Deciding also stops at a
    stranger's erasure, because until it is stored nobody knows whether the name may be used in the next message. And it
    stops at an order to forget, because the next order's number must follow a stored one.
    """
    decisions, n_taken = Decisions(), 0
    was_open = state.round is not None and not state.round.full
    for timed in backlog.messages:
        _decide_one(state, timed, backlog, now, decisions)
        n_taken += 1
        is_filled = was_open and state.round is not None and state.round.full
        if is_filled or decisions.ends_batch:
            break
    answer_turned_away(state, backlog.turned_away, backlog.n_turned_away, now, decisions)
    return decisions, _rest(backlog, n_taken, decisions)


def _decide_one(state: FederationState, timed: Timed, backlog: Backlog, now: float, decisions: Decisions) -> None:
    at = timed.at
    match timed.reading:
        case ReceivedUpdate() as update:
            decide_update(state, update, at, backlog.stored, decisions)
        case ReceivedMembership() as claim:
            decide_membership(state, claim, at, decisions)
        case ReceivedErasureRequest() as request:
            decide_erasure(state, request, at, backlog.strangers_left, decisions)
        case ReceivedUnlearningUpdate() as answer:
            decide_unlearned(state, answer, at, decisions)
        case ReceivedStatement(topic=topic, payload=payload) if topic == Topics(state.federation).operator:
            decide_order(state, payload, backlog.orders, now, decisions)
        case ReceivedStatement(topic=topic, payload=payload) if topic == Topics(state.federation).policy:
            decide_policy(state, payload, now, decisions)
        case ReceivedStatement(payload=payload):
            decide_roster(state, payload, now, decisions)
        case RefusedMessage() as refused:
            decide_refused(state, refused, at, decisions)
        case ChunkAnswer() as part:
            answer_part(state, part, at, decisions)


def _rest(backlog: Backlog, n_taken: int, decisions: Decisions) -> Backlog:
    """Return the undecided messages, with what is stored once these decisions are."""
    withdrawn = set(decisions.withdrawn)
    stored = {key: update for key, update in backlog.stored.items() if (update.round, key[0]) not in withdrawn}
    stored |= {(new.client_id, new.update_id): StoredUpdate(new.round, counts=True) for new in decisions.updates}
    has_looked = decisions.stranger is not None and decisions.stranger.by is Requester.DEVICE
    return Backlog(
        backlog.messages[n_taken:],
        stored,
        orders=backlog.orders,
        strangers_left=backlog.strangers_left - has_looked,
    )
