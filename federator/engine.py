"""Everything a federation's single writer decides, without I/O: who is a member, what counts, what to answer.

The shell (`federator.actor`) reads messages, asks the engine, commits what it decided in one transaction, and only
then sends the answers. The engine has changed its own state by then; if the commit cannot be made, the process
ends, and the next one starts from what is stored. So nothing here may be told to anyone before it is stored.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from broker.buffer import RefusedSender
from federator.clock import to_datetime
from federator.closing.stored_rules import stored_parameters
from federator.deciding.members import Members
from federator.plan import FederationPlan
from federator.reading import (
    ErasureAsked,
    MembershipAsked,
    OperatorSpoke,
    Reading,
    Refused,
    Signed,
    UnlearningAnswered,
    UpdateOffered,
)
from federator.reassembly import PartAnswered
from federator.round import Aggregate, AskedClients, Offer, Pacing, Record, Reject, Round, RoundState
from foltr.errors import MessageError
from foltr.protocol.client_selection import cutoff, round_seed
from foltr.protocol.enrolment import read_order
from foltr.protocol.orders import ForgetClient, LiftQuarantine, QuarantineClient, SetDeadline
from foltr.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.protocol.topics import ClientTopic
from foltr.protocol.updates import UnlearningUpdate
from storage.records import (
    DeadlineChange,
    MembershipChange,
    NewEvent,
    NewUpdate,
    QuarantineChange,
    RoundOpening,
)

Receipt = UpdateReceipt | MembershipReceipt | ErasureNotice
# Event rows about refusals from one batch that name a client each; a batch has up to 500 messages.
_MAX_REFUSALS = 50
MAX_STRANGERS = 10


@dataclass(frozen=True)
class Timed:
    """A reading and the moment its message arrived, in epoch seconds."""

    reading: Reading | PartAnswered
    at: float


@dataclass(frozen=True)
class ErasureWanted:
    """A client that is to be forgotten: its membership is over already. ``at`` is epoch seconds.

    Attributes:
        when_erased: of a stranger, who was never a member: to be called if anything is stored of it, once that is
            erased. With nothing stored it stays a stranger.
    """

    client_id: str
    pseudonym: str
    at: float
    by: Literal["device", "operator"]
    when_erased: Callable[[], None] | None = None


@dataclass
class Decided:
    """What one batch of messages amounts to: rows to store, then receipts to send.

    Attributes:
        erasures: to be made once the rest is stored.
        forgotten_again: clients that ask what became of their erasure.
        unlearned: answers of members to a step of an unlearning job.
        refused_forgets: clients whose request is not to stay at the broker: it would be obeyed some other day.
        leftovers: clients that were forgotten, and that the broker retains something of again.
        returned: whether a member is connected that was not.
        strangers_left: see `Engine.decide`.
    """

    updates: list[NewUpdate] = field(default_factory=list)
    membership: list[MembershipChange] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    withdrawn: list[tuple[int, str]] = field(default_factory=list)
    roster: tuple[int, bytes] | None = None
    deadline: DeadlineChange | None = None
    quarantines: list[QuarantineChange] = field(default_factory=list)
    operator_nonce: int | None = None
    erasures: list[ErasureWanted] = field(default_factory=list)
    forgotten_again: list[str] = field(default_factory=list)
    unlearned: list[UnlearningUpdate] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    refused_forgets: list[str] = field(default_factory=list)
    returned: bool = False
    strangers_left: int = MAX_STRANGERS
    _events: dict[tuple[str, ...], NewEvent] = field(default_factory=dict)
    _n_refusals: int = 0

    @property
    def events(self) -> list[NewEvent]:
        return list(self._events.values())

    def note(self, event: NewEvent) -> None:
        """Add an event; equal ones become one row that says how often, or a flood would fill the disk."""
        if event.code in (ReceiptCode.FORGOTTEN, ReceiptCode.FORGETTING):
            event = replace(event, client_id=None)  # its name is not to be written again
        key = (event.kind, str(event.code), str(event.client_id), str(event.round))
        if event.code is not None and key not in self._events and self._n_refusals >= _MAX_REFUSALS:
            # Whoever sends under a thousand names gets no thousand rows.
            key = (event.kind, event.code, "", "")
            event = replace(event, client_id=None, round=None, detail="many clients; the last one: " + event.detail)
        before = self._events.get(key)
        if before is None:
            self._n_refusals += event.code is not None
        else:
            event = replace(event, n=before.n + event.n)
        self._events[key] = event


class Engine:
    """The state of one federation.

    Attributes:
        round: the open round; None once the plan's last one has ended.
        ended: the newest round that has ended here.
        model_version: of the newest model.
    """

    def __init__(self, plan: FederationPlan) -> None:
        self._plan = plan
        self.members = Members(plan.federation, plan.enrolment_key)
        self.round: Round | None = None
        self.ended: Round | None = None
        self.model_version = 0
        # What was trained on an older model may hold what was unlearned since.
        self.oldest_base = 0
        self.selection_seed = b""
        self.operator_nonce = 0

    @property
    def current_round(self) -> Round:
        """The open round, or the last one where no other follows: it answers ``late`` and ``duplicate``."""
        current = self.round or self.ended
        if current is None:
            raise RuntimeError("the federation has no round yet")
        return current

    # --- messages -----------------------------------------------------------------------------------------

    def decide(
        self,
        timed: Sequence[Timed],
        stored: Mapping[tuple[str, str], int],
        now: float,
        strangers_left: int = MAX_STRANGERS,
    ) -> tuple[Decided, int]:
        """Decide on messages in order, until all are or the round is full; returns how many were taken.

        What is left belongs to the round that follows: nobody is told that a round is over before it is. It also ends
        with a stranger's erasure: whether the name may be used in the next message is not known before it is stored.

        Args:
            stored: (client_id, update_id) to the round it counts in, for those of the messages that are stored.
            strangers_left: so many names that nobody has may be looked for in the database; each takes a reading of it.
        """
        decided = Decided(strangers_left=strangers_left)
        was_open = self.round is not None and not self.round.full
        for n_taken, item in enumerate(timed):
            if was_open and self.round is not None and self.round.full:
                return decided, n_taken
            match item.reading:
                case UpdateOffered():
                    self._decide_update(item.reading, item.at, stored, decided)
                case MembershipAsked():
                    self._decide_membership(item.reading, item.at, decided)
                case ErasureAsked():
                    self._decide_erasure(item.reading, item.at, decided)
                case UnlearningAnswered():
                    self._decide_unlearned(item.reading, item.at, decided)
                case OperatorSpoke():
                    self._decide_operator(item.reading, now, decided)
                case Refused():
                    self._decide_refused(item.reading, item.at, decided)
                case PartAnswered():
                    self._answer_part(item.reading, item.at, decided)
            if decided.erasures and decided.erasures[-1].when_erased is not None:
                return decided, n_taken + 1
        return decided, len(timed)

    def _decide_update(
        self, reading: UpdateOffered, at: float, stored: Mapping[tuple[str, str], int], decided: Decided
    ) -> None:
        offer = reading.offer
        known = stored.get((offer.client_id, offer.update_id))
        if (known, offer.client_id) in decided.withdrawn:
            known = None
        try:
            self.members.check_sender(offer.client_id, reading.signed)
            decision: Record | Reject = self._outdated(offer, known) or self.current_round.decide(
                offer, at, stored_in_round=known
            )
        except MessageError as error:
            decision = Reject(ReceiptCode(error.code), error.detail)
        if isinstance(decision, Reject):
            decision = self._final(decision, known)
        if isinstance(decision, Record):
            decided.updates.append(
                NewUpdate(
                    round=self.current_round.number,
                    client_id=offer.client_id,
                    update_id=offer.update_id,
                    base_version=offer.base_version,
                    n_interactions=reading.n_interactions,
                    encoding=reading.encoding,
                    body=reading.body,
                    received_at=to_datetime(at),
                )
            )
            code, detail = ReceiptCode.ACCEPTED, ""
        else:
            code, detail = decision.code, decision.detail
            decided.note(
                NewEvent(to_datetime(at), "update_rejected", detail, code, offer.client_id, self._round_of(offer))
            )
        # Anybody may have sent what is not signed; naming the update would make its owner drop the genuine one. The
        # digest says which bytes of an update are meant: a device that is enrolled anew signs it once more.
        update_id = None if code is ReceiptCode.BAD_SIGNATURE else offer.update_id
        receipt = self._update_receipt(offer.client_id, update_id, code, detail)
        decided.receipts.append(receipt.model_copy(update={"payload_digest": reading.digest}))

    def _outdated(self, offer: Offer, counted_in: int | None) -> Reject | None:
        """Buffered rounds take updates of older models, but none that was made before an unlearned one."""
        if counted_in is not None or offer.base_version >= self.oldest_base or offer.round > self.current_round.number:
            return None
        recorded = self.current_round.contributions.get(offer.client_id) == offer.update_id
        if recorded or self.current_round.policy.pacing is not Pacing.BUFFERED:
            return None
        return Reject(
            ReceiptCode.STALE, f"trained on model {offer.base_version}; {self.oldest_base} was unlearned since"
        )

    def _final(self, refusal: Reject, counted_in: int | None) -> Reject:
        """The refusal, or what to say instead where a device must not train again on what is in the update."""
        if counted_in is not None and refusal.code in (ReceiptCode.REVOKED, ReceiptCode.QUARANTINED):
            # What counted before it counts, and the device may be enrolled anew or let out again.
            return Reject(ReceiptCode.DUPLICATE, f"counted once, in round {counted_in}")
        # Also once the last round has ended: the federation may be given more.
        buffered = self.current_round.policy.pacing is Pacing.BUFFERED
        if buffered and refusal.code in (ReceiptCode.LATE, ReceiptCode.ALREADY_CONTRIBUTED):
            # The next filling would take it, or a copy of it that is still on its way.
            return Reject(ReceiptCode.BUSY, f"{refusal.detail}; the next one may take it")
        return refusal

    def _round_of(self, offer: Offer) -> int:
        """The round an event is about: the one named, if it can be in the database."""
        return min(offer.round, self.current_round.number + 1)

    def _decide_membership(self, asked: MembershipAsked, at: float, decided: Decided) -> None:
        client_id, nonce = asked.client_id, asked.signed.nonce
        answered = asked.kind in ("joined", "left")
        if not answered and self.members.is_forgotten(client_id):
            decided.leftovers.append(client_id)  # its last will, say
            return
        try:
            change = self.members.apply(asked)
        except MessageError as error:
            code = ReceiptCode(error.code)
            detail = f"{asked.kind}: {error.detail}"
            decided.note(
                NewEvent(to_datetime(at), "message_refused", detail, code, client_id, self.current_round.number)
            )
            if answered:
                newest = self.members.newest_nonce(client_id) if code is ReceiptCode.REPLAYED else None
                decided.receipts.append(self._membership_receipt(client_id, code, error.detail, nonce, newest))
            return
        if answered:
            decided.receipts.append(self._membership_receipt(client_id, ReceiptCode(asked.kind), "", nonce))
        if change is None:
            return
        decided.returned |= change.news and change.kind in ("joined", "online")
        if change.news:
            decided.note(NewEvent(to_datetime(at), f"client_{change.kind}", client_id=client_id))
        decided.membership.append(
            MembershipChange(
                client_id,
                change.kind,
                to_datetime(at),
                nonce=nonce,
                sdk_version=asked.sdk_version,
                public_key=change.public_key,
                enrolment_serial=change.serial,
            )
        )

    def _decide_erasure(self, asked: ErasureAsked, at: float, decided: Decided) -> None:
        try:
            self._forget(asked.client_id, asked.signed, at, "device", decided)
        except MessageError as error:
            self._refuse_forget(asked.client_id, ReceiptCode(error.code), error.detail, at, decided)

    def _forget(
        self, client_id: str, signed: Signed | None, at: float, by: Literal["device", "operator"], decided: Decided
    ) -> None:
        if self.members.is_forgotten(client_id):
            # Whoever asks is told on a topic that only the client may read, and nothing that it had not been told.
            decided.forgotten_again.append(client_id)
            return
        pseudonym = self.members.pseudonym(client_id)
        if not self.members.check_forget(client_id, signed):
            if by == "device":
                if decided.strangers_left <= 0:
                    raise MessageError(ReceiptCode.BUSY, "too many unknown clients ask to be forgotten; ask again")
                decided.strangers_left -= 1
            when_erased = partial(self.members.forget, client_id)
            decided.erasures.append(ErasureWanted(client_id, pseudonym, at, by, when_erased))
            return
        self._withdraw(client_id, decided)
        self.members.forget(client_id)
        decided.erasures.append(ErasureWanted(client_id, pseudonym, at, by))

    def _refuse_forget(self, client_id: str, code: ReceiptCode, detail: str, at: float, decided: Decided) -> None:
        number = self.current_round.number
        # A stranger's name is not written down because it asked that nothing be known of it.
        named = client_id if self.members.is_known(client_id) else None
        decided.note(NewEvent(to_datetime(at), "message_refused", f"forget: {detail}", code, named, number))
        notice = ErasureNotice(federation=self._plan.federation, client_id=client_id, code=code, detail=detail)
        decided.receipts.append(notice)
        decided.refused_forgets.append(client_id)

    def _decide_unlearned(self, answered: UnlearningAnswered, at: float, decided: Decided) -> None:
        try:
            self.members.check_sender(answered.client_id, answered.signed)
        except MessageError as error:
            code, number = ReceiptCode(error.code), self.current_round.number
            detail = f"unlearning: {error.detail}"
            decided.note(NewEvent(to_datetime(at), "message_refused", detail, code, answered.client_id, number))
        else:
            decided.unlearned.append(answered.update)

    def _decide_operator(self, spoke: OperatorSpoke, now: float, decided: Decided) -> None:
        try:
            if spoke.what == "roster":
                self._adopt_roster(spoke.payload, now, decided)
            else:
                self._obey(spoke.payload, now, decided)
        except MessageError as error:
            kind = "roster_refused" if spoke.what == "roster" else "order_refused"
            decided.note(NewEvent(to_datetime(now), kind, error.detail, error.code, round=self.current_round.number))

    def _adopt_roster(self, payload: bytes, now: float, decided: Decided) -> None:
        adopted = self.members.adopt_roster(payload)
        if adopted is None:
            return
        roster, revoked = adopted
        at, current = to_datetime(now), self.current_round
        decided.roster = (roster.version, payload)
        decided.note(NewEvent(at, "roster_adopted", f"version {roster.version}, {len(roster.revoked)} revoked"))
        for client_id in revoked:
            decided.membership.append(MembershipChange(client_id, "revoked", at))
            decided.note(NewEvent(at, "client_revoked", client_id=client_id, round=current.number))
            self._withdraw(client_id, decided)

    def _withdraw(self, client_id: str, decided: Decided) -> None:
        """Take the client's update out of the open round, whether it is stored or was decided in this batch."""
        current = self.current_round
        if not current.withdraw(client_id):
            return
        in_batch = [item for item in decided.updates if item.client_id == client_id]
        for item in in_batch:
            decided.updates.remove(item)
            # It was to be told that it counts.
            decided.receipts = [
                receipt
                for receipt in decided.receipts
                if not (
                    isinstance(receipt, UpdateReceipt)
                    and (receipt.client_id, receipt.update_id) == (client_id, item.update_id)
                )
            ]
        if not in_batch:
            decided.withdrawn.append((current.number, client_id))

    def _obey(self, payload: bytes, now: float, decided: Decided) -> None:
        if self._plan.enrolment_key is None:
            raise MessageError(ReceiptCode.NOT_ENROLLED, "this federator knows no enrolment key to check an order with")
        order, nonce = read_order(payload, self._plan.enrolment_key, self._plan.federation)
        if isinstance(order, ForgetClient):
            # Valid for ever, as no name is used again once it is obeyed: it may have been printed and kept.
            try:
                self._forget(order.client_id, None, now, "operator", decided)
            except MessageError as error:
                self._refuse_forget(order.client_id, ReceiptCode(error.code), error.detail, now, decided)
            return
        if nonce <= self.operator_nonce:
            raise MessageError(ReceiptCode.REPLAYED, f"an order of nonce {nonce}; {self.operator_nonce} was seen")
        match order:
            case SetDeadline():
                self._set_deadline(order, now, decided)
            case QuarantineClient():
                self._quarantine(order, now, decided)
            case LiftQuarantine():
                self._lift_quarantine(order, now, decided)
        self.operator_nonce = decided.operator_nonce = nonce

    def _quarantine(self, order: QuarantineClient, now: float, decided: Decided) -> None:
        client_id, at = order.client_id, to_datetime(now)
        if not self.members.quarantine(client_id):
            return
        decided.quarantines.append(QuarantineChange(client_id, at, order.reason))
        number = self.current_round.number
        decided.note(NewEvent(at, "client_quarantined", order.reason, client_id=client_id, round=number))
        self._withdraw(client_id, decided)

    def _lift_quarantine(self, order: LiftQuarantine, now: float, decided: Decided) -> None:
        client_id, at = order.client_id, to_datetime(now)
        if not self.members.quarantine(client_id, lifted=True):
            return
        decided.quarantines.append(QuarantineChange(client_id, at, None))
        number = self.current_round.number
        decided.note(NewEvent(at, "quarantine_lifted", client_id=client_id, round=number))

    def _set_deadline(self, order: SetDeadline, now: float, decided: Decided) -> None:
        current = self.round
        if current is None or current.state is not RoundState.COLLECTING or order.round != current.number:
            open_now = "none is open" if current is None else f"round {current.number} is {current.state}"
            raise MessageError(ReceiptCode.UNKNOWN_ROUND, f"a deadline for round {order.round}; {open_now}")
        current.set_deadline(order.max_time_s, not_before=math.nextafter(now, math.inf))
        decided.deadline = DeadlineChange(
            order.round, to_datetime(current.opened_at), order.max_time_s, to_datetime(current.closes_at)
        )
        decided.note(
            NewEvent(to_datetime(now), "deadline_set", f"{order.max_time_s:g} s after the opening", round=order.round)
        )

    def _decide_refused(self, refused: Refused, at: float, decided: Decided) -> None:
        is_update = refused.topic in (ClientTopic.UPDATES, ClientTopic.CHUNKS)
        newest = self.current_round.number
        number = newest if refused.round is None else min(refused.round, newest + 1)
        kind = "update_rejected" if is_update else "message_refused"
        detail = refused.detail if is_update else f"{refused.topic}: {refused.detail}"
        named = None if self.members.is_forgotten(refused.client_id) else refused.client_id  # never to be written again
        decided.note(NewEvent(to_datetime(at), kind, detail, refused.code, named, number))
        if is_update:
            # By digest only: nobody has shown that it is from this client.
            receipt = self._update_receipt(refused.client_id, None, refused.code, refused.detail)
            decided.receipts.append(receipt.model_copy(update={"payload_digest": refused.payload_digest}))
        elif refused.topic is ClientTopic.FORGET:
            notice = ErasureNotice(
                federation=self._plan.federation, client_id=refused.client_id, code=refused.code, detail=refused.detail
            )
            decided.receipts.append(notice)
        elif refused.topic not in (ClientTopic.STATUS, ClientTopic.UNLEARNING):
            decided.receipts.append(self._membership_receipt(refused.client_id, refused.code, refused.detail))

    def _answer_part(self, answer: PartAnswered, at: float, decided: Decided) -> None:
        if answer.code is not ReceiptCode.INCOMPLETE:  # that one is no refusal, only how a large update goes on
            number = self.current_round.number
            decided.note(
                NewEvent(to_datetime(at), "update_rejected", answer.detail, answer.code, answer.client_id, number)
            )
        receipt = self._update_receipt(answer.client_id, None, answer.code, answer.detail)
        decided.receipts.append(
            receipt.model_copy(
                update={
                    "payload_digest": answer.payload_digest,
                    "missing": answer.missing,
                    "retry_after_s": answer.retry_after_s,
                }
            )
        )

    def answer_turned_away(
        self, senders: Sequence[RefusedSender], n_messages: int, now: float, decided: Decided
    ) -> None:
        """One event for all messages the intake had no room for, and a ``busy`` receipt for each known sender."""
        if not n_messages:
            return
        worst = max(senders, key=lambda sender: sender.n_messages, default=None)
        most = ""
        if worst is not None:
            who = worst.sender if self.members.is_known(worst.sender) else "unknown clients"  # no name: it has a space
            most = f"; most from {who}: {worst.n_messages} ({worst.cause})"
        decided.note(
            NewEvent(
                to_datetime(now),
                "intake_full",
                f"{n_messages} messages were turned away{most}",
                ReceiptCode.BUSY,
                round=self.current_round.number,
            )
        )
        for sender in senders:
            if not self.members.joined(sender.sender):
                continue
            receipt = self._update_receipt(
                sender.sender, None, ReceiptCode.BUSY, f"the intake is full ({sender.cause})"
            )
            decided.receipts.append(receipt.model_copy(update={"retry_after_s": sender.retry_after_s}))

    # --- rounds -------------------------------------------------------------------------------------------

    def open_round(self, number: int, base_version: int, now: float) -> tuple[Round, RoundOpening]:
        """A round about to open, and its row; it is current once `follow` says so."""
        policy = self._plan.policy
        asked = self._ask(number)
        opened = Round.open(number, base_version, policy, now, asked)
        return opened, RoundOpening(
            number=number,
            base_version=base_version,
            min_clients=policy.min_clients,
            max_clients=policy.max_clients,
            min_time_s=policy.min_time_s,
            max_time_s=policy.max_time_s,
            opened_at=to_datetime(now),
            closes_at=to_datetime(opened.closes_at),
            pacing=policy.pacing,
            staleness_limit=policy.staleness_limit,
            staleness_exponent=policy.staleness_exponent,
            selection_seed=None if asked is None else asked.seed,
            selection_cutoff=None if asked is None else asked.cutoff,
            n_selected=None if asked is None else asked.n_selected,
            n_eligible=None if asked is None else asked.n_eligible,
            aggregation=policy.rule.text,
            byzantine=policy.rule.byzantine,
            aggregation_parameters=stored_parameters(policy.rule),
            aggregation_fallback=policy.rule.fallback,
        )

    def following(self, base_version: int, now: float) -> tuple[Round | None, RoundOpening | None]:
        """The round after the current one; (None, None) if that is the plan's last."""
        number = self.current_round.number
        return (None, None) if self.is_last(number) else self.open_round(number + 1, base_version, now)

    def follow(self, following: Round | None, model_version: int) -> None:
        """The open round has ended, and that is stored: go on with the next one."""
        self.ended, self.round, self.model_version = self.round, following, model_version

    def serve_model(self, model_version: int) -> None:
        """There is another newest model, and no round open for it."""
        self.model_version = model_version

    def fills_round(self, now: float) -> bool:
        """Whether the open round can stop collecting, having enough updates."""
        return self.round is not None and self.round.next_step(now) == Aggregate()

    def is_last(self, number: int) -> bool:
        return self._plan.stop_after_round is not None and number >= self._plan.stop_after_round

    def _ask(self, number: int) -> AskedClients | None:
        policy = self._plan.policy
        if policy.n_wanted is None or policy.pacing is not Pacing.DEADLINE:
            return None
        online = list(self.members.online())
        seed = round_seed(self.selection_seed, number)
        return AskedClients(seed, cutoff(seed, online, policy.n_wanted), policy.n_wanted, len(online))

    # --- answers ------------------------------------------------------------------------------------------

    def _update_receipt(self, client_id: str, update_id: str | None, code: ReceiptCode, detail: str) -> UpdateReceipt:
        return UpdateReceipt(
            federation=self._plan.federation, client_id=client_id, update_id=update_id, code=code, detail=detail
        )

    def _membership_receipt(
        self,
        client_id: str,
        code: ReceiptCode,
        detail: str = "",
        nonce: int | None = None,
        newest_nonce: int | None = None,
    ) -> MembershipReceipt:
        return MembershipReceipt(
            federation=self._plan.federation,
            client_id=client_id,
            code=code,
            nonce=nonce,
            newest_nonce=newest_nonce,
            detail=detail,
        )
