"""Forwards messages that were signed elsewhere, with the operator's access to the broker: orders here, requests to be
forgotten in `foltr.api.erasure_requests`.

This server holds no signing key.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from fastapi import APIRouter, HTTPException, Request

from foltr.api.access import Operator, ServedHere, require_same_origin
from foltr.api.problems import problems
from foltr.api.schemas import OrderReceived
from foltr.api.server_state import ServerState
from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink
from foltr.broker.short_connections import read_retained, retry_taken_over, short_connection
from foltr.core.errors import MessageError, UnavailableError
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import OPERATOR_USER, Credentials
from foltr.core.operator.followed_keys import follow_messages, follow_retained, key_topics
from foltr.core.protocol.orders import AskNewest, OrderAnswer
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_orders import SignedOrder, read_answer, read_order
from foltr.core.protocol.topics import Topics

T = TypeVar("T")

log = get_logger("foltr.api.orders")

router = APIRouter(prefix="/api/v1", tags=["orders"])

_CONNECT_S = 5.0
_ANSWER_S = 10.0
_SEND_AGAIN_S = 2.0
# One user has one session at the broker: a second visit would end the first.
_visiting = asyncio.Lock()


class ConnectionLostError(UnavailableError):
    """The connection to the broker was lost."""


def binary_body(who: str) -> dict[str, Any]:
    """Describe a binary body, and the role that may post it, for OpenAPI."""
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {"x-who": who, "requestBody": {"required": True, "content": content}}


@router.post("/orders", responses=problems(400, 409, 413), status_code=202, openapi_extra=binary_body("operator"))
async def send_order(request: Request, _who: Operator, served: ServedHere) -> OrderReceived:
    """Forward a signed order to the federator, and wait some seconds for its answer.

    The body is the order's bytes, which `foltr erasure request --print-payload` prints in base64. An order is obeyed
    once, however often it is posted. The federator stores it; this server does not.
    """
    require_same_origin(request)
    credentials = require_credentials(served)
    order = await _read(await request.body(), served, credentials)
    if isinstance(order, AskNewest):
        raise MessageError(ReceiptCode.MALFORMED, "this is a question, not an order")
    log.info("order_forwarded", number=order.number, kind=order.order.kind_name)
    answer = await retry_if_taken_over(lambda: _send(credentials, order))
    digest = order.digest.hex()
    if answer is None:
        words = "The broker has the order; the federator has not answered yet. See /api/v1/orders"
        return OrderReceived(number=order.number, digest=digest, detail=words)
    code = None if answer.code is None else str(answer.code)
    return OrderReceived(number=order.number, digest=digest, reply=answer.reply, code=code, detail=answer.detail)


async def _read(payload: bytes, served: ServerState, credentials: Credentials) -> SignedOrder | AskNewest:
    """Parse an order. It may be signed by an enrolment key newer than the one in the credentials."""
    try:
        return read_order(payload, credentials.operator_keys, served.federation)
    except MessageError as error:
        if error.code != ReceiptCode.BAD_SIGNATURE:
            raise
        newest = await retry_if_taken_over(lambda: _newest(credentials))
        if newest.enrolment_key == credentials.enrolment_key:
            raise
        served.credentials = newest
        return read_order(payload, newest.operator_keys, served.federation)


async def _newest(credentials: Credentials) -> Credentials:
    """Return the credentials with the newest keys that the broker retains. Raises UnavailableError without a broker."""
    heard = await read_retained(BrokerAddress.of(credentials.broker), key_topics(credentials.federation))
    return follow_messages(credentials, heard).credentials


def require_credentials(served: ServerState) -> Credentials:
    """Return the operator's access to the broker. Raises HTTPException 409 if the server was started without it."""
    if served.credentials is None:
        raise HTTPException(409, "This server cannot forward orders: start it with --credentials operator.json.")
    return served.credentials


async def retry_if_taken_over(send: Callable[[], Awaitable[T]]) -> T:
    """Visit the broker, and try again if another command of the same operator took over the session.

    Raises:
        HTTPException: 503 if the broker cannot be reached or the session keeps being taken over.
    """
    try:
        async with _visiting:
            return await retry_taken_over(send, ConnectionLostError)
    except UnavailableError as error:
        log.warning("forwarding_failed", cause=str(error).splitlines()[0])
        words = (
            "The broker cannot be reached, or the connection was lost. Post it again, or send it without this server."
        )
        raise HTTPException(503, words, headers={"Retry-After": "5"}) from error


def operator_connection(
    credentials: Credentials, subscriptions: list[str], on_message: "Callable[[InboundMessage], None]"
) -> AbstractAsyncContextManager[MqttLink]:
    """Connect to the broker as the operator for a short visit."""
    address = BrokerAddress.of(credentials.broker)
    return short_connection(address, OPERATOR_USER, subscriptions, on_message, _CONNECT_S)


async def _send(credentials: Credentials, order: SignedOrder) -> OrderAnswer | None:
    """Publish an order and wait for its answer. None if none came in time.

    Raises:
        UnavailableError: no broker, or `ConnectionLostError` if the connection was lost.
    """
    topics = Topics(credentials.federation)
    known = [credentials.federator_public_key]
    asked, heard = key_topics(credentials.federation), dict[str, bytes]()
    answered: asyncio.Future[OrderAnswer] = asyncio.get_running_loop().create_future()

    def received(message: "InboundMessage") -> None:
        with contextlib.suppress(MessageError):
            if message.topic in asked:
                heard[message.topic] = message.payload
                newest = follow_retained(credentials, *(heard.get(topic) for topic in asked)).credentials
                known.append(newest.federator_public_key)
                return
            answer = read_answer(message.payload, credentials.federation, *known)
            if answer.digest == order.digest and not answered.done():
                answered.set_result(answer)

    async with operator_connection(credentials, [topics.operator_answers, *asked], received) as link:
        give_up_at = time.monotonic() + _ANSWER_S
        while not answered.done() and time.monotonic() < give_up_at:
            try:
                await link.publish(topics.operator, order.payload)
            except UnavailableError as error:
                raise ConnectionLostError(str(error)) from error
            # Send again, as `foltr operator send` does: the broker queues nothing for a new federator.
            await asyncio.wait([answered], timeout=min(_SEND_AGAIN_S, _ANSWER_S))
    return answered.result() if answered.done() else None
