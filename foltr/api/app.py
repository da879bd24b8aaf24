"""The FastAPI application: routes, middleware and error handlers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from foltr.api import erasure_requests, metrics, orders, participant, reading, status, stream
from foltr.api.access import state_of_app
from foltr.api.metrics import Metrics
from foltr.api.middleware import OuterMiddleware, explain_errors
from foltr.api.pages.routes import add_pages
from foltr.api.schemas import Health
from foltr.api.server_state import ServerState
from foltr.api.stream import LiveStatus
from foltr.core.logs import get_logger
from foltr.core.version import __version__

log = get_logger("foltr.api.app")

_TITLE = "foltr: one federation"
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
    app = FastAPI(
        title=_TITLE,
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    app.state.served = served
    app.state.live = LiveStatus(served)
    app.state.metrics = Metrics(served)
    app.add_middleware(OuterMiddleware, note=app.state.metrics.note)
    explain_errors(app)
    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route("/ready", ready, methods=["GET"], responses={503: {"model": Health}}, response_model=Health)
    app.include_router(metrics.router)
    app.include_router(status.router)
    app.include_router(stream.router)
    app.include_router(reading.router)
    app.include_router(participant.router)
    app.include_router(erasure_requests.router)
    app.include_router(orders.router)
    add_pages(app)
    return app


async def health() -> Health:
    """Whether the process is alive; it asks nothing of the database, so a supervisor never restarts it for that."""
    return Health(ready=True)


async def ready(request: Request) -> JSONResponse:
    """Whether the database can be read, else 503 with what to do; and how the federation is: ok, degraded or down."""
    state = state_of_app(request)
    found, verdict = await state.readiness(), await state.verdict()
    if not found.ready:
        log.warning("readiness_check_failed", cause=found.cause)
    body = Health(ready=found.ready, detail=found.next_step, verdict=verdict.level)
    return JSONResponse(body.model_dump(mode="json"), 200 if found.ready else 503)
