"""The page of erasures: how far each is, what it took out of past counts, and its receipt."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from foltr.api.access import state_of_app
from foltr.api.pages.frame import PageRoute, Seen, show
from foltr.api.pages.questions import text_of
from foltr.api.paging import cut
from foltr.api.reading import PSEUDONYM, newest_erasures

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_ERASURES = 25


@router.get("/erasures")
async def erasures(request: Request, overview: Seen) -> Response:
    """Erasures with a timeline each, newest first, page by page."""
    served, before = state_of_app(request), text_of(request, "before", PSEUDONYM)
    shown, following = cut(await newest_erasures(served, before, _ERASURES + 1), _ERASURES, "pseudonym")
    return show(request, overview, "erasures.html", erasures=shown, before=before, following=following)
