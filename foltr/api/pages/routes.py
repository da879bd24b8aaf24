"""The overview page, the participant's page, and the login form that stores a token in a cookie."""

import base64
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy.exc import SQLAlchemyError
from starlette.staticfiles import StaticFiles

from foltr.api.access import COOKIE, identify, require_address_pace, require_same_origin, state_of_app
from foltr.api.erasure_requests import forward_request
from foltr.api.participant import mine
from foltr.api.server_state import AWAY, ServerState
from foltr.api.status import shown
from foltr.api.tokens import LONGEST_TOKEN, Bearer, Role
from foltr.core.errors import FoltrError
from foltr.core.logs import get_logger
from foltr.core.version import __version__
from foltr.storage.queries import list_contributions

log = get_logger("foltr.api.pages")

router = APIRouter(include_in_schema=False)

_HERE = Path(__file__).parent
_NEWEST = 50
_templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def add_pages(app: FastAPI) -> None:
    """Add the page and its files to an application."""
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=_HERE / "static"), name="static")


@router.get("/")
async def page(request: Request) -> Response:
    """Return the page of the token in the cookie, or the form that asks for a token."""
    try:
        bearer = identify(request)
    except HTTPException as error:
        if error.status_code == 429:
            raise
        shows_one = COOKIE in request.cookies
        return _page("login.html", error.status_code if shows_one else 200, why=error.detail if shows_one else None)
    served = state_of_app(request)
    try:
        await served.db.follow_file()
        if bearer.role is Role.PARTICIPANT:
            return await _of_participant(served, bearer)
        status = shown(await served.overview())
        return _page("overview.html", federation=served.federation, status=status, away=None)
    except (FoltrError, SQLAlchemyError, OSError) as error:
        log.warning("database_unavailable", cause=str(error).splitlines()[0])
        if bearer.role is Role.PARTICIPANT:
            return _page("participant.html", 503, federation=served.federation, me=None, lines=[], away=AWAY)
        return _page("overview.html", 503, federation=served.federation, status=None, away=AWAY)


@router.post("/login")
async def login(request: Request) -> Response:
    """Take a token into the cookie, which no script sees and no other site's page sends."""
    require_same_origin(request)
    served = state_of_app(request)
    text = parse_qs((await request.body()).decode(errors="replace")).get("token", [""])[0].strip()
    found = served.tokens.check(text[: LONGEST_TOKEN + 1], served.federation, time.time())
    if not isinstance(found, Bearer):
        require_address_pace(request)
        return _page(
            "login.html", 401, why=f"This token is {found}. Ask the operator of the federation for another one."
        )
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        text,
        max_age=max(0, int(found.expires_at - time.time())),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
async def logout(request: Request) -> Response:
    """Drop the cookie."""
    require_same_origin(request)
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


@router.post("/forget")
async def forget(request: Request) -> Response:
    """Take the line that a device has signed, and say what became of it on the participant's page."""
    require_same_origin(request)
    bearer, served = identify(request), state_of_app(request)
    if bearer.role is not Role.PARTICIPANT:
        raise HTTPException(403, "Only a participant's own page accepts this.")
    text = parse_qs((await request.body()).decode(errors="replace")).get("wish", [""])[0]
    try:
        payload = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:  # also for non-ASCII text, which is not a binascii.Error
        return await _of_participant(served, bearer, 400, "This is not the line that the command prints.")
    try:
        await served.db.follow_file()
        received = await forward_request(served, bearer.client_id or "", payload)
        return await _of_participant(served, bearer, told=received.detail)
    except HTTPException as error:
        return await _of_participant(served, bearer, error.status_code, str(error.detail))


async def _of_participant(
    served: ServerState, bearer: Bearer, code: int = 200, told: str | None = None
) -> HTMLResponse:
    me = await mine(served, bearer.client_id or "")
    lines = await list_contributions(served.db, served.federation, client_id=me.client_id, limit=_NEWEST)
    takes_wishes = served.credentials is not None
    shown_ = {"me": me, "lines": lines[::-1], "away": None, "told": told, "takes_wishes": takes_wishes}
    return _page("participant.html", code, federation=served.federation, **shown_)


def _page(template: str, code: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_templates.get_template(template).render(version=__version__, **values), code)
