"""Holds what a batch of messages amounts to: rows to store, then receipts to send, then what follows from both."""

from dataclasses import dataclass, field, replace

from foltr.core.erasure.states import Requester
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.updates import UnlearningUpdate
from foltr.federator.round import RecordedUpdate
from foltr.storage.records import (
    DeadlineChange,
    MembershipChange,
    NewEvent,
    NewOrder,
    NewUpdate,
    QuarantineChange,
    ResetAllowed,
)
from foltr.storage.sum_records import PolicyRecord

Receipt = UpdateReceipt | MembershipReceipt | ErasureNotice | OrderAnswer
# Event rows about refusals from one batch that name a client each; a batch has up to 500 messages.
_MAX_REFUSALS = 50


@dataclass(frozen=True)
class ErasureWanted:
    """A client that is to be forgotten. ``at`` is epoch seconds.

    Attributes:
        is_stranger: it was never a member. Only storage knows whether anything is stored of it, and so whether there
            is anything to erase; a member's membership is over already.
        order: the operator's order for it, which is stored with the erasure.
    """

    client_id: str
    pseudonym: str
    at: float
    by: Requester
    is_stranger: bool = False
    order: NewOrder | None = None


@dataclass
class Decisions:
    """The decisions on one batch of messages.

    Attributes:
        erasures: to be made once the rest is stored; what became of each is fed back
            (`FederationState.erasure_stored`).
        forgotten_again: clients that ask what became of their erasure.
        unlearned: answers of members to a step of an unlearning job.
        refused_forgets: clients whose request is not to stay at the broker: it would be obeyed some other day.
        leftovers: clients that were forgotten, and that the broker retains something of again.
        policy: a newer policy of the operator.
        breaks_set: whether a client is to leave a set that helpers were asked to open: the round is abandoned before
            anything else of this is stored.
        returned: whether a member takes part, and is connected, that did not or was not.
    """

    updates: list[NewUpdate] = field(default_factory=list)
    membership: list[MembershipChange] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    withdrawn: list[tuple[int, str]] = field(default_factory=list)
    roster: tuple[int, bytes] | None = None
    deadline: DeadlineChange | None = None
    allowed_reset: ResetAllowed | None = None
    quarantines: list[QuarantineChange] = field(default_factory=list)
    orders: list[NewOrder] = field(default_factory=list)
    erasures: list[ErasureWanted] = field(default_factory=list)
    forgotten_again: list[str] = field(default_factory=list)
    unlearned: list[UnlearningUpdate] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    refused_forgets: list[str] = field(default_factory=list)
    policy: PolicyRecord | None = None
    breaks_set: bool = False
    returned: bool = False
    _events: dict[tuple[str, ...], NewEvent] = field(default_factory=dict)
    _n_refusals: int = 0

    @property
    def events(self) -> list[NewEvent]:
        return list(self._events.values())

    @property
    def excluded(self) -> list[str]:
        """The clients that were revoked or quarantined: what they have said counts nowhere that is still open."""
        revoked = [change.client_id for change in self.membership if change.kind == "revoked"]
        return revoked + [change.client_id for change in self.quarantines if change.reason is not None]

    @property
    def ends_batch(self) -> bool:
        """Whether what is decided next depends on an erasure that is not stored yet: a stranger's, or an order's."""
        newest = self.erasures[-1] if self.erasures else None
        return newest is not None and (newest.is_stranger or newest.order is not None)

    @property
    def stranger(self) -> ErasureWanted | None:
        """The stranger whose erasure ends the batch: what is next depends on what is stored of it."""
        newest = self.erasures[-1] if self.erasures else None
        return newest if newest is not None and newest.is_stranger else None

    def note(self, event: NewEvent) -> None:
        """Add an event; equal ones become one row that says how often, or a flood would fill the disk."""
        if event.code in (ReceiptCode.FORGOTTEN, ReceiptCode.FORGETTING):
            event = replace(event, client_id=None)  # its name is not to be written again
        key = (event.kind, str(event.code), str(event.client_id), str(event.round))
        if event.code is not None and key not in self._events and self._n_refusals >= _MAX_REFUSALS:
            # A sender with a thousand names gets no thousand rows.
            key = (event.kind, event.code, "", "")
            event = replace(event, client_id=None, round=None, detail="many clients; the last one: " + event.detail)
        before = self._events.get(key)
        if before is None:
            self._n_refusals += event.code is not None
        else:
            event = replace(event, n=before.n + event.n)
        self._events[key] = event

    def take_ready_receipts(self) -> list[Receipt]:
        """Hand over the receipts that no erasure of this batch can change: those of whom none is about."""
        leaving = {wanted.client_id for wanted in self.erasures}
        ready: list[Receipt] = [
            one for one in self.receipts if not isinstance(one, OrderAnswer) and one.client_id not in leaving
        ]
        self.receipts = [one for one in self.receipts if isinstance(one, OrderAnswer) or one.client_id in leaving]
        return ready

    def withdraw(self, number: int, client_id: str, withdrawn: RecordedUpdate) -> None:
        """Have the client's update taken out of a round, whether it is stored or was decided in this batch.

        What else the client is told in this batch is told with the watermark that holds without the update.
        """
        own = [receipt for receipt in self.receipts if _is_to(receipt, client_id)]
        if any(update.client_id == client_id for update in self.updates):
            self.updates = [update for update in self.updates if update.client_id != client_id]
            own = [receipt for receipt in own if not _is_about(receipt, withdrawn)]  # it was to be told that it counts
        else:
            self.withdrawn.append((number, client_id))
        others = [receipt for receipt in self.receipts if not _is_to(receipt, client_id)]
        self.receipts = others + [_without(withdrawn, receipt) for receipt in own]


def _is_to(receipt: Receipt, client_id: str) -> bool:
    return not isinstance(receipt, OrderAnswer) and receipt.client_id == client_id


def _is_about(receipt: Receipt, withdrawn: RecordedUpdate) -> bool:
    """Tell whether a receipt says that an update counts which was never stored."""
    return isinstance(receipt, UpdateReceipt) and receipt.update_id == withdrawn.update_id


def _without(withdrawn: RecordedUpdate, receipt: Receipt) -> Receipt:
    """Give a receipt with the watermark that holds without an update which was never stored."""
    if isinstance(receipt, ErasureNotice):
        return receipt
    return receipt.model_copy(update={"counted_through": withdrawn.after})
