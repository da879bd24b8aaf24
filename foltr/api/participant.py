"""What a participant may read: its own contributions and its own receipt."""

from functools import partial

from fastapi import APIRouter, HTTPException, Request

from foltr.api.access import Participant, ServedHere
from foltr.api.paging import Before, Limit, Page
from foltr.api.problems import problems
from foltr.api.reading import JwsResponse, receipt_of
from foltr.api.schemas import Client, Contribution, Erasure, Mine
from foltr.api.server_state import ServerState
from foltr.storage import pages, queries

router = APIRouter(prefix="/api/v1/me", tags=["me"])
looked = partial(router.get, openapi_extra={"x-who": "participant"})


@looked("")
async def get_me(who: Participant, served: ServedHere) -> Mine:
    """This client's membership, or its erasure."""
    return await mine(served, who.client_id or "")


@looked("/contributions")
async def list_my_contributions(
    request: Request, who: Participant, served: ServedHere, limit: Limit = 100, before: Before = None
) -> Page[Contribution]:
    """This client's contributions, newest first."""
    rows = await queries.list_contributions(
        served.db, served.federation, client_id=who.client_id or "", before=before, limit=limit + 1
    )
    return Page[Contribution].of(request, rows[::-1], limit, "before", "round")


@looked("/receipt", response_class=JwsResponse, responses=problems(404))
async def get_my_receipt(who: Participant, served: ServedHere) -> JwsResponse:
    """The signed receipt of this client's erasure."""
    row = await pages.erasure_of(served.db, served.federation, who.client_id or "")
    if row is None:
        raise HTTPException(404, "This client was not forgotten, so it has no receipt.")
    return receipt_of(row)


async def mine(served: ServerState, client_id: str) -> Mine:
    """Read a client's membership or erasure."""
    row = await queries.get_client(served.db, served.federation, client_id)
    erasure = await pages.erasure_of(served.db, served.federation, client_id)
    return Mine(
        client_id=client_id,
        client=None if row is None else Client.model_validate(row),
        fates=await queries.count_fates(served.db, served.federation, client_id),
        erasure=None if erasure is None else Erasure.of(erasure),
    )
