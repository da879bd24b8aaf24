"""Middleware of every answer: security headers, the body limit, and log lines without client names."""

import time
from collections.abc import Callable
from http import HTTPStatus

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foltr.api.problems import Problem
from foltr.core.logs import get_logger

log = get_logger("foltr.api.middleware")

# An order has a few kilobytes at most, a form less.
MOST_POSTED = 64 * 1024

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    # With no-referrer a browser sends no Origin with a form, and `require_same_origin` needs it.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)


class OuterMiddleware:
    """ASGI middleware around the application.

    Args:
        note: called with each answer's method, route, status and seconds.
    """

    def __init__(self, app: ASGIApp, note: Callable[[str, str, int, float], None]) -> None:
        self._app = app
        self._note = note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, taken, took_s = time.monotonic(), 500, 0, None

        async def sending(message: Message) -> None:
            nonlocal status, took_s
            if message["type"] == "http.response.start":
                status, took_s = int(message["status"]), time.monotonic() - began
                named = {name for name, _ in message["headers"]}
                headers = HEADERS if b"cache-control" in named else (*HEADERS, (b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        async def receiving() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MOST_POSTED:
                raise _TooLongError
            return message

        try:
            if _promised(scope) > MOST_POSTED:
                raise _TooLongError
            await self._app(scope, receiving, sending)
        except _TooLongError:
            answer = Problem.of(413, f"At most {MOST_POSTED} bytes may be posted.").answer()
            await answer(scope, receive, sending)
        except ClientDisconnect:
            status = HTTPStatus.BAD_REQUEST  # the peer has gone, and nothing failed on our side
        finally:
            # The route, not the path: a path may hold a client's name, and the log outlives an erasure.
            route = getattr(scope.get("route"), "path", "none")
            seconds = time.monotonic() - began if took_s is None else took_s
            self._note(scope["method"], route, status, seconds)
            log.debug("request", method=scope["method"], route=route, status=status, began_ms=round(seconds * 1000, 1))


class _TooLongError(Exception):
    """The request body exceeds the limit."""


def _promised(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
