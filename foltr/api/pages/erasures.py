"""The page of erasures: how far each is, what it took out of past counts, and its receipt."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from foltr.api.access import state_of_app
from foltr.api.pages.frame import PageRoute, Seen, show
from foltr.api.pages.questions import text_of
from foltr.api.schemas import Erasure
from foltr.storage.erasure.erasures import list_erasures

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_ERASURES = 25
_PSEUDONYM = "^[0-9a-f]{32}$"


@router.get("/erasures")
async def erasures(request: Request, overview: Seen) -> Response:
    """Erasures with a timeline each, newest first, page by page."""
    served, before = state_of_app(request), text_of(request, "before", _PSEUDONYM)
    rows = await list_erasures(served.db, served.federation, _ERASURES + 1, before=before)
    newest_first = [Erasure.of(row) for row in reversed(rows)]
    return show(
        request,
        overview,
        "erasures.html",
        erasures=newest_first[:_ERASURES],
        before=before,
        following=newest_first[_ERASURES - 1].pseudonym if len(rows) > _ERASURES else None,
    )
