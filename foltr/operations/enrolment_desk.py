"""The process behind ``foltr operator desk``: queued requests, an operator folder used in a thread, a broker link."""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink
from foltr.broker.liveness import touch_while_alive
from foltr.broker.trusted_cas import TrustedCas
from foltr.core.alive_file import AliveFile
from foltr.core.errors import FoltrError, MessageError, UnavailableError, first_cause
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import DESK_USER, BrokerAccess
from foltr.core.operator.enrolment_desk import DeskReplies, revoke_stale_tokens, serve
from foltr.core.operator.next_commands import command_in
from foltr.core.protocol.enrolment_requests import MAX_REQUEST_BYTES, DeskHead
from foltr.core.protocol.operator_keys import TrustedOperatorKey, newest_key
from foltr.core.protocol.signed_requests import read_head
from foltr.core.protocol.topics import Topics
from foltr.operations.issued_tokens import withdraw_useless
from foltr.operations.operator_access import admit, open_authority, tell_broker

log = structlog.get_logger(__name__)
T = TypeVar("T")

MAX_WAITING = 1_000
"""At most this many tokens have a queued request. Devices beyond that ask again later."""
MAX_BATCH = 100
# A batch causes one change of the broker's users. Requests that arrive within the pause are enrolled together.
_PAUSE_S = 0.2
_SWEEP_EVERY_S = 600.0
_LONGEST_WORK_S = 120.0
_MARKER_S = 10.0


