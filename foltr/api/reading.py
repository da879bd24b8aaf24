"""What viewers and operators may read: rounds, clients, models, erasures, receipts, the audit log, orders."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import TypeAdapter

from foltr.api.access import Looker, ServedHere
from foltr.api.paging import LARGEST, Before, Limit, Page, next_page
from foltr.api.problems import problems
from foltr.api.schemas import (
    Aggregation,
    AuditLine,
    Client,
    Contribution,
    Erasure,
    Event,
    GivenOrder,
    Job,
    ListedClient,
    Model,
    Round,
    WholeClient,
    WholeRound,
)
from foltr.api.server_state import ServerState
from foltr.core.erasure.states import FORGET_STATE, UNTIL_ERASED, ErasureState
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.fields import NAME_PATTERN
from foltr.core.protocol.receipts import ReceiptCode
from foltr.operations.overview import WINDOW
from foltr.storage import models as stored_models
from foltr.storage import orders as stored_orders
from foltr.storage import pages, queries
from foltr.storage.erasure import erasures as stored_erasures
from foltr.storage.erasure_records import ErasureRow
from foltr.storage.pages import ClientState, EventFilter

router = APIRouter(prefix="/api/v1")


class JwsResponse(PlainTextResponse):
    """A signed receipt (JWS, compact)."""

    media_type = "application/jose"


# docs/api.md shows who may call each route.
looked = partial(router.get, openapi_extra={"x-who": "viewer, operator"})

_ROUNDS = TypeAdapter(list[Round])
_LARGEST_ID = 2**63 - 1
SEARCH_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
MOST_OF_A_ROUND = 1000
Number = Annotated[int, Path(ge=0, le=LARGEST)]
ClientName = Annotated[str, Path(pattern=NAME_PATTERN)]
OfClient = Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only those of this client")]
PSEUDONYM = "^[0-9a-f]{32}$"
Pseudonym = Annotated[str, Path(pattern=PSEUDONYM)]


@looked("/rounds", tags=["rounds"], response_model=Page[Round])
async def list_rounds(
    request: Request, _who: Looker, served: ServedHere, limit: Limit = 100, before: Before = None
) -> Response:
    """Rounds, newest first."""

    async def make() -> str:
        rows = await newest_rounds(served, before, limit + 1)
        return Page[Round].of(request, rows, limit, "before", "round").model_dump_json()

    # Every open page requests the same rows, so they are read and serialised once for all.
    made = served.coalesced.read(("rounds", request.scope["query_string"]), make)
    return Response(await made, media_type="application/json")


@looked("/rounds/latest", tags=["rounds"], responses=problems(404))
async def get_latest_round(_who: Looker, served: ServedHere) -> WholeRound:
    """The newest round that ended, like any round by its number."""
    number = await pages.latest_ended_round(served.db, served.federation)
    if number is None:
        raise HTTPException(404, "No round has ended yet. See what the open one waits for: /api/v1/status")
    return await whole_round(served, number)


@looked("/rounds/{number}", tags=["rounds"], responses=problems(404))
async def get_round(_who: Looker, served: ServedHere, number: Number) -> WholeRound:
    """One round: its row, its rule, who contributed, what became of each update, what was refused."""
    return await whole_round(served, number)


async def whole_round(served: ServerState, number: int) -> WholeRound:
    """Read one round. Raises HTTPException 404 if it was never opened."""
    db, name = served.db, served.federation
    row = await queries.get_round(db, name, number)
    if row is None:
        raise HTTPException(404, f"Federation {name} has no round {number}. See /api/v1/rounds")
    made = await queries.get_aggregation(db, name, number)
    contributions = await queries.list_contributions(db, name, round_number=number, limit=MOST_OF_A_ROUND)
    events = await queries.list_events(db, name, round_number=number, limit=MOST_OF_A_ROUND)
    erased = await queries.erased_updates(db, name, number, number)
    return WholeRound(
        round=Round.of(row, erased.get(number, 0)),
        aggregation=None if made is None else Aggregation.model_validate(made),
        contributions=[Contribution.model_validate(line) for line in contributions],
        events=[Event.model_validate(event) for event in events],
        n_erased=erased.get(number, 0),
    )


@looked("/clients", tags=["clients"])
async def list_clients(
    request: Request,
    _who: Looker,
    served: ServedHere,
    limit: Limit = 100,
    after: Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only those that follow this name")] = None,
    state: Annotated[ClientState | None, Query(description="Only those in this state")] = None,
    search: Annotated[str | None, Query(pattern=SEARCH_PATTERN, description="Only names that contain this")] = None,
) -> Page[ListedClient]:
    """The clients that ever joined, by name, with contributions to the newest 100 rounds and an hour's refusals."""
    since = datetime.now(UTC) - WINDOW
    rows = await pages.page_clients(
        served.db, served.federation, since=since, state=state, search=search or "", after=after or "", limit=limit + 1
    )
    return Page[ListedClient].of(request, [ListedClient.of(row) for row in rows], limit, "after", "client_id")


