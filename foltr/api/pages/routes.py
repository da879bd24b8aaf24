"""All pages: the overview, the lists behind its numbers, the participant's page, and the way in and out."""

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.staticfiles import StaticFiles

from foltr.api.access import state_of_app
from foltr.api.pages import devices, entrance, erasures, events, participant_page, rounds
from foltr.api.pages.frame import PageRoute, admitted, read_overview, show
from foltr.api.pages.rendering import HERE
from foltr.api.reading import newest_rounds
from foltr.api.tokens import Role
from foltr.core.protocol.states import RoundState

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_NEWEST_ROUNDS = 8


def add_pages(app: FastAPI) -> None:
    """Add the pages and their files to an application."""
    for module in (entrance, participant_page, devices, rounds, events, erasures):
        app.include_router(module.router)
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")


@router.get("/")
async def front(request: Request) -> Response:
    """The overview for viewers and operators, a participant's own page for participants."""
    bearer = admitted(request)
    if bearer.role is Role.PARTICIPANT:
        return await participant_page.show_part(state_of_app(request), bearer)
    overview = await read_overview(request)
    newest = await newest_rounds(state_of_app(request), None, _NEWEST_ROUNDS)
    has_ended = any(each.state in (RoundState.COMPLETED, RoundState.ABANDONED) for each in newest)
    return show(request, overview, "overview.html", rounds=newest, has_ended=has_ended)
