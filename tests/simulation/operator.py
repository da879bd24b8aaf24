"""The operator of a simulated federation: gives orders until they are answered, and publishes the roster."""

from typing import TYPE_CHECKING

from simulation.device import FEDERATION
from simulation.promises import BrokenPromiseError

from foltr.core.protocol.enrolment import issue_roster
from foltr.core.protocol.orders import Order, OrderAnswer, OrderReply
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signed_orders import SignedOrder, issue_order

if TYPE_CHECKING:
    from simulation.world import World

_SEND_AGAIN_S = 30.0
_SALT = bytes(32)


class SimulatedOperator:
    """Remembers what it ordered and what it was told."""

    def __init__(self, world: "World") -> None:
        self._world, self._broker, self._schedule = world, world.broker, world.schedule
        self._orders: dict[int, SignedOrder] = {}
        self._told: dict[int, OrderReply] = {}
        self._is_sending = False
        self.n_rosters = 0

    @property
    def unanswered(self) -> list[SignedOrder]:
        return [order for number, order in self._orders.items() if number not in self._told]

    def give(self, order: Order, *, twice: bool = False) -> None:
        """Send an order, now and until it is answered; ``twice``: somebody sends it once more, whatever the answer."""
        signed = issue_order(self._world.enrolment_key, order, len(self._orders) + 1)
        self._orders[signed.number] = signed
        self._send(signed)
        if twice:
            self._schedule.after(20.0 * self._world.rng.random(), lambda: self._send(signed))
        self._send_again_later()

    def send_unanswered(self) -> None:
        for signed in self.unanswered:
            self._send(signed)

    def forget_answers(self) -> None:
        """Send every order again: the database was put back, and what was told may not be so any more."""
        self._told.clear()
        self._send_again_later()

    def hear(self, answer: OrderAnswer) -> None:
        """Hear the federator; what it tells must be stored, and the same each time."""
        if answer.reply is OrderReply.MISSING:
            for number in range(answer.newest + 1, answer.number + 1):
                self._schedule.after(0.1, lambda signed=self._orders[number]: self._send(signed))
            return
        if answer.reply not in (OrderReply.OBEYED, OrderReply.REFUSED):
            raise BrokenPromiseError("an order of the operator is read", f"{answer.number}: {answer.reply}")
        if self._world.store.order_outcome(answer.number) != (str(answer.reply), answer.digest):
            raise BrokenPromiseError("an order's outcome is stored before it is told", f"order {answer.number}")
        if self._told.setdefault(answer.number, answer.reply) is not answer.reply:
            raise BrokenPromiseError("an order has one outcome", f"order {answer.number} is {answer.reply} now")

    def publish_roster(self, revoked: dict[str, int]) -> None:
        """Retain the newest roster; ``revoked``: the highest serial of each client that is void."""
        entries = [Revocation(client_id=name, void_below=serial + 1) for name, serial in sorted(revoked.items())]
        roster = Roster(
            federation=FEDERATION, version=self.n_rosters, through=0, revoked=entries, salt=_SALT, forgotten=[]
        )
        self._broker.publish(self._world.topics.roster, issue_roster(self._world.enrolment_key, roster), retain=True)

    def _send(self, signed: SignedOrder) -> None:
        self._broker.publish(self._world.topics.operator, signed.payload)

    def _send_again_later(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            self._schedule.after(_SEND_AGAIN_S, self._send_again)

    def _send_again(self) -> None:
        self._is_sending = False
        if self.unanswered:
            self.send_unanswered()
            self._send_again_later()
