"""Forwards a client's request to be forgotten. The device signs it, so its key never reaches this server."""

import asyncio

from fastapi import APIRouter, HTTPException, Request

from foltr.api.access import Participant, ServedHere, require_same_origin
from foltr.api.orders import (
    ConnectionLostError,
    binary_body,
    operator_connection,
    require_credentials,
    retry_if_taken_over,
)
from foltr.api.problems import problems
from foltr.api.schemas import WishReceived
from foltr.api.server_state import ServerState
from foltr.core.erasure.states import FORGET_STATE, ForgetState
from foltr.core.errors import MessageError, UnavailableError
from foltr.core.logs import get_logger
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.storage import pages, queries

log = get_logger("foltr.api.erasure_requests")

router = APIRouter(prefix="/api/v1/me", tags=["me"])

_LOOKS, _LOOK_EVERY_S = 40, 0.25
_RECEIPT = "The receipt is signed once no model in service has learned from this client."
_WAITS = (
    "The broker has the request; the federator has not obeyed it yet. If the federator runs and this does not "
    "change, the broker's access list may not let the API write it: foltr doctor"
)


@router.post(
    "/forget", responses=problems(400, 404, 409, 413), status_code=202, openapi_extra=binary_body("participant")
)
async def forget_me(request: Request, who: Participant, served: ServedHere) -> WishReceived:
    """Forward this client's signed request to be forgotten to the federator, and wait some seconds until it is erased.

    The body is the bytes of the request, which `foltr erasure request --credentials FILE --print-payload` prints in
    base64 on the device. It cannot be undone, and may be posted again.
    """
    require_same_origin(request)
    return await forward_request(served, who.client_id or "", await request.body())


async def forward_request(served: ServerState, client_id: str, payload: bytes) -> WishReceived:
    """Check the client's signature on the request and publish it. The broker retains it until the federator acts on it.

    Raises:
        MessageError: the client did not sign this request.
        HTTPException: 404 unknown client, 409 without access to the broker, 503 without broker.
    """
    credentials = require_credentials(served)
    topic = Topics(served.federation).client(client_id, ClientTopic.FORGET)
    row = await queries.get_client(served.db, served.federation, client_id)
    known = await _state(served, client_id)
    if row is None and known is not None:
        return _received(known)
    if row is None:
        raise HTTPException(404, "The federation does not know this client: it has not joined.")
    _check(payload, served.federation, client_id, topic, row.public_key)

    async def send() -> None:
        async with operator_connection(credentials, [], lambda _: None) as link:
            try:
                # Retained, as if the device had sent it, since the federator may be off.
                await link.publish(topic, payload, retain=True)
            except UnavailableError as error:
                raise ConnectionLostError(str(error)) from error

    log.info("erasure_request_forwarded")
    await retry_if_taken_over(send)
    for _ in range(_LOOKS):
        known = await _state(served, client_id)
        if known not in (None, ForgetState.ERASING):
            break
        await asyncio.sleep(_LOOK_EVERY_S)
    return WishReceived(state=ForgetState.SENT, detail=_WAITS) if known is None else _received(known)


def _received(state: ForgetState) -> WishReceived:
    said = state.meaning[0].upper() + state.meaning[1:]
    return WishReceived(state=state, detail=f"{said}. {_RECEIPT}")


def _check(payload: bytes, federation: str, client_id: str, topic: str, key: bytes | None) -> None:
    envelope = open_envelope(payload)
    wish = envelope.read(Forget)
    if wish.federation != federation:
        raise MessageError(ReceiptCode.WRONG_FEDERATION, "this is a request to another federation")
    if wish.client_id != client_id:
        raise MessageError(ReceiptCode.CLIENT_MISMATCH, "this is another client's request")
    if key is None or not envelope.is_signed_by(key, topic):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "this client has not signed the request")


async def _state(served: ServerState, client_id: str) -> ForgetState | None:
    row = await pages.erasure_of(served.db, served.federation, client_id)
    return None if row is None else FORGET_STATE[row.state]
