"""What viewers and operators may read: rounds, clients, models, erasures, receipts, the audit log, orders."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query
from fastapi.responses import PlainTextResponse, Response
from pydantic import TypeAdapter

from foltr.api.access import Looker, ServedHere
from foltr.api.schemas import (
    Aggregation,
    AuditLine,
    Client,
    Contribution,
    Erasure,
    Event,
    Events,
    GivenOrder,
    Job,
    ListedClient,
    Model,
    Problem,
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
from foltr.storage import pages, queries
from foltr.storage.erasure.erasures import find_erasure, list_erasures
from foltr.storage.erasure_records import ErasureRow
from foltr.storage.models import get_model
from foltr.storage.orders import list_orders
from foltr.storage.pages import ClientState, EventFilter

PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "No valid token"},
    403: {"model": Problem, "description": "The token's role is too low, or it was revoked"},
    404: {"model": Problem, "description": "Not found"},
    429: {"model": Problem, "description": "Too many requests"},
    503: {"model": Problem, "description": "The database cannot be used now"},
}

router = APIRouter(prefix="/api/v1", responses=PROBLEMS)


class JwsResponse(PlainTextResponse):
    """A signed receipt (JWS, compact)."""

    media_type = "application/jose"


# Errors are JSON even if the answer itself is not.
TEXT_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": told["description"],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, told in PROBLEMS.items()
}

# docs/api.md shows who may call each route.
looked = partial(router.get, openapi_extra={"x-who": "viewer, operator"})

_ROUNDS = TypeAdapter(list[Round])
_LARGEST = 2**31 - 1
_LARGEST_ID = 2**63 - 1
SEARCH_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
MOST_OF_A_ROUND = 1000
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many")]
Before = Annotated[int | None, Query(ge=0, le=_LARGEST, description="Only those with a lower number")]
Number = Annotated[int, Path(ge=0, le=_LARGEST)]
ClientName = Annotated[str, Path(pattern=NAME_PATTERN)]
OfClient = Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only those of this client")]
Pseudonym = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


@looked("/rounds", response_model=list[Round])
async def rounds(served: ServedHere, _who: Looker, limit: Limit = 100, before: Before = None) -> Response:
    """Rounds, newest first."""
    # Every open page requests the same rows, so they are read and serialised once for all.
    made = served.coalesced.read(("rounds", before, limit), lambda: rounds_as_json(served, before, limit))
    return Response(await made, media_type="application/json")


@looked("/rounds/latest")
async def latest_round(served: ServedHere, _who: Looker) -> WholeRound:
    """The newest round that ended, like any round by its number."""
    number = await pages.latest_ended_round(served.db, served.federation)
    if number is None:
        raise HTTPException(404, "No round has ended yet. See what the open one waits for: /api/v1/status")
    return await whole_round(served, number)


@looked("/rounds/{number}")
async def one_round(served: ServedHere, _who: Looker, number: Number) -> WholeRound:
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


@looked("/clients")
async def clients(
    served: ServedHere,
    _who: Looker,
    limit: Limit = 100,
    after: Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only those that follow this name")] = None,
    state: Annotated[ClientState | None, Query(description="Only those in this state")] = None,
    search: Annotated[str | None, Query(pattern=SEARCH_PATTERN, description="Only names that contain this")] = None,
) -> list[ListedClient]:
    """The clients that ever joined, by name, with contributions to the newest 100 rounds and an hour's refusals."""
    since = datetime.now(UTC) - WINDOW
    rows = await pages.page_clients(
        served.db, served.federation, since=since, state=state, search=search or "", after=after or "", limit=limit
    )
    return [ListedClient.of(row) for row in rows]


@looked("/clients/{client_id}")
async def one_client(served: ServedHere, _who: Looker, client_id: ClientName) -> WholeClient:
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


@looked("/events")
async def events(
    served: ServedHere,
    _who: Looker,
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=0, le=_LARGEST_ID, description="Only those with a lower id")] = None,
    kind: Annotated[EventKind | None, Query(description="Only those of this kind")] = None,
    code: Annotated[ReceiptCode | None, Query(description="Only those with this reason")] = None,
    client: OfClient = None,
    round_: Annotated[
        int | None, Query(alias="round", ge=0, le=_LARGEST, description="Only those of this round")
    ] = None,
    refused: Annotated[bool, Query(description="Only refusals of messages")] = False,
) -> Events:
    """What happened: who came and left, what was refused and why, what the operator and the federator decided."""
    sought = EventFilter(kind, code, client, round_, refused)
    made = served.coalesced.read(
        ("events", sought, before, limit),
        lambda: pages.page_events(served.db, served.federation, sought, before=before, limit=limit),
    )
    return Events.model_validate(await made)


@looked("/models")
async def models(served: ServedHere, _who: Looker, limit: Limit = 100, before: Before = None) -> list[Model]:
    """Models, newest first."""
    rows = await pages.page_models(served.db, served.federation, before=before, limit=limit)
    return [Model.model_validate(row) for row in rows]


@looked("/models/{version}")
async def one_model(served: ServedHere, _who: Looker, version: Number) -> Model:
    """One model, its origin, and whether it holds data of a forgotten client."""
    row = await get_model(served.db, served.federation, version)
    if row is None:
        raise HTTPException(404, f"Federation {served.federation} has no model {version}. See /api/v1/models")
    return Model.model_validate(row)


@looked("/erasures")
async def erasures(served: ServedHere, _who: Looker, limit: Limit = 100) -> list[Erasure]:
    """Erasures by pseudonym, newest last, with their unlearning."""
    rows = await list_erasures(served.db, served.federation, limit=limit)
    return [Erasure.of(row) for row in rows]


@looked("/erasures/{pseudonym}")
async def one_erasure(served: ServedHere, _who: Looker, pseudonym: Pseudonym) -> Erasure:
    """One erasure."""
    return Erasure.of(await _erasure(served, pseudonym))


@looked("/receipts/{pseudonym}", response_class=JwsResponse, responses=TEXT_PROBLEMS)
async def receipt(served: ServedHere, _who: Looker, pseudonym: Pseudonym) -> JwsResponse:
    """The signed receipt, for `foltr erasure verify`."""
    return receipt_of(await _erasure(served, pseudonym))


@looked("/jobs")
async def jobs(served: ServedHere, _who: Looker, limit: Limit = 100, before: Before = None) -> list[Job]:
    """Unlearning jobs, newest first."""
    rows = await pages.page_jobs(served.db, served.federation, before=before, limit=limit)
    return [Job.model_validate(row) for row in rows]


@looked("/audit")
async def audit(
    served: ServedHere,
    _who: Looker,
    limit: Limit = 100,
    after: Annotated[int, Query(ge=0, le=_LARGEST, description="Return only entries after this one")] = 0,
) -> list[AuditLine]:
    """The log of erasures, oldest first; each entry has the hash of the one before."""
    entries = await pages.page_audit(served.db, served.federation, after=after, limit=limit)
    return [AuditLine.model_validate(entry) for entry in entries]


@looked("/orders")
async def orders(served: ServedHere, _who: Looker, limit: Limit = 100) -> list[GivenOrder]:
    """The operator's orders, newest last."""
    rows = await list_orders(served.db, served.federation, limit=limit)
    return [GivenOrder.model_validate(row) for row in rows]


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
    row = await find_erasure(served.db, served.federation, pseudonym)
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
