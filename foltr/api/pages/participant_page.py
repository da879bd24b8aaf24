"""The page of one device's owner: its contributions, how to be forgotten, and later its receipt."""

import base64
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.exc import SQLAlchemyError

from foltr.api.access import require_same_origin, state_of_app
from foltr.api.erasure_requests import forward_request
from foltr.api.pages.frame import PageRoute, admitted
from foltr.api.pages.rendering import render
from foltr.api.participant import mine
from foltr.api.problems import note_unavailable
from foltr.api.server_state import AWAY, ServerState
from foltr.api.tokens import Bearer, Role
from foltr.core.errors import FoltrError, MessageError
from foltr.storage.queries import list_contributions

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_NEWEST = 50
_AWAY = (FoltrError, SQLAlchemyError, OSError)


@router.post("/forget")
async def forget(request: Request) -> Response:
    """Take the line that a device has signed, and say what became of it on the participant's page."""
    require_same_origin(request)
    bearer, served = admitted(request), state_of_app(request)
    if bearer.role is not Role.PARTICIPANT:
        raise HTTPException(403, "Only a participant's own page takes this.")
    text = parse_qs((await request.body()).decode(errors="replace")).get("wish", [""])[0]
    try:
        payload = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:  # also for non-ASCII text, which is not a binascii.Error
        return await show_part(served, bearer, 400, "This is not the line that the command prints.")
    try:
        await served.db.follow_file()
        received = await forward_request(served, bearer.client_id or "", payload)
        return await show_part(served, bearer, told=received.detail)
    except HTTPException as error:
        return await show_part(served, bearer, error.status_code, str(error.detail))
    except MessageError as error:
        return await show_part(served, bearer, 400, str(error))
    except _AWAY:
        return await show_part(served, bearer)


async def show_part(served: ServerState, bearer: Bearer, code: int = 200, told: str | None = None) -> HTMLResponse:
    """Return the participant's page; 503 while the database is away."""
    page = {"federation": served.federation, "told": told, "takes_wishes": served.credentials is not None}
    try:
        await served.db.follow_file()
        me = await mine(served, bearer.client_id or "")
        lines = await list_contributions(served.db, served.federation, client_id=me.client_id, limit=_NEWEST)
    except _AWAY as error:
        note_unavailable(error)
        return render("participant.html", 503, **page, me=None, lines=[], away=AWAY)
    return render("participant.html", code, **page, me=me, lines=lines[::-1], away=None)
