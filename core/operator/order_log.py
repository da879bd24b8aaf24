"""The log of an operator's orders: a folder with the signed bytes of each, and of the federator's answer to it.

    00000007.order     order 7, on disk before it is sent
    00000007.answer    the federator's answer; without it, each command sends the order again

Numbers without a file were lost: the folder was restored from a backup, and the federator knows later orders.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foltr.core.errors import MessageError, SettingsError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.operator.credentials import write_secret
from foltr.core.protocol.codec import decode, open_envelope
from foltr.core.protocol.operator_keys import TrustedOperatorKey
from foltr.core.protocol.orders import (
    AllowReset,
    ForgetClient,
    ForgetTombstone,
    Order,
    OrderAnswer,
    VoidOrder,
    named_client,
)
from foltr.core.protocol.signed_orders import SignedOrder, issue_order, read_order
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.core.user_files import FileKind, read_file


@dataclass(frozen=True)
class LoggedOrder:
    """One order for ``foltr operator orders``; without an answer if the federator has not answered yet."""

    signed: SignedOrder
    answer: OrderAnswer | None


class OrderLog:
    """The orders of one operator's folder, whose lock is held.

    Args:
        folder: of the orders alone; created with the first one.
        key: the enrolment key, which signs them.
        operator: the keys that signed those in the folder; None: ``key``.
    """

    def __init__(
        self, folder: Path, federation: str, key: SigningKey, operator: TrustedOperatorKey | None = None
    ) -> None:
        self._folder = folder
        self._federation = federation
        self._key = key
        self._operator = operator or key.public
        names = [path for path in folder.iterdir() if path.stem.isdecimal()] if folder.is_dir() else []
        self._orders = {int(path.stem) for path in names if path.suffix == ".order"}
        self._answered = {int(path.stem) for path in names if path.suffix == ".answer"}

    @property
    def newest(self) -> int:
        """The number of the newest order; 0 before the first."""
        return max(self._orders, default=0)

    def write(self, order: Order, above: int = 0) -> SignedOrder:
        """Give an order the next number, which is higher than ``above``, sign it, and write it."""
        signed = self._put(max(self.newest, above) + 1, order)
        failpoint(Failpoint.ORDER_WRITTEN)
        return signed

    def get(self, number: int) -> SignedOrder | None:
        """Return an order, or None."""
        if number not in self._orders:
            return None
        path = self._path(number, "order")
        try:
            read = read_order(read_file(path, FileKind.MESSAGE), self._operator, self._federation)
        except (OSError, MessageError) as error:
            raise SettingsError(f"operator: {path} is damaged ({error}); restore it from a backup") from error
        if not isinstance(read, SignedOrder):
            raise SettingsError(f"operator: {path} is damaged (it is no order); restore it from a backup")
        # It was renamed, and the process was killed before it was signed again (`renumber`).
        return read if read.number == number else self._put(number, read.order)

    def after(self, number: int) -> Iterator[SignedOrder]:
        """Read the orders above ``number``, in order."""
        for later in sorted(order for order in self._orders if order > number):
            signed = self.get(later)
            if signed is not None:
                yield signed

    def is_answered(self, number: int) -> bool:
        return number in self._answered

    def unanswered(self) -> list[SignedOrder]:
        """List the orders that the federator has not answered, in order."""
        waiting = sorted(self._orders - self._answered)
        return [signed for number in waiting if (signed := self.get(number)) is not None]

    def entries(self) -> Iterator[LoggedOrder]:
        """Read every order with its answer, in order."""
        for signed in self.after(0):
            yield LoggedOrder(signed, self._answer(signed.number))

    def lost(self) -> list[range]:
        """List the numbers below the newest that no order here has, as ranges."""
        ranges, last = [], 0
        for number in sorted(self._orders):
            if number > last + 1:
                ranges.append(range(last + 1, number))
            last = number
        return ranges

    def record_answer(self, number: int, payload: bytes) -> None:
        """Store the federator's answer to an order; the first one stands."""
        if number not in self._answered:
            write_secret(self._path(number, "answer"), payload, replace=True)
            self._answered.add(number)

    def redact_client(self, client_id: str, salt: bytes, tombstone: bytes) -> None:
        """Remove a forgotten client's name from all orders; orders without names replace them."""
        for signed in self.after(0):
            order = signed.order
            if named_client(order) != client_id:
                continue
            if isinstance(order, ForgetClient):
                stands_for = ForgetTombstone(
                    federation=self._federation,
                    salt=salt,
                    tombstone=tombstone,
                    serial=order.serial,
                    replaces=signed.digest,
                )
                self._put(signed.number, stands_for)
            else:
                self._put(signed.number, VoidOrder(federation=self._federation, replaces=signed.digest))

    def order_or_void(self, number: int) -> SignedOrder:
        """Return the order for a federator that has none of this number.

        If it was lost here, a void order replaces it. So it does for an answered order to reset: the database was
        restored, and nobody has looked at what the job that now has this number would lose.
        """
        signed = self.get(number)
        if signed is None:
            return self._put(number, VoidOrder(federation=self._federation))
        if isinstance(signed.order, AllowReset) and self.is_answered(number):
            return self._put(number, VoidOrder(federation=self._federation, replaces=signed.digest))
        if not open_envelope(signed.payload).is_signed_by(self._key.public, Topics(self._federation).operator):
            return self._put(number, signed.order)  # by a former key, which the federator no longer trusts
        return signed

    def renumber(self, first: int, newest: int) -> dict[int, int]:
        """Renumber the unanswered orders from ``first`` on, above ``newest``; return the new number of each.

        Renaming is one step, so that an order has one number even if this is interrupted; `get` signs it again. Their
        sequence stays, so the highest goes first.
        """
        moved, offset = {}, newest + 1 - first
        for number in sorted((n for n in self._orders - self._answered if n >= first), reverse=True):
            self._path(number, "order").rename(self._path(number + offset, "order"))
            self._orders.remove(number)
            self._orders.add(number + offset)
            moved[number] = number + offset
            self.get(number + offset)
        return moved

    def _put(self, number: int, order: Order) -> SignedOrder:
        signed = issue_order(self._key, order, number)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_secret(self._path(number, "order"), signed.payload, replace=True)
        self._orders.add(number)
        return signed

    def _answer(self, number: int) -> OrderAnswer | None:
        if number not in self._answered:
            return None
        path = self._path(number, "answer")
        try:
            # Its signature was checked on arrival; the federator's key may have changed since.
            return decode(read_file(path, FileKind.MESSAGE), OrderAnswer)
        except (OSError, MessageError) as error:
            raise SettingsError(f"operator: {path} is damaged ({error}); restore it from a backup") from error

    def _path(self, number: int, kind: str) -> Path:
        return self._folder / f"{number:08d}.{kind}"
