"""The dialogue of an operator's command and the federator about orders: what to send, and how to react. No I/O.

All unanswered orders are sent in the order of their numbers, again and again until they are answered. Two answers ask
for more. `missing` comes from a federator whose database was restored, and asks for the orders that it has lost.
`diverged` comes from one that knows other orders under our numbers; this folder then continues above them. Only answers
signed by the federator count, and each names the bytes that it answers, so a replayed answer changes nothing.
"""

import secrets
from dataclasses import dataclass, field

from foltr.core.errors import DataError, MessageError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.operator.authority import Authority
from foltr.core.protocol.orders import OrderAnswer, OrderReply
from foltr.core.protocol.signed_orders import SignedOrder, digest_of, read_answer

_CHALLENGE_BYTES = 16


@dataclass
class NewestOrderQuery:
    """The dialogue of a command that first asks how far the federator knows this operator.

    Attributes:
        answer: names the newest order and serial that it knows.
    """

    authority: Authority
    answer: OrderAnswer | None = None
    _challenge: bytes = field(default_factory=lambda: secrets.token_bytes(_CHALLENGE_BYTES))

    @property
    def is_over(self) -> bool:
        return self.answer is not None

    def to_send(self) -> list[bytes]:
        """What to publish now, and again after a while."""
        return [self.authority.question(self._challenge)]

    def received(self, payload: bytes) -> list[bytes]:
        """Take an answer; DataError if the federator trusts another operator."""
        try:
            answer = read_answer(payload, self.authority.federation, *self.authority.federator_keys)
        except MessageError:
            return []  # anybody may have sent it
        if answer.reply is OrderReply.UNREAD and answer.digest == digest_of(self.to_send()[0]):
            raise DataError(
                f"the federator does not accept {self.authority.folder}: {answer.code}, {answer.detail}. Is this "
                "folder a copy from before its enrolment key was rotated? Restore a newer one"
            )
        if answer.reply is OrderReply.NEWEST and answer.challenge == self._challenge:
            self.answer = answer
        return []


@dataclass
class OrderDialogue:
    """The dialogue of one command.

    Attributes:
        number: of the command's order; changes if this folder continues above others. None: all unanswered orders.
        answer: the federator's answer to it.
        resent: numbers of orders that had been answered before, and that the federator requested again.
        lost: numbers under which the federator knows other orders.
    """

    authority: Authority
    number: int | None
    answer: OrderAnswer | None = None
    resent: set[int] = field(default_factory=set)
    lost: range = range(0)
    _challenge: bytes = b""
    _first_diverged: int = 0
    _answered: dict[bytes, SignedOrder] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the order and every one before it have answers."""
        if self.number is None:
            return not self.authority.orders.unanswered()
        return self.answer is not None

    def to_send(self) -> list[bytes]:
        """What to publish now, and again after a while: all unanswered orders, in order."""
        return [self._sent(signed) for signed in self.authority.orders.unanswered()]

    def received(self, payload: bytes) -> list[bytes]:
        """Take an answer; return what to publish in reaction.

        Raises:
            DataError: the federator cannot read our orders; nothing is sent again.
        """
        try:
            answer = read_answer(payload, self.authority.federation, *self.authority.federator_keys)
        except MessageError:
            return []  # anybody may have sent it
        if answer.reply is OrderReply.NEWEST:
            return self._renumber_above(answer)
        signed = self._answered.get(answer.digest)
        if signed is None:
            return []  # about orders of another command
        match answer.reply:
            case OrderReply.OBEYED | OrderReply.REFUSED:
                self._take(signed, answer, payload)
                return []
            case OrderReply.MISSING:
                return self._missing(answer.newest + 1, signed.number)
            case OrderReply.DIVERGED:
                return self._ask_newest(signed.number)
            case OrderReply.UNREAD:
                raise DataError(f"the federator refuses this order: {answer.code}, {answer.detail}")

    def _take(self, signed: SignedOrder, answer: OrderAnswer, payload: bytes) -> None:
        failpoint(Failpoint.ORDER_ANSWERED)
        self.authority.record_answer(signed, answer, payload)
        failpoint(Failpoint.ORDER_NOTED)
        if signed.number == self.number:
            self.answer = answer

    def _missing(self, first: int, number: int) -> list[bytes]:
        """Send what the federator has not seen, up to the order that it could not carry out without."""
        orders = [self.authority.orders.order_or_void(missing) for missing in range(first, number + 1)]
        self.resent.update(signed.number for signed in orders if self.authority.orders.is_answered(signed.number))
        return [self._sent(signed) for signed in orders]

    def _ask_newest(self, number: int) -> list[bytes]:
        if self._challenge:
            return []  # the question was already asked
        self._challenge, self._first_diverged = secrets.token_bytes(_CHALLENGE_BYTES), number
        return [self.authority.question(self._challenge)]

    def _renumber_above(self, answer: OrderAnswer) -> list[bytes]:
        if not self._challenge or answer.challenge != self._challenge:
            return []  # the answer to another question, perhaps an old one
        self._challenge = b""
        moved = self.authority.renumber_above(self._first_diverged, answer)
        self.lost = range(self._first_diverged, answer.newest + 1)
        self.number = None if self.number is None else moved.get(self.number, self.number)
        return self.to_send()

    def _sent(self, signed: SignedOrder) -> bytes:
        self._answered[signed.digest] = signed
        return signed.payload
