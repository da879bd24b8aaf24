"""Problems (RFC 9457): the one shape of every error answer, how OpenAPI declares it, and which errors lead to it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal, Self

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from foltr.api.schemas import RowModel, VerdictRow
from foltr.api.server_state import AWAY, Condition, ServerState, away
from foltr.core.errors import FoltrError, MessageError, SettingsError, UnavailableError
from foltr.core.logs import get_logger
from foltr.core.protocol.receipts import ReceiptCode

log = get_logger("foltr.api.problems")

_MEDIA_TYPE = "application/problem+json"
_DESCRIPTIONS = {
    400: "The operator did not sign this order, or the client this request",
    401: "No valid token",
    403: "The token's role is too low, it was revoked, or another site's page sent this",
    404: "Not found",
    409: "This server has no access to the broker",
    413: "Longer than any order or request",
    429: "Too many requests",
    500: "The server is not set up correctly",
    503: "The database or the broker cannot be used now",
}


class WrongField(RowModel):
    """A part of a request that is wrong, such as ``query.limit``, and what is expected of it."""

    field: str
    detail: str


class Problem(RowModel):
    """Why there is no other answer. ``detail`` says what to do; ``type`` is ``about:blank``: the status says it all.

    ``code`` is why a signed message was refused, ``errors`` what is wrong with a request, and ``verdict`` how the
    federation is if its database cannot be read.
    """

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    code: ReceiptCode | None = None
    errors: list[WrongField] | None = None
    verdict: VerdictRow | None = None

    @classmethod
    def of(cls, status: int, detail: str, **more: Any) -> Self:
        """Make a problem; ``more`` are the members that not every problem has."""
        return cls(type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail, **more)

    def as_json(self) -> str:
        """Return the problem as JSON, with the members that it has."""
        return self.model_dump_json(exclude_unset=True)

    def answer(self, headers: Mapping[str, str] | None = None) -> Response:
        """Return the problem as an answer."""
        return Response(self.as_json(), self.status, headers, _MEDIA_TYPE)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Declare the problems that a route may answer with."""
    return {status: {"model": Problem, "description": _DESCRIPTIONS[status]} for status in statuses}


FOR_ALL_ROLES = problems(401, 403, 429, 500, 503)


class DescribedApi(FastAPI):
    """An application whose OpenAPI document says that its errors are problems."""

    def openapi(self) -> dict[str, Any]:
        """Return the document. FastAPI would declare errors of the media type that the answer itself has."""
        if self.openapi_schema is None:
            described = super().openapi()
            for methods in described["paths"].values():
                for operation in methods.values():
                    for status, answer in operation["responses"].items():
                        if int(status) >= HTTPStatus.BAD_REQUEST:
                            answer["content"] = {_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
            for replaced in ("HTTPValidationError", "ValidationError"):
                del described["components"]["schemas"][replaced]
        return super().openapi()


def without_database(found: Condition) -> Problem:
    """Return the problem while the database is unavailable, with the verdict."""
    if found.next_step is None:  # it was read a moment ago, or just came back
        found = away()
    return Problem.of(503, found.next_step or AWAY, verdict=VerdictRow.of(found.verdict))


def note_unavailable(error: Exception) -> None:
    """Log why the database cannot be used; answers say only what to do."""
    log.warning("database_unavailable", cause=_cause(error))


def explain_errors(app: FastAPI) -> None:
    """Answer exceptions with problems. What is not raised on purpose, or names the database, is only logged."""

    async def refused(_request: Request, error: Any) -> Response:
        said = str(error.detail)
        if said == HTTPStatus(error.status_code).phrase:  # by Starlette, which knows no next step
            said = f"{said}: /api/v1/openapi.json says what may be asked."
        return Problem.of(error.status_code, said).answer(error.headers)

    async def invalid(_request: Request, error: Any) -> Response:
        wrong = [WrongField(field=".".join(map(str, one["loc"])), detail=one["msg"]) for one in error.errors()]
        said = f"{wrong[0].field}: {wrong[0].detail}. /api/v1/openapi.json says what may be asked."
        return Problem.of(422, said, errors=wrong).answer()

    async def unsigned(_request: Request, error: Any) -> Response:
        code = ReceiptCode(error.code)
        said = f"{error.detail[0].upper()}{error.detail[1:]}. {code.explanation}"
        return Problem.of(400, said, code=code).answer()

    async def unavailable(request: Request, error: Exception) -> Response:
        note_unavailable(error)
        served: ServerState = request.app.state.served
        return without_database(await served.condition()).answer({"Retry-After": "5"})

    async def misplaced(request: Request, error: Exception) -> Response:
        # No federation of that name, or tables of another version: the verdict knows, and says what to do.
        served: ServerState = request.app.state.served
        found = await served.condition()
        return await broken(request, error) if found.next_step is None else without_database(found).answer()

    async def broken(_request: Request, error: Exception) -> Response:
        log.error("request_failed", cause=_cause(error))
        return Problem.of(500, "The server is not set up correctly; see its log.").answer()

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(MessageError, unsigned)
    app.add_exception_handler(SQLAlchemyError, unavailable)
    app.add_exception_handler(OSError, unavailable)
    app.add_exception_handler(UnavailableError, unavailable)
    app.add_exception_handler(SettingsError, misplaced)
    app.add_exception_handler(FoltrError, broken)
    app.add_exception_handler(Exception, broken)


def _cause(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