@looked("/clients/{client_id}", tags=["clients"], responses=problems(404))
async def get_client(_who: Looker, served: ServedHere, client_id: ClientName) -> WholeClient:
    """One client, the outcomes of its updates, and its newest contributions."""
    db, name = served.db, served.federation
    row = await queries.get_client(db, name, client_id)
    if row is None:
        raise HTTPException(404, await why_no_client(served, client_id, "See /api/v1/clients"))
    contributions = await queries.list_contributions(db, name, client_id=client_id, limit=100)
    return WholeClient(
        client=Client.model_validate(row),
        fates=await queries.count_fates(db, name, client_id),
        contributions=[Contribution.model_validate(line) for line in reversed(contributions)],
    )


async def event_filter(
    kind: Annotated[EventKind | None, Query(description="Only those of this kind")] = None,
    code: Annotated[ReceiptCode | None, Query(description="Only those with this reason")] = None,
    client: OfClient = None,
    round_: Annotated[
        int | None, Query(alias="round", ge=0, le=LARGEST, description="Only those of this round")
    ] = None,
    refused: Annotated[bool, Query(description="Only refusals of messages")] = False,
) -> EventFilter:
    """Read which events are asked for."""
    return EventFilter(kind, code, client, round_, refused)


@looked("/events", tags=["events"])
async def list_events(
    request: Request,
    _who: Looker,
    served: ServedHere,
    sought: Annotated[EventFilter, Depends(event_filter)],
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=0, le=_LARGEST_ID, description="Only those with a lower id")] = None,
) -> Page[Event]:
    """What happened: joins, refusals with their reasons, decisions, newest first.

    A page may have fewer events than ``limit`` and still continue: at most 5,000 are looked through for it.
    """
    made = served.coalesced.read(
        ("events", sought, before, limit),
        lambda: pages.page_events(served.db, served.federation, sought, before=before, limit=limit),
    )
    found = await made
    return Page[Event](items=found.events, next=next_page(request, "before", found.before))


@looked("/models", tags=["models"])
async def list_models(
    request: Request, _who: Looker, served: ServedHere, limit: Limit = 100, before: Before = None
) -> Page[Model]:
    """Models, newest first."""
    rows = await pages.page_models(served.db, served.federation, before=before, limit=limit + 1)
    return Page[Model].of(request, rows, limit, "before", "version")


@looked("/models/{version}", tags=["models"], responses=problems(404))
async def get_model(_who: Looker, served: ServedHere, version: Number) -> Model:
    """One model, its origin, and whether it holds data of a forgotten client."""
    row = await stored_models.get_model(served.db, served.federation, version)
    if row is None:
        raise HTTPException(404, f"Federation {served.federation} has no model {version}. See /api/v1/models")
    return Model.model_validate(row)


@looked("/erasures", tags=["erasures"])
async def list_erasures(
    request: Request,
    _who: Looker,
    served: ServedHere,
    limit: Limit = 100,
    before: Annotated[str | None, Query(pattern=PSEUDONYM, description="Only those before this one")] = None,
) -> Page[Erasure]:
    """Erasures by pseudonym, newest first, with their unlearning."""
    return Page[Erasure].of(request, await newest_erasures(served, before, limit + 1), limit, "before", "pseudonym")


@looked("/erasures/{pseudonym}", tags=["erasures"], responses=problems(404))
async def get_erasure(_who: Looker, served: ServedHere, pseudonym: Pseudonym) -> Erasure:
    """One erasure."""
    return Erasure.of(await _erasure(served, pseudonym))