class DeskService:
    """Answers enrolment requests until it is stopped.

    Args:
        operator: the operator's folder. Its lock is held only during a batch.
        enrolment_keys: the operator's public keys. Keys rotated later are read from the folder.
        give_up_after_s: how long the broker may be away before `run` raises UnavailableError; None: for ever.
    """

    def __init__(
        self,
        operator: Path,
        federation: str,
        enrolment_keys: TrustedOperatorKey,
        address: BrokerAddress,
        *,
        give_up_after_s: float | None,
        alive_file: AliveFile,
    ) -> None:
        self._operator, self._federation, self._enrolment_keys = operator, federation, enrolment_keys
        self._topics = Topics(federation)
        self._waiting: dict[str, bytes] = {}
        self._arrived, self._stopped, self._knows_head = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._head: DeskHead | None = None
        self._marker = b""
        self._at_work_since: float | None = None
        self._said_untold = False
        self._alive_file = alive_file
        self._link = MqttLink(
            address,
            client_id=f"{DESK_USER}.{federation}",
            subscriptions=[self._topics.enrolment_requests, self._topics.desk_head, self._topics.authorities],
            on_message=self._receive,
            on_connected=self._on_connected,
            persistent=False,
            give_up_after_s=give_up_after_s,
        )
        self._authorities = TrustedCas(self._link, enrolment_keys, federation)

    async def run(self) -> None:
        """Serve requests. Raises UnavailableError when the link gives up."""
        try:
            async with self._link, asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in (self._serve(), self._sweep(), self._show_alive())]
                tasks.append(group.create_task(self._link.wait_failed()))
                await self._stopped.wait()
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as group_error:
            raise first_cause(group_error) from group_error

    def stop(self) -> None:
        self._stopped.set()

    async def _on_connected(self) -> None:
        """Publish a message to itself: the retained head arrives before it."""
        self._knows_head.clear()
        self._marker = secrets.token_bytes(16)
        await self._link.publish(self._topics.desk_head, self._marker)
        log.info("broker_connected", broker=str(self._link.address))

    def _receive(self, message: InboundMessage) -> None:
        if message.topic == self._topics.desk_head:
            self._receive_head(message.payload)
            return
        if message.topic == self._topics.authorities:
            self._authorities.operator = self._enrolment_keys
            try:
                self._authorities.accept(message.payload)
            except MessageError as error:
                log.warning("trusted_cas_refused", cause=str(error))
            return
        token = self._topics.token_of(message.topic)
        if token is None:
            return  # devices may write below their own name here; the desk ignores it
        has_room = token in self._waiting or len(self._waiting) < MAX_WAITING
        # Our devices never retain a request. A retained one would be answered at every start.
        if has_room and not message.retained and len(message.payload) <= MAX_REQUEST_BYTES:
            self._waiting[token] = message.payload
            self._arrived.set()

    def _receive_head(self, payload: bytes) -> None:
        if payload == self._marker:
            self._knows_head.set()
            return
        try:
            head = read_head(payload, newest_key(self._enrolment_keys), self._federation)
        except MessageError:
            return
        if self._head is None or head.next_serial > self._head.next_serial:
            self._head = head

    async def _serve(self) -> None:
        log.info("desk_started", federation=self._federation, broker=str(self._link.address))
        while True:
            await self._arrived.wait()
            await self._wait_for_head()
            await asyncio.sleep(_PAUSE_S)
            batch = {token: self._waiting.pop(token) for token in list(self._waiting)[:MAX_BATCH]}
            if not self._waiting:
                self._arrived.clear()
            served = await self._in_folder(partial(self._answer, batch))
            if served is not None:
                await self._publish(served)

    async def _wait_for_head(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_MARKER_S):
                    await self._knows_head.wait()
                    return
            except TimeoutError:
                if self._link.connected:
                    log.warning(
                        "desk_subscription_denied",
                        topic=self._topics.desk_head,
                        next_step="The broker does not deliver what this user writes: check its access list",
                    )

    def _answer(self, batch: dict[str, bytes]) -> DeskReplies:
        """Answer a batch from the operator's folder. Runs in a thread, as another command may hold the lock."""
        with open_authority(self._operator, self._federation) as authority:
            self._enrolment_keys = authority.operator.operator_keys
            self._refuse_old_copy(authority)
            return serve(authority, batch, lambda names: self._admit(authority, names))

    def _refuse_old_copy(self, authority: "Authority") -> None:
        n_revoked = None if self._head is None else revoke_stale_tokens(authority, self._head)
        if n_revoked is not None:
            log.warning(
                "operator_folder_outdated",
                next_serial=authority.register.next_serial,
                n_revoked=n_revoked,
                next_step="This folder is an old copy: it lacks later enrolments. Its open tokens may have been "
                "used and are revoked; make others: "
                f"{command_in(self._operator, 'foltr device enrol CLIENT --token')}",
            )

    def _admit(self, authority: "Authority", names: Collection[str]) -> dict[str, BrokerAccess]:
        access = admit(authority, names, None)
        if not tell_broker(self._operator) and not self._said_untold:
            self._said_untold = True
            log.info("broker_reload_required", next_step="Send the broker SIGHUP, unless it watches its files")
        return access

    async def _sweep(self) -> None:
        """Withdraw expired tokens at the broker."""
        while True:
            await self._in_folder(self._withdraw_useless)
            await asyncio.sleep(_SWEEP_EVERY_S)

    def _withdraw_useless(self) -> None:
        with open_authority(self._operator, self._federation) as authority:
            if withdraw_useless(authority, time.time()):
                tell_broker(self._operator, lists_changed=True)

    async def _in_folder(self, work: Callable[[], T]) -> T | None:
        """Run work that uses the folder. On failure log it and return None; devices will ask again."""
        self._at_work_since = time.monotonic()
        try:
            return await asyncio.to_thread(work)
        except (FoltrError, OSError) as error:
            log.warning("operator_folder_unusable", cause=str(error))
            return None
        finally:
            self._at_work_since = None

    async def _show_alive(self) -> None:
        await touch_while_alive(self._alive_file, self._link, lambda: self._at_work_since, _LONGEST_WORK_S)

    async def _publish(self, served: DeskReplies) -> None:
        try:
            if served.head is not None:
                # Before any answer: otherwise an older copy of the folder could pass for the newest.
                await self._link.publish(self._topics.desk_head, served.head, retain=True)
            for token, answer in served.answers.items():
                await self._link.publish(self._topics.enrolment_answer(token), answer)
        except UnavailableError as error:
            log.warning("answer_not_sent", cause=str(error))  # the answer is stored, and the device will ask again
            return
        for token, code in served.codes.items():
            log.info("enrolment_answered", token=token, code=str(code))
