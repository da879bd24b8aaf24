"""The pages of rounds: all of them, and one with who contributed, what became of each update and why."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request
from fastapi.responses import RedirectResponse, Response

from foltr.api.access import state_of_app
from foltr.api.pages.frame import PageRoute, Seen, show
from foltr.api.pages.questions import number_of
from foltr.api.paging import LARGEST, cut
from foltr.api.reading import MOST_OF_A_ROUND, newest_rounds
from foltr.operations.round_sums import sum_lines
from foltr.operations.round_words import round_in_words
from foltr.storage.pages import latest_ended_round
from foltr.storage.queries import (
    count_rejections,
    erased_updates,
    get_aggregation,
    get_round,
    list_contributions,
    list_events,
)

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_ROUNDS, _EVENTS = 50, 20


@router.get("/rounds")
async def rounds(request: Request, overview: Seen) -> Response:
    """A table of rounds, newest first, page by page."""
    before = number_of(request, "before")
    shown, following = cut(await newest_rounds(state_of_app(request), before, _ROUNDS + 1), _ROUNDS, "round")
    return show(request, overview, "rounds.html", rounds=shown, before=before, following=following)


@router.get("/rounds/latest")
async def latest(request: Request, overview: Seen) -> Response:
    """The newest round that ended, by its number."""
    number = await latest_ended_round(state_of_app(request).db, overview.federation)
    if number is None:
        raise HTTPException(404, "No round has ended yet.")
    return RedirectResponse(f"/rounds/{number}", 303)


@router.get("/rounds/{number}")
async def one_round(request: Request, overview: Seen, number: Annotated[int, Path(ge=0, le=LARGEST)]) -> Response:
    """One round: its state, its rule, who contributed, what became of each update, what was refused."""
    db, name = state_of_app(request).db, overview.federation
    row = await get_round(db, name, number)
    if row is None:
        raise HTTPException(404, f"{name} has no round {number}.")
    made = await get_aggregation(db, name, number)
    newest = overview.situation.round
    is_open = newest is not None and newest.number == number and not overview.situation.is_over
    return show(
        request,
        overview,
        "round.html",
        round=row,
        decided=list(round_in_words(row, made)),
        contributions=await list_contributions(db, name, round_number=number, limit=MOST_OF_A_ROUND),
        most=MOST_OF_A_ROUND,
        sums=await sum_lines(db, name, number),
        refusals=await count_rejections(db, name, number),
        events=(await list_events(db, name, round_number=number, limit=_EVENTS))[::-1],
        n_erased=(await erased_updates(db, name, number, number)).get(number, 0),
        is_open=is_open,
        awaited=overview.situation.awaited if is_open else [],
        newest=0 if newest is None else newest.number,
    )
