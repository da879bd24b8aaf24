"""Who asks: the token of a request, in its header or in the page's cookie, and what its role allows."""

import math
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from foltr.api.limits import asker_at
from foltr.api.served import Served
from foltr.api.tokens import LONGEST_TOKEN, Bearer, Refused, Role

COOKIE = "foltr_token"

_WORDS = {
    Refused.UNKNOWN: (401, "This token is not known here. Make one with: foltr api token new"),
    Refused.EXPIRED: (401, "This token has expired. Make another one with: foltr api token new"),
    Refused.REVOKED: (403, "This token was revoked. Ask whoever runs the federation for another one."),
}


def served_by(request: Request) -> Served:
    """Return what this process serves."""
    served: Served = request.app.state.served
    return served


async def served_now(request: Request) -> Served:
    """Return what this process serves. Raises UnavailableError where its database is a file that is not there."""
    served = served_by(request)
    await served.db.follow_file()
    return served


def token_in(request: Request) -> str | None:
    """Return the token that a request shows: in the header first, else in the page's cookie."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text.strip():
        return text.strip()
    return request.cookies.get(COOKIE)


def identify(request: Request) -> Bearer:
    """Say who asks.

    Raises:
        HTTPException: 401 without a valid token, 403 with a revoked one, 429 for who asks too often.
    """
    served, text = served_by(request), token_in(request)
    found = None if text is None else served.tokens.check(text[: LONGEST_TOKEN + 1], served.federation, time.time())
    if isinstance(found, Bearer):
        require_pace(served.by_token.wait_s(found.id))
        return found
    require_address_pace(request)
    if found is None:
        status, words = 401, "Show a token: Authorization: Bearer TOKEN. Make one with: foltr api token new"
    else:
        status, words = _WORDS[found]
    raise HTTPException(status, words, headers={"WWW-Authenticate": "Bearer"} if status == 401 else None)


def identify_again(request: Request, served: Served) -> bool:
    """Say whether the token of a request that was let in is still good."""
    text = token_in(request) or ""
    return isinstance(served.tokens.check(text, served.federation, time.time()), Bearer)


def require_address_pace(request: Request) -> None:
    """Raise HTTPException 429 where too much comes from one address without a valid token."""
    require_pace(served_by(request).by_address.wait_s(asker_at(request.client.host if request.client else "")))


def require_pace(wait_s: float) -> None:
    """Raise HTTPException 429 where somebody has to wait."""
    if wait_s > 0.0:
        after = str(math.ceil(wait_s))
        raise HTTPException(429, f"Too many requests. Ask again in {after} s.", headers={"Retry-After": after})


def requires(*roles: Role) -> Callable[[Request], Awaitable[Bearer]]:
    """Make a dependency that lets these roles in; HTTPException 403 for others."""

    async def check(request: Request) -> Bearer:
        bearer = identify(request)
        if bearer.role not in roles:
            named = " or ".join(roles)
            raise HTTPException(403, f"This needs a token of the role {named}; this one's is {bearer.role}.")
        return bearer

    return check


def require_same_origin(request: Request) -> None:
    """Refuse what another site's page has a browser send with our cookie. Raises HTTPException 403.

    SameSite=Strict keeps the cookie back already; this holds for browsers that do not know it.
    """
    origin = request.headers.get("origin")
    # Nothing is parsed: a header that is no address is foreign, too.
    is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if is_foreign or request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise HTTPException(403, "This was sent by a page of another site.")


Looker = Annotated[Bearer, Depends(requires(Role.VIEWER, Role.OPERATOR))]
Operator = Annotated[Bearer, Depends(requires(Role.OPERATOR))]
Participant = Annotated[Bearer, Depends(requires(Role.PARTICIPANT))]
ServedHere = Annotated[Served, Depends(served_now)]
