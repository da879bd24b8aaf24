"""The pages of devices: a table with filters, and one device with all that is known of it."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request
from fastapi.responses import Response

from foltr.api.access import state_of_app
from foltr.api.pages.frame import PageRoute, Seen, show
from foltr.api.pages.questions import member_of, number_of, text_of
from foltr.api.paging import cut
from foltr.api.reading import SEARCH_PATTERN, why_no_client
from foltr.core.protocol.fields import NAME_PATTERN
from foltr.operations.overview import WINDOW
from foltr.storage.pages import COUNTED_ROUNDS, ClientState, EventFilter, page_clients, page_events, refusals_of
from foltr.storage.queries import count_fates, get_client, list_contributions

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_DEVICES, _CONTRIBUTIONS, _EVENTS = 50, 50, 12
# What the table's filter offers, and what it calls it.
STATES = {
    ClientState.ONLINE: "online",
    ClientState.OFFLINE: "offline",
    ClientState.QUARANTINED: "in quarantine",
    ClientState.PROPOSED: "proposed for quarantine",
    ClientState.REVOKED: "revoked",
    ClientState.LEFT: "left",
    ClientState.REFUSED: "refused within the last hour",
}


@router.get("/devices")
async def devices(request: Request, overview: Seen) -> Response:
    """A table of devices by name, page by page."""
    served = state_of_app(request)
    state = member_of(request, "state", ClientState)
    search = text_of(request, "search", SEARCH_PATTERN) or ""
    after = text_of(request, "after") or ""
    lines = await page_clients(
        served.db,
        served.federation,
        since=overview.as_of - WINDOW,
        state=state,
        search=search,
        after=after,
        limit=_DEVICES + 1,
    )
    shown, following = cut(lines, _DEVICES, "client.client_id")
    return show(
        request,
        overview,
        "devices.html",
        lines=shown,
        following=following,
        state=state,
        states=STATES,
        search=search,
        after=after,
        proposed={each.client_id for each in overview.suspects},
        n_counted=COUNTED_ROUNDS,
    )


@router.get("/devices/{name}")
async def device(request: Request, overview: Seen, name: Annotated[str, Path(pattern=NAME_PATTERN)]) -> Response:
    """One device: its state, its contributions and what became of them, its refusals with reasons, its events."""
    db, federation = state_of_app(request).db, overview.federation
    row = await get_client(db, federation, name)
    events = (await page_events(db, federation, EventFilter(client_id=name), limit=_EVENTS)).events
    if row is None and not events:
        raise HTTPException(
            404, await why_no_client(state_of_app(request), name, "Look for it in the list of devices.")
        )
    before = number_of(request, "before")
    contributions = await list_contributions(db, federation, client_id=name, before=before, limit=_CONTRIBUTIONS + 1)
    shown, following = cut(contributions[::-1], _CONTRIBUTIONS, "round")
    return show(
        request,
        overview,
        "device.html",
        name=name,
        client=row,
        refusals=await refusals_of(db, federation, name, overview.as_of - WINDOW),
        fates=await count_fates(db, federation, name),
        contributions=shown,
        before=before,
        following=following,
        events=events,
        proposal=next((each for each in overview.suspects if each.client_id == name), None),
        is_awaited=name in overview.situation.awaited and not overview.situation.is_over,
    )
