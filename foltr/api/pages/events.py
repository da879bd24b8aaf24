"""The page of events, newest first, with filters; a script adds new ones."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from foltr.api.access import state_of_app
from foltr.api.pages.frame import PageRoute, Seen, show
from foltr.api.pages.questions import member_of, number_of, text_of
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.receipts import ReceiptCode
from foltr.storage.pages import EventFilter, page_events

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_EVENTS = 100
_LARGEST_ID = 2**63 - 1
_CODES = sorted(code for code in ReceiptCode if code.events)


@router.get("/events")
async def events(request: Request, overview: Seen) -> Response:
    """A table of events, newest first, page by page."""
    served = state_of_app(request)
    sought = EventFilter(
        kind=member_of(request, "kind", EventKind),
        code=member_of(request, "code", ReceiptCode),
        client_id=text_of(request, "client"),
        round=number_of(request, "round"),
        refused=request.query_params.get("refused") == "true",
    )
    before = number_of(request, "before", _LARGEST_ID)
    page = await page_events(served.db, served.federation, sought, before=before, limit=_EVENTS)
    asked_for = {
        "kind": sought.kind,
        "code": sought.code,
        "client": sought.client_id,
        "round": sought.round,
        "refused": "true" if sought.refused else None,
    }
    return show(
        request,
        overview,
        "events.html",
        page=page,
        before=before,
        asked_for=asked_for,
        is_filtered=any(value is not None for value in asked_for.values()),
        kinds=sorted(EventKind),
        codes=_CODES,
        most=_EVENTS,
    )
