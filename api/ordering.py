"""Orders that the operator has signed elsewhere, handed on to the federator. No key that signs any is here."""

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, HTTPException, Request

from api.access import Operator, ServedHere, require_same_origin
from api.reading import PROBLEMS
from api.schemas import OrderReceived, Problem
from broker.address import BrokerAddress
from broker.link import MqttLink
from foltr.errors import MessageError, UnavailableError
from foltr.logs import get_logger
from foltr.operator.credentials import OPERATOR_USER, Credentials
from foltr.protocol.orders import AskNewest, OrderAnswer
from foltr.protocol.signed_orders import SignedOrder, read_answer, read_order
from foltr.protocol.topics import Topics

if TYPE_CHECKING:
    from broker.link import InboundMessage

log = get_logger("api.ordering")

router = APIRouter(prefix="/api/v1", responses=PROBLEMS)

_CONNECT_S = 5.0
_ANSWER_S = 10.0
_SEND_AGAIN_S = 2.0
_VISITS, _LONGEST_PAUSE_S = 3, 1.0
# One user is one session at the broker: a second visit would end the first.
_visiting = asyncio.Lock()

_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "No order that this federation's operator has signed"},
    409: {"model": Problem, "description": "This server has no access to the broker"},
    413: {"model": Problem, "description": "Too long for an order"},
}
_BODY = {
    "x-who": "operator",
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
}


class _LostError(UnavailableError):
    """There was a connection to the broker, and it has ended."""


@router.post("/orders", responses={**PROBLEMS, **_RESPONSES}, status_code=202, openapi_extra=_BODY)
async def hand_on(request: Request, served: ServedHere, _who: Operator) -> OrderReceived:
    """Hand a signed order on to the federator, and wait some seconds for its answer.

    The body is the order's bytes, which `foltr forget --print-payload` prints in base64. An order is obeyed once,
    however often it is posted; the federator stores it, this server does not.
    """
    require_same_origin(request)
    credentials = served.credentials
    if credentials is None:
        raise HTTPException(409, "This server hands on no orders: start it with --credentials operator.json.")
    try:
        order = read_order(await request.body(), credentials.enrolment_public_key, served.federation)
    except MessageError as error:
        raise HTTPException(400, f"{error.code}: {error}") from error
    if isinstance(order, AskNewest):
        raise HTTPException(400, "malformed: this is a question and no order")
    log.info("order_handed_on", number=order.number, kind=order.order.kind_name)
    try:
        async with _visiting:
            answer = await _visit(credentials, order)
    except UnavailableError as error:
        log.warning("order_not_handed_on", number=order.number, cause=str(error).splitlines()[0])
        words = "The broker cannot be reached, or not for long enough. Post the order again, or run: foltr orders send"
        raise HTTPException(503, words, headers={"Retry-After": "5"}) from error
    digest = order.digest.hex()
    if answer is None:
        words = "The broker has the order; the federator has not answered yet. See /api/v1/orders"
        return OrderReceived(number=order.number, digest=digest, detail=words)
    code = None if answer.code is None else str(answer.code)
    return OrderReceived(number=order.number, digest=digest, reply=answer.reply, code=code, detail=answer.detail)


async def _visit(credentials: Credentials, order: SignedOrder) -> OrderAnswer | None:
    """Send an order, again where another command of the operator has ended the connection, which is the same user's."""
    for _ in range(_VISITS - 1):
        try:
            return await _send(credentials, order)
        except _LostError:
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 (keeps the two apart)
    return await _send(credentials, order)


async def _send(credentials: Credentials, order: SignedOrder) -> OrderAnswer | None:
    """Publish an order and listen for its answer; None where none came in time.

    Raises:
        UnavailableError: no broker; `_LostError` where there was one.
    """
    topics = Topics(credentials.federation)
    known = [credentials.federator_public_key]
    answered: asyncio.Future[OrderAnswer] = asyncio.get_running_loop().create_future()

    def received(message: "InboundMessage") -> None:
        with contextlib.suppress(MessageError):
            if message.topic == topics.federator_key:
                known.append(credentials.with_federator_key(message.payload).federator_public_key)
                return
            answer = read_answer(message.payload, credentials.federation, *known)
            if answer.digest == order.digest and not answered.done():
                answered.set_result(answer)

    link = MqttLink(
        BrokerAddress.of(credentials.broker),
        client_id=OPERATOR_USER,
        subscriptions=[topics.operator_answers, topics.federator_key],
        on_message=received,
        persistent=False,
        timeout_s=_CONNECT_S,
        give_up_after_s=0.0,
    )
    async with link:
        await link.wait_connected(_CONNECT_S)
        give_up_at = time.monotonic() + _ANSWER_S
        while not answered.done() and time.monotonic() < give_up_at:
            try:
                await link.publish(topics.operator, order.payload)
            except UnavailableError as error:
                raise _LostError(str(error)) from error
            # Again, as `foltr orders send` does: the broker keeps nothing for a federator that is new to it.
            await asyncio.wait([answered], timeout=min(_SEND_AGAIN_S, _ANSWER_S))
    return answered.result() if answered.done() else None
