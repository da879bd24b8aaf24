"""A device that is to be forgotten asks for that, hears how far it is, and deletes what it keeps itself.

A device sends `Forget` again until it is answered; the broker retains it meanwhile, so that it also reaches a
federator that comes back when the device is gone. Once the erasure is stored the broker needs nothing of this client
any more, and the device clears what is retained there. The federator does the same; but it cannot know of a request
that was on its way when it answered.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from edge_client.messaging.outbox import Outbox, is_set_within
from edge_client.messaging.session import Session
from edge_client.participation import Participation
from edge_client.store.store import DeviceStore
from foltr.errors import DataError, FoltrError, MessageError, UnavailableError
from foltr.logs import get_logger
from foltr.protocol.membership import Forget
from foltr.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.protocol.topics import ClientTopic

log = get_logger(__name__)

# The request or its answer may be lost; the request may be repeated.
FORGET_AGAIN_S = 3.0
ERASED = (ReceiptCode.FORGETTING, ReceiptCode.FORGOTTEN)
ENROL_AGAIN = "the name is not used again; to come back, enrol under another"

_NEXT_STEPS = {
    ReceiptCode.UNKNOWN_CLIENT: "If it never joined, refusals may name it: the operator erases these with "
    "`foltr forget NAME`; end the client and delete its store. If it has, ask the operator whether the federator runs "
    "on another database than it did",
    ReceiptCode.BAD_SIGNATURE: "The federation knows it by another key: use the credentials of its newest enrolment, "
    "and let it join with them first; or let the operator do it: `foltr forget`",
}


@dataclass(frozen=True)
class ForgetResult:
    """A result says what became of a request to be forgotten.

    Attributes:
        state: ``sent``: the federator has not answered yet; ``forgetting``: all of the client is erased but what is in
            the model; ``forgotten``: that too.
        receipt: the federation's signed proof (`foltr.erasure.receipt`), once it is forgotten.
        detail: what the federation has to say, such as by when the model without the client is due.
    """

    state: Literal["sent", "forgetting", "forgotten"]
    receipt: str | None = None
    detail: str = ""


class _Erasure(Enum):
    """How far the erasure of a client is, as its device knows."""

    NONE = "none"
    REQUESTED = "requested"
    STORED = "stored"


class Forgetting:
    """The erasure of one client, as far as its device has to do with it."""

    def __init__(self, outbox: Outbox, session: Session, participation: Participation, store: DeviceStore) -> None:
        self._outbox = outbox
        self._session = session
        self._participation = participation
        self._store = store
        self._erasure = _Erasure.STORED if store.forgotten else _Erasure.NONE
        self._had_left_before = False
        self._receipt: str | None = None
        self._detail = ""
        self._refusal: ErasureNotice | None = None
        self._done = asyncio.Event()
        # What the broker may retain; perhaps a run before this one could not clear it.
        self._retained = {ClientTopic.FORGET, ClientTopic.STATUS} if self.forgotten else set[ClientTopic]()

    @property
    def forgotten(self) -> bool:
        """The federation has erased this client, or is unlearning it; now or before a restart."""
        return self._erasure is _Erasure.STORED

    @property
    def waiting(self) -> bool:
        """The federation was asked for the erasure, and has not answered."""
        return self._erasure is _Erasure.REQUESTED

    @property
    def is_clearing(self) -> bool:
        """The broker retains something of this client still, as far as it knows."""
        return bool(self._retained)

    # --- what arrives ---------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Delete what the device keeps: the federation has erased this client. If that fails, `finish` tries again."""
        if not self.forgotten:
            self._retained = {ClientTopic.FORGET, ClientTopic.STATUS}
        self._erasure = _Erasure.STORED
        self._delete()

    def take_notice(self, notice: ErasureNotice) -> None:
        """Take an answer to a request, or the news of one that the operator made.

        Raises:
            MessageError: ``malformed``, if the receipt is no text.
        """
        if notice.code in ERASED:
            self._detail = notice.detail
        if notice.code is ReceiptCode.FORGOTTEN:
            try:
                self._receipt = None if notice.receipt is None else notice.receipt.decode("ascii")
            except UnicodeDecodeError as error:
                raise MessageError(ReceiptCode.MALFORMED, "the receipt is not the text of a signature") from error
            self._done.set()
        elif notice.code not in (ReceiptCode.FORGETTING, ReceiptCode.BUSY):  # busy: it is asked again anyway
            self._refusal = notice

    # --- what to do -----------------------------------------------------------------------------------------

    async def ask(self, timeout_s: float) -> ForgetResult:
        """Ask as `EdgeClient.forget_me` says."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        if not self.waiting:
            self._had_left_before = self._participation.left
        self._take_refusal()
        self._participation.left = True  # first: an update that is due must not follow the request
        try:
            if not self._done.is_set():
                await self._send()
        except UnavailableError:
            self._participation.left = self._had_left_before or self.waiting or self.forgotten
            raise
        if not self.forgotten:
            self._erasure = _Erasure.REQUESTED
        while not await is_set_within(self._done, min(FORGET_AGAIN_S, give_up_at - loop.time())):
            # Looked at only now: it may answer what somebody else sent in this name, and ours is answered as well.
            refusal = self._take_refusal()
            if refusal is not None and not self.forgotten:
                await self._take_back()
                raise _refused(refusal)
            if loop.time() >= give_up_at:
                break
            try:
                await self._send()
            except UnavailableError as error:
                log.debug("will_send_again", what=Forget.kind_name, cause=str(error))
        await self.finish(connected=True)
        if self._done.is_set():
            return ForgetResult("forgotten", self._receipt, self._detail)
        return ForgetResult("forgetting" if self.forgotten else "sent", detail=self._detail)

    async def finish(self, *, connected: bool) -> None:
        """Delete and clear what could not be before. What fails again is for the next time."""
        if self.forgotten and not self._store.forgotten:
            self._delete()
        for topic in sorted(self._retained) if connected else ():
            try:
                await self._outbox.clear(topic)
            except UnavailableError as error:
                log.debug("retained_not_cleared", what=str(topic), cause=str(error))
                return
            self._retained.discard(topic)

    def _delete(self) -> None:
        try:
            if not self._store.forgotten:
                self._store.forget()
        except DataError as error:
            log.error("store_not_deleted", client_id=self._session.client_id, cause=str(error))  # noqa: TRY400

    async def _send(self) -> None:
        forget = Forget(federation=self._session.federation, client_id=self._session.client_id)
        # What is stored already need not be held for anybody.
        await self._outbox.publish(ClientTopic.FORGET, forget, retain=not self.forgotten)

    def _take_refusal(self) -> ErasureNotice | None:
        refusal, self._refusal = self._refusal, None
        return refusal

    async def _take_back(self) -> None:
        """Go on as a client; the broker must not show the request to the next federator, which might obey it."""
        self._erasure, self._participation.left = _Erasure.NONE, self._had_left_before
        self._retained = {ClientTopic.FORGET}
        await self.finish(connected=True)


def _refused(notice: ErasureNotice) -> FoltrError:
    otherwise = "Let the operator do it: `foltr forget`"
    return FoltrError(
        f"client {notice.client_id} cannot be forgotten by {notice.federation!r}: {notice.code}: {notice.detail}. "
        f"{_NEXT_STEPS.get(ReceiptCode(notice.code), otherwise)}"
    )
