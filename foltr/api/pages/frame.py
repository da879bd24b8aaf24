"""What all pages share: who may look, the status band above them, and a page for each error."""

from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import SQLAlchemyError

from foltr.api.access import COOKIE, current_state, identify, state_of_app
from foltr.api.pages.rendering import render
from foltr.api.problems import note_unavailable
from foltr.api.schemas import VerdictRow
from foltr.api.status import shown
from foltr.api.tokens import Bearer, Role
from foltr.core.errors import FoltrError
from foltr.operations.overview import Overview

_SECTIONS = {
    "/": "Overview",
    "/devices": "Devices",
    "/rounds": "Rounds",
    "/events": "Events",
    "/erasures": "Erasures",
}


class ShutError(Exception):
    """The token is missing or void: the form for one is shown, with the reason if a token was sent."""

    def __init__(self, code: int, why: str | None) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class PageRoute(APIRoute):
    """A route whose errors are pages: the form for a token, the band while the database is away, or a sentence."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except ShutError as error:
                return render("login.html", error.code, why=error.why)
            except RequestValidationError:
                return await _problem(request, 404, "This address has no page.")
            except HTTPException as error:
                return await _problem(request, error.status_code, str(error.detail), error.headers)
            except (FoltrError, SQLAlchemyError, OSError) as error:
                note_unavailable(error)
                return render("away.html", 503, **await _around(request))

        return answer


def admitted(request: Request) -> Bearer:
    """Return who shows the token. Raises ShutError without a valid one, HTTPException 429 above the rate limit."""
    try:
        return identify(request)
    except HTTPException as error:
        if error.status_code == 429:
            raise
        shows_one = COOKIE in request.cookies
        raise ShutError(error.status_code if shows_one else 200, str(error.detail) if shows_one else None) from error


async def overview_for(request: Request) -> Overview:
    """Admit a viewer or an operator, and read the overview.

    Raises:
        ShutError: without a valid token.
        HTTPException: 403 for a participant, 429 above the rate limit.
        UnavailableError: the database cannot be used.
    """
    if admitted(request).role is Role.PARTICIPANT:
        raise HTTPException(403, "This token is for one device, which has a page of its own.")
    return await read_overview(request)


async def read_overview(request: Request) -> Overview:
    """Read the overview for somebody who is admitted. Raises UnavailableError without a database."""
    return await (await current_state(request)).overview()


Seen = Annotated[Overview, Depends(overview_for)]


def show(request: Request, overview: Overview, template: str, code: int = 200, **values: Any) -> HTMLResponse:
    """Return a page with the navigation and the band above it."""
    status = shown(overview)
    frame = _frame(request, status.verdict, overview.as_of)
    return render(template, code, **frame, status=status, overview=overview, **values)


async def _problem(request: Request, code: int, words: str, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """Return a page that says what is wrong; only those who may look see the band."""
    frame = await _around(request) if code in (404, 422) else {"federation": "", "verdict": None}
    page = render("problem.html", code, **frame, is_missing=code == 404, words=words)
    page.headers.update(headers or {})
    return page


async def _around(request: Request) -> dict[str, Any]:
    found = await state_of_app(request).condition()
    return _frame(request, VerdictRow.of(found.verdict), datetime.now(UTC))


def _frame(request: Request, verdict: VerdictRow, now: datetime) -> dict[str, Any]:
    path = request.url.path
    section = next((each for each in _SECTIONS if each != "/" and path.startswith(each)), "/")
    federation = state_of_app(request).federation
    return {"federation": federation, "verdict": verdict, "now": now, "sections": _SECTIONS, "section": section}
