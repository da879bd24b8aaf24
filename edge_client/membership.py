"""A device's membership in its federation, until the device ends it."""

import asyncio
import time

from foltr.core.errors import UnavailableError
from foltr.core.logs import get_logger
from foltr.core.protocol.membership import Leave
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.messaging.outbox import Outbox, is_set_within
from foltr.edge_client.participation import Participation
from foltr.edge_client.session import Session

log = get_logger(__name__)

# The receipt of a leave may be lost; repeating the leave is safe.
_LEAVE_AGAIN_S = 3.0
# Refusals that the device overcomes by joining again.
_PASSING = (ReceiptCode.REPLAYED, ReceiptCode.BUSY)


class Membership:
    """One device's membership. It joins by itself (`foltr.edge_client.participation`), and leaves on request.

    Attributes:
        left: set once the federator has confirmed it.
        has_joined: the federator has accepted it, since this object was made.
        refusal: why the federator refuses it, if only its operator can change that.
    """

    def __init__(self, outbox: Outbox, session: Session, participation: Participation) -> None:
        self._outbox = outbox
        self._session = session
        self._participation = participation
        self.left = asyncio.Event()
        self.has_joined = False
        self.refusal: MembershipReceipt | None = None

    async def leave(self, timeout_s: float) -> bool:
        """See `EdgeClient.leave`."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        leave = Leave(federation=self._session.federation, client_id=self._session.client_id)
        self._participation.left = True  # first: a join that is due must not follow the leave
        try:
            await self._outbox.publish(ClientTopic.LEAVE, leave)
        except UnavailableError:
            self._participation.left = False
            raise
        try:
            while not await is_set_within(self.left, min(_LEAVE_AGAIN_S, give_up_at - loop.time())):
                if loop.time() >= give_up_at:
                    log.warning("leave_not_confirmed", client_id=self._session.client_id)
                    break
                await self._outbox.publish(ClientTopic.LEAVE, leave)
            await self._outbox.clear(ClientTopic.STATUS)
        except UnavailableError as error:
            log.warning("leave_not_finished", client_id=self._session.client_id, cause=str(error))
        return self.left.is_set()

    def receive_receipt(self, receipt: MembershipReceipt) -> None:
        """Take the receipt of a join or a leave of this session."""
        if receipt.code is ReceiptCode.LEFT:
            self.left.set()
        elif receipt.code is ReceiptCode.JOINED:
            self.has_joined, self.refusal = True, None
        else:
            self.refusal = None if receipt.code in _PASSING else receipt
            log.error("join_refused", client_id=self._session.client_id, code=receipt.code, detail=receipt.detail)
        if receipt.code is ReceiptCode.REPLAYED and receipt.newest_sequence is not None:
            self._session.begin_above(receipt.newest_sequence)
        self._participation.receive_membership_receipt(receipt, time.monotonic())
