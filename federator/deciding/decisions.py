"""Holds the decisions on a batch of messages: rows to store, then receipts to send, then what follows from both."""

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
# How many event rows about refusals in one batch name a client; a batch has up to 500 messages.
_MAX_REFUSALS = 50


@dataclass(frozen=True)
class PendingErasure:
    """A client to be forgotten. ``at`` is epoch seconds.

    Attributes:
        is_stranger: it was never a member, so only storage knows whether it has data to erase.
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
        erasures: made once the rest is stored; each outcome is fed back (`FederationState.note_erasure`).
        forgotten_again: clients that ask for the outcome of their erasure.
        unlearned: answers of members to a step of an unlearning job.
        refused_forgets: clients whose retained request must be cleared, or it could be accepted later.
        leftovers: forgotten clients of which the broker again retains something.
        policy: a newer policy of the operator.
        breaks_set: whether a client leaves a set that helpers were asked to open: the round is abandoned first.
        returned: whether a member now takes part and is connected that did not or was not.
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
    erasures: list[PendingErasure] = field(default_factory=list)
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
        """The clients that were revoked or quarantined: their updates no longer count in anything still open."""
        revoked = [change.client_id for change in self.membership if change.kind == "revoked"]
        return revoked + [change.client_id for change in self.quarantines if change.reason is not None]

    @property
    def ends_batch(self) -> bool:
        """Whether the next decision depends on an erasure that is not stored yet: a stranger's, or an ordered one."""
        newest = self.erasures[-1] if self.erasures else None
        return newest is not None and (newest.is_stranger or newest.order is not None)

    @property
    def stranger(self) -> PendingErasure | None:
        """The stranger whose erasure ends the batch, because the next decision depends on what is stored of it."""
        newest = self.erasures[-1] if self.erasures else None
        return newest if newest is not None and newest.is_stranger else None

    def note(self, event: NewEvent) -> None:
        """Add an event; equal ones become one row with a count, or a flood would fill the disk."""
        if event.code in (ReceiptCode.FORGOTTEN, ReceiptCode.FORGETTING):
            event = replace(event, client_id=None)  # its name must not be stored again
        key = (event.kind, str(event.code), str(event.client_id), str(event.round))
        if event.code is not None and key not in self._events and self._n_refusals >= _MAX_REFUSALS:
            # A sender with a thousand names does not get a thousand rows.
            key = (event.kind, event.code, "", "")
            event = replace(event, client_id=None, round=None, detail="many clients; the last one: " + event.detail)
        before = self._events.get(key)
        if before is None:
            self._n_refusals += event.code is not None
        else:
            event = replace(event, n=before.n + event.n)
        self._events[key] = event

    def pop_ready_receipts(self) -> list[Receipt]:
        """Return and clear the receipts that no erasure of this batch can change: those to other clients."""
        leaving = {wanted.client_id for wanted in self.erasures}
        ready: list[Receipt] = [
            one for one in self.receipts if not isinstance(one, OrderAnswer) and one.client_id not in leaving
        ]
        self.receipts = [one for one in self.receipts if isinstance(one, OrderAnswer) or one.client_id in leaving]
        return ready

    def withdraw(self, number: int, client_id: str, withdrawn: RecordedUpdate) -> None:
        """Take a client's update out of a round, whether it is stored or was decided in this batch.

        The client's other receipts of this batch get the watermark without the update.
        """
        own = [receipt for receipt in self.receipts if _is_to(receipt, client_id)]
        if any(update.client_id == client_id for update in self.updates):
            self.updates = [update for update in self.updates if update.client_id != client_id]
            own = [receipt for receipt in own if not _is_about(receipt, withdrawn)]  # drop its acceptance
        else:
            self.withdrawn.append((number, client_id))
        others = [receipt for receipt in self.receipts if not _is_to(receipt, client_id)]
        self.receipts = others + [_without(withdrawn, receipt) for receipt in own]


def _is_to(receipt: Receipt, client_id: str) -> bool:
    return not isinstance(receipt, OrderAnswer) and receipt.client_id == client_id


def _is_about(receipt: Receipt, withdrawn: RecordedUpdate) -> bool:
    """Tell whether a receipt accepts an update that was never stored."""
    return isinstance(receipt, UpdateReceipt) and receipt.update_id == withdrawn.update_id


def _without(withdrawn: RecordedUpdate, receipt: Receipt) -> Receipt:
    """Return a receipt with the watermark without an update that was never stored."""
    if isinstance(receipt, ErasureNotice):
        return receipt
    return receipt.model_copy(update={"counted_through": withdrawn.after})
