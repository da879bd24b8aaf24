"""The FastAPI application: routes, middleware and error handlers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request, Response

from foltr.api import erasure_requests, metrics, orders, participant, reading, status, stream
from foltr.api.access import SECURITY, state_of_app
from foltr.api.metrics import Metrics
from foltr.api.middleware import OuterMiddleware
from foltr.api.pages.routes import add_pages
from foltr.api.problems import FOR_ALL_ROLES, DescribedApi, explain_errors, problems, without_database
from foltr.api.schemas import Alive, Ready
from foltr.api.server_state import ServerState
from foltr.api.stream import LiveStatus
from foltr.core.logs import get_logger
from foltr.core.version import __version__

log = get_logger("foltr.api.app")

router = APIRouter(tags=["health"])

_TITLE = "foltr: one federation"
_TAGS = [
    {"name": "health", "description": "For supervisors and load balancers; anybody may ask."},
    {"name": "status", "description": "How the federation is now, at once or as it changes, and its metrics."},
    {"name": "rounds", "description": "Rounds, and what became of each update."},
    {"name": "clients", "description": "Devices: their state, contributions and refusals."},
    {"name": "events", "description": "What happened, newest first."},
    {"name": "models", "description": "Versions of the ranker, without weights."},
    {"name": "erasures", "description": "Erasures by pseudonym: unlearning, receipts, the audit log."},
    {"name": "orders", "description": "The operator's orders, which are signed elsewhere."},
    {"name": "me", "description": "What a participant may see of its own, and its request to be forgotten."},
]
# A connection that is in use when the database is closed would stay open.
_READINGS_END_WITHIN_S = 5.0


def make_app(served: ServerState) -> FastAPI:
    """Make the application that serves one federation; it closes the database when it ends."""

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.live.close()
        await served.coalesced.finish(_READINGS_END_WITHIN_S)
        await served.db.close()

    # The documentation pages would load scripts from other sites, so only the schema is served.
    app = DescribedApi(
        title=_TITLE,
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        openapi_tags=_TAGS,
        servers=[{"url": "/", "description": "The server of this document"}],
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.served = served
    app.state.live = LiveStatus(served)
    app.state.metrics = Metrics(served)
    app.add_middleware(OuterMiddleware, note=app.state.metrics.note)
    explain_errors(app)
    app.include_router(router)
    for module in (metrics, status, stream, reading, participant, erasure_requests, orders):
        app.include_router(module.router, responses=FOR_ALL_ROLES, dependencies=SECURITY)
    add_pages(app)
    return app


@router.get("/health")
async def get_health() -> Alive:
    """Whether the process is alive. It asks nothing of the database."""
    return Alive()


@router.get("/ready", response_model=Ready, responses=problems(503))
async def get_readiness(request: Request) -> Ready | Response:
    """How the federation is: ok, degraded or down; 503 if the database cannot be read."""
    found = await state_of_app(request).condition()
    if found.next_step is not None:
        log.warning("readiness_check_failed", cause=found.cause)
        return without_database(found).answer()
    return Ready(verdict=found.verdict.level)
