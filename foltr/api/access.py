"""Authentication: the token of a request, from its header or the page's cookie, and what its role allows."""

import math
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, HTTPException, Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer

from foltr.api.limits import rate_limit_key
from foltr.api.server_state import ServerState
from foltr.api.tokens import LONGEST_TOKEN, Bearer, Role, TokenRefusal

COOKIE = "foltr_token"
# For OpenAPI only: `token_in` reads the token, and `identify` says what is wrong with it.
SECURITY = [
    Security(HTTPBearer(scheme_name="token", description="A token of `foltr api token new`", auto_error=False)),
    Security(
        APIKeyCookie(
            name=COOKIE, scheme_name="cookie", description="The same token, as the page keeps it", auto_error=False
        )
    ),
]

_WORDS = {
    TokenRefusal.UNKNOWN: (401, "This token is not known here. Make one with: foltr api token new viewer"),
    TokenRefusal.EXPIRED: (401, "This token has expired. Make another one with: foltr api token new viewer"),
    TokenRefusal.REVOKED: (403, "This token was revoked. Ask the operator for another one."),
}


def state_of_app(request: Request) -> ServerState:
    """Return the state of this server process."""
    served: ServerState = request.app.state.served
    return served


async def current_state(request: Request) -> ServerState:
    """Return the state of this server process. Raises UnavailableError if the database's file is missing."""
    served = state_of_app(request)
    await served.db.follow_file()
    return served


def token_in(request: Request) -> str | None:
    """Return the token of a request: from the header, else from the page's cookie."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text.strip():
        return text.strip()
    return request.cookies.get(COOKIE)


def identify(request: Request) -> Bearer:
    """Return the bearer of the request's token.

    Raises:
        HTTPException: 401 without a valid token, 403 for a revoked token, 429 above the rate limit.
    """
    served, text = state_of_app(request), token_in(request)
    found = None if text is None else served.tokens.check(text[: LONGEST_TOKEN + 1], served.federation, time.time())
    if isinstance(found, Bearer):
        require_pace(served.by_token.wait_s(found.id))
        return found
    require_address_pace(request)
    if found is None:
        status, words = 401, "Send a token: Authorization: Bearer TOKEN. Make one with: foltr api token new viewer"
    else:
        status, words = _WORDS[found]
    raise HTTPException(status, words, headers={"WWW-Authenticate": "Bearer"} if status == 401 else None)


def identify_again(request: Request, served: ServerState) -> bool:
    """Return whether the token of an admitted request is still valid."""
    text = token_in(request) or ""
    return isinstance(served.tokens.check(text, served.federation, time.time()), Bearer)


def require_address_pace(request: Request) -> None:
    """Raise HTTPException 429 if one address sends too many requests without a valid token."""
    require_pace(state_of_app(request).by_address.wait_s(rate_limit_key(request.client.host if request.client else "")))


def require_pace(wait_s: float) -> None:
    """Raise HTTPException 429 if the caller has to wait."""
    if wait_s > 0.0:
        after = str(math.ceil(wait_s))
        raise HTTPException(429, f"Too many requests. Ask again in {after} s.", headers={"Retry-After": after})


def requires(*roles: Role) -> Callable[[Request], Awaitable[Bearer]]:
    """Make a dependency that admits these roles. It raises HTTPException 403 for others."""

    async def check(request: Request) -> Bearer:
        bearer = identify(request)
        if bearer.role not in roles:
            named = " or ".join(roles)
            raise HTTPException(
                403, f"This needs a token of the role {named}, but this token has the role {bearer.role}."
            )
        return bearer

    return check


def require_same_origin(request: Request) -> None:
    """Refuse a request that another site's page makes a browser send with our cookie. Raises HTTPException 403.

    SameSite=Strict already withholds the cookie. This check covers browsers that do not support it.
    """
    origin = request.headers.get("origin")
    # Plain comparison without parsing: a header that is not a URL counts as foreign, too.
    is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if is_foreign or request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise HTTPException(403, "This was sent by a page of another site.")


Looker = Annotated[Bearer, Depends(requires(Role.VIEWER, Role.OPERATOR))]
Operator = Annotated[Bearer, Depends(requires(Role.OPERATOR))]
Participant = Annotated[Bearer, Depends(requires(Role.PARTICIPANT))]
# After who asks: a caller without a token learns nothing of a database that is away.
ServedHere = Annotated[ServerState, Depends(current_state)]
