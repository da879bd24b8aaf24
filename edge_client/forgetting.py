"""A device that should be forgotten asks for that, follows the progress, and deletes its own data.

The wish is on the device's disk before it is sent. It is sent again over every connection, with growing pauses, until a
receipt arrives; nothing else is sent meanwhile. The broker retains the wish, so that it reaches a federator that
returns after the device is gone. Once the erasure is stored, the device clears what the broker retains of this client.
The federator does the same, but cannot know of a request that was under way when it answered.

After the receipt, the device asks once more at each start, and when the federation begins another epoch: the
federation's database may be restored from a backup that still has the client.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from foltr.core.erasure.states import ForgetState
from foltr.core.errors import DataError, FoltrError, MessageError, UnavailableError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.logs import get_logger
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.events import ForgetStateChanged, Observer
from foltr.edge_client.messaging.outbox import Outbox, is_set_within
from foltr.edge_client.participation import Participation
from foltr.edge_client.session import Session
from foltr.edge_client.store.store import DeviceStore

log = get_logger(__name__)

# The request or its answer may be lost; repeating the request is safe.
FORGET_AGAIN_S = 3.0
# While nobody waits: the first pause between two requests, which doubles, and the longest.
_PAUSES_S: Final = {
    ForgetState.ASKED: (FORGET_AGAIN_S, 120.0),
    ForgetState.SENT: (FORGET_AGAIN_S, 120.0),
    ForgetState.ERASING: (FORGET_AGAIN_S, 120.0),
    # The federator announces the finished model; this is in case that message is lost.
    ForgetState.FORGETTING: (60.0, 3600.0),
    ForgetState.FORGOTTEN: (float("inf"), float("inf")),
}
_TOLD: Final = {
    ReceiptCode.ERASING: ForgetState.ERASING,
    ReceiptCode.FORGETTING: ForgetState.FORGETTING,
    ReceiptCode.FORGOTTEN: ForgetState.FORGOTTEN,
}
ERASED = tuple(_TOLD)
_UNANSWERED = (ForgetState.ASKED, ForgetState.SENT)
ENROL_AGAIN = "the name is not used again; to come back, enrol under another"

_NEXT_STEPS = {
    ReceiptCode.UNKNOWN_CLIENT: "If it never joined, events of refusals may name it: the operator erases these "
    "with `foltr erasure request NAME`; stop the client and delete its store. If it "
    "has joined, ask the operator whether the federator has another database now",
    ReceiptCode.BAD_SIGNATURE: "The federation knows it by another key: use the credentials of its newest "
    "enrolment, and let it join with them first; or ask the operator: `foltr erasure "
    "request`",
}


@dataclass(frozen=True)
class ForgetResult:
    """The outcome of a request to be forgotten.

    Attributes:
        receipt: the federation's signed proof (`foltr.core.erasure.receipt`), once it is ``forgotten``.
        detail: the federation's text, such as when the model without the client is due.
    """

    state: ForgetState
    receipt: str | None = None
    detail: str = ""


class Forgetting:
    """The device's side of one client's erasure.

    Args:
        say_hello: called after a refusal, over a connection that had to be silent until then.

    Attributes:
        state: the progress; None if neither the user has asked nor the federation has erased this client.
        forgotten: the federation has erased this client, or is doing so; now or before a restart.
        refusal: the federation's newest refusal that no call has raised yet.
        due_at: when `send_due` has something to do, in monotonic seconds.
    """

    def __init__(
        self,
        outbox: Outbox,
        session: Session,
        participation: Participation,
        store: DeviceStore,
        on_event: Observer,
        say_hello: Callable[[], Awaitable[None]],
    ) -> None:
        self._outbox = outbox
        self._session = session
        self._participation = participation
        self._store = store
        self._emit = on_event
        self._say_hello = say_hello
        stored = store.forget_state()
        self._is_wish = stored is not None
        self.forgotten = store.forgotten or (stored is not None and stored not in _UNANSWERED)
        # If the device died before it could store the progress, only the erasure itself is known.
        self.state = ForgetState.ERASING if self.forgotten and stored in (None, *_UNANSWERED) else stored
        self._had_left_before = False
        if self.waiting:
            participation.left = True
        self._receipt: str | None = None
        self._detail = ""
        self.refusal: ErasureNotice | None = None
        self._done = asyncio.Event()
        self._n_waiting_for = 0
        self.due_at, self._n_sent, self._has_sent = float("inf"), 0, False
        self._epoch: int | None = None
        # What the broker may retain; an earlier run may have failed to clear it.
        self._retained = {ClientTopic.FORGET, ClientTopic.STATUS} if self.forgotten else set[ClientTopic]()

    @property
    def waiting(self) -> bool:
        """The user has asked, and the federation has not answered."""
        return self.state in _UNANSWERED

    @property
    def is_clearing(self) -> bool:
        """The broker still retains something of this client, as far as known."""
        return bool(self._retained)

    def begin_connection(self, now: float) -> None:
        """Ask over a new connection: the broker may be a new one, or have lost what it retained."""
        if self._is_wish and not (self.state is ForgetState.FORGOTTEN and self._has_sent):
            self.due_at, self._n_sent = now, 0

    def note_epoch(self, epoch: int, now: float) -> None:
        """Ask again when another federator announces: its database may be a restored one."""
        if self._is_wish and self._epoch is not None and epoch > self._epoch:
            self.due_at, self._n_sent = now, 0
        self._epoch = epoch

    def forget(self) -> None:
        """Delete the device's data: the federation has erased this client. If that fails, `finish` tries again."""
        if not self.forgotten:
            self._retained = {ClientTopic.FORGET, ClientTopic.STATUS}
        self.forgotten = True
        if self.state is None or self.waiting:
            self._go_to(ForgetState.ERASING)  # nothing more is known by now
        self._delete()

    def receive_notice(self, notice: ErasureNotice) -> None:
        """Take the answer to a request, or the notice of an erasure that the operator ordered.

        Raises:
            MessageError: ``malformed``, if the receipt is not text.
        """
        told = _TOLD.get(notice.code)
        if told is None:
            if notice.code is not ReceiptCode.BUSY:  # the request is repeated anyway
                self._note_refusal(notice)
            return
        receipt = None
        if told is ForgetState.FORGOTTEN:
            try:
                receipt = None if notice.receipt is None else notice.receipt.decode("ascii")
            except UnicodeDecodeError as error:
                raise MessageError(ReceiptCode.MALFORMED, "the receipt is not the text of a signature") from error
            self._done.set()
        else:
            self._done.clear()
        self._receipt, self._detail = receipt, notice.detail
        self._go_to(told)

    def _note_refusal(self, notice: ErasureNotice) -> None:
        is_news = self.refusal is None or self.refusal.code is not notice.code
        self.refusal = notice
        if is_news and self.waiting and not self._n_waiting_for:
            client_id = self._session.client_id
            log.warning("forget_refused", client_id=client_id, code=notice.code, detail=notice.detail)

    def begin(self) -> None:
        """Store the wish, and send nothing else from here on. DataError if it cannot be stored; nothing was changed."""
        if self._is_wish or self._done.is_set():
            return
        state = self.state or ForgetState.ASKED
        self._store.put_forget_state(state)
        self._is_wish = True
        if self.state is None:
            self._had_left_before, self._participation.left = self._participation.left, True
            self._go_to(state)

    @property
    def result(self) -> ForgetResult:
        """The progress so far."""
        return ForgetResult(self.state or ForgetState.ASKED, self._receipt, self._detail)

    async def ask(self, timeout_s: float) -> ForgetResult:
        """See `EdgeClient.forget_me`."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        self.begin()
        self._pop_refusal()
        self._n_waiting_for += 1
        try:
            if not self._done.is_set():
                await self._send()
            while not await is_set_within(self._done, min(FORGET_AGAIN_S, give_up_at - loop.time())):
                # Only now: a refusal may answer somebody else's message in this name, and ours is answered too.
                refusal = self._pop_refusal()
                if refusal is not None and not self.forgotten:
                    await self._withdraw_wish()
                    raise FoltrError(refusal_in_words(refusal))
                if loop.time() >= give_up_at:
                    break
                await self._send()
        finally:
            self._n_waiting_for -= 1
        await self.finish(connected=True)
        return self.result

    async def send_due(self, now: float) -> None:
        """Send the wish again, if due."""
        if self.due_at <= now:
            await self._send()

    async def finish(self, *, connected: bool) -> None:
        """Delete and clear what failed before. What fails again is retried later."""
        if self.forgotten and not self._store.forgotten:
            self._delete()
        for topic in sorted(self._retained) if connected else ():
            try:
                await self._outbox.clear(topic)
            except UnavailableError as error:
                log.debug("retained_message_not_cleared", what=str(topic), cause=str(error))
                return
            self._retained.discard(topic)

    def _delete(self) -> None:
        try:
            if not self._store.forgotten:
                self._store.forget()
        except DataError as error:
            log.error("store_not_deleted", client_id=self._session.client_id, cause=str(error))  # noqa: TRY400

    async def _send(self) -> None:
        """Send the wish, and schedule the next try; if the broker is unreachable, later."""
        self._due_later()
        forget = Forget(federation=self._session.federation, client_id=self._session.client_id)
        try:
            # Once the erasure is stored, the broker need not retain the wish for another federator.
            await self._outbox.publish(ClientTopic.FORGET, forget, retain=not self.forgotten)
        except UnavailableError as error:
            log.debug("resend_scheduled", what=Forget.kind_name, cause=str(error))
            return
        failpoint(Failpoint.WISH_SENT)
        self._has_sent = True
        if self.state is ForgetState.ASKED:
            self._go_to(ForgetState.SENT)

    def _due_later(self) -> None:
        first, longest = _PAUSES_S[self.state or ForgetState.ASKED]
        self.due_at = time.monotonic() + min(longest, first * 2 ** min(self._n_sent, 16))
        self._n_sent += 1

    def _go_to(self, state: ForgetState | None) -> None:
        """Change the state and report it; store it as well if the user asked on this device."""
        if state is self.state:
            return
        self.state = state
        if state is not ForgetState.SENT and self._is_wish:
            self._note(state)
            self._n_sent = 0
            self._due_later()
        self._emit(ForgetStateChanged(state))

    def _note(self, state: ForgetState | None) -> None:
        try:
            if self._store.forget_state() is not state:
                self._store.put_forget_state(state)
        except DataError as error:
            # The next start asks again, and gets the same answer.
            log.warning("forget_state_not_stored", client_id=self._session.client_id, cause=str(error))

    def _pop_refusal(self) -> ErasureNotice | None:
        refusal, self.refusal = self.refusal, None
        return refusal

    async def _withdraw_wish(self) -> None:
        """Continue as a client. The broker must not show the request to the next federator, which might accept it.

        DataError if the wish cannot be removed from the disk; it then stands.
        """
        self._store.put_forget_state(None)
        self._is_wish, self.due_at = False, float("inf")
        self._participation.left = self._had_left_before
        self._go_to(None)
        self._retained = {ClientTopic.FORGET}
        await self.finish(connected=True)
        if not self._participation.joined:
            await self._say_hello()


def refusal_in_words(notice: ErasureNotice) -> str:
    """Describe the refusal, and what to do about it."""
    otherwise = "Ask the operator to do it: `foltr erasure request`"
    return (
        f"client {notice.client_id} cannot be forgotten by {notice.federation!r}: {notice.code}: {notice.detail}. "
        f"{_NEXT_STEPS.get(ReceiptCode(notice.code), otherwise)}"
    )