@looked("/receipts/{pseudonym}", tags=["erasures"], response_class=JwsResponse, responses=problems(404))
async def get_receipt(_who: Looker, served: ServedHere, pseudonym: Pseudonym) -> JwsResponse:
    """The signed receipt, for `foltr erasure verify`."""
    return receipt_of(await _erasure(served, pseudonym))


@looked("/jobs", tags=["erasures"])
async def list_jobs(
    request: Request, _who: Looker, served: ServedHere, limit: Limit = 100, before: Before = None
) -> Page[Job]:
    """Unlearning jobs, newest first."""
    rows = await pages.page_jobs(served.db, served.federation, before=before, limit=limit + 1)
    return Page[Job].of(request, rows, limit, "before", "number")


@looked("/audit", tags=["erasures"])
async def list_audit_entries(
    request: Request,
    _who: Looker,
    served: ServedHere,
    limit: Limit = 100,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="Return only entries after this one")] = 0,
) -> Page[AuditLine]:
    """The log of erasures, oldest first; each entry has the hash of the one before."""
    entries = await pages.page_audit(served.db, served.federation, after=after, limit=limit + 1)
    return Page[AuditLine].of(request, entries, limit, "after", "seq")


@looked("/orders", tags=["orders"])
async def list_orders(
    request: Request, _who: Looker, served: ServedHere, limit: Limit = 100, before: Before = None
) -> Page[GivenOrder]:
    """The operator's orders, newest first."""
    rows = await stored_orders.list_orders(served.db, served.federation, limit + 1, before=before)
    return Page[GivenOrder].of(request, rows[::-1], limit, "before", "number")


async def rounds_as_json(served: ServerState, before: int | None, limit: int) -> bytes:
    """Read the newest rounds below a number, newest first, as JSON."""
    return _ROUNDS.dump_json(await newest_rounds(served, before, limit))


async def newest_rounds(served: ServerState, before: int | None, limit: int) -> list[Round]:
    """Read the newest rounds below a number, newest first."""
    rows = await queries.list_rounds(served.db, served.federation, limit, before=before)
    if not rows:
        return []
    erased = await queries.erased_updates(served.db, served.federation, rows[0].round, rows[-1].round)
    return [Round.of(row, erased.get(row.round, 0)) for row in reversed(rows)]


async def newest_erasures(served: ServerState, before: str | None, limit: int) -> list[Erasure]:
    """Read the newest erasures before the one of a pseudonym, newest first."""
    rows = await stored_erasures.list_erasures(served.db, served.federation, limit, before=before)
    return [Erasure.of(row) for row in reversed(rows)]


def receipt_of(row: ErasureRow) -> JwsResponse:
    """Return the receipt of an erasure. Raises HTTPException 404 with the reason if it has no receipt."""
    if row.receipt is not None:
        return JwsResponse(row.receipt + "\n")
    if row.state is not ErasureState.DONE:
        state = FORGET_STATE[row.state]
        raise HTTPException(404, f"The erasure is {state} ({state.meaning}): its receipt is signed when it is done.")
    raise HTTPException(
        404, f"Its federator had no key to sign a receipt with. Entry {row.audit_seq} of the log records it"
    )


async def _erasure(served: ServedHere, pseudonym: str) -> ErasureRow:
    row = await stored_erasures.find_erasure(served.db, served.federation, pseudonym)
    if row is None:
        raise HTTPException(404, f"Federation {served.federation} has no erasure {pseudonym}. See /api/v1/erasures")
    return row


async def why_no_client(served: ServerState, client_id: str, look: str) -> str:
    """Say why a client is not known: it was erased, or never joined; then where to look."""
    row = await pages.erasure_of(served.db, served.federation, client_id)
    if row is None:
        return f"Federation {served.federation} knows no client of this name. {look}"
    if row.state in UNTIL_ERASED:
        return f"This client is being erased, since {row.requested_at:%Y-%m-%d}. See /api/v1/erasures/{row.pseudonym}"
    return f"This client was forgotten on {row.erased_at:%Y-%m-%d}. See /api/v1/erasures/{row.pseudonym}"
