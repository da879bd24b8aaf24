"""The form that stores a token in a cookie, and the way out."""

import time
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from foltr.api.access import COOKIE, require_address_pace, require_same_origin, state_of_app
from foltr.api.pages.rendering import render
from foltr.api.tokens import LONGEST_TOKEN, Bearer

router = APIRouter(include_in_schema=False)


@router.post("/login")
async def login(request: Request) -> Response:
    """Take a token into the cookie, which no script sees and no other site's page sends."""
    require_same_origin(request)
    served = state_of_app(request)
    text = parse_qs((await request.body()).decode(errors="replace")).get("token", [""])[0].strip()
    found = served.tokens.check(text[: LONGEST_TOKEN + 1], served.federation, time.time())
    if not isinstance(found, Bearer):
        require_address_pace(request)
        return render("login.html", 401, why=f"This token is {found}. Ask the operator for another one.")
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        text,
        max_age=max(0, int(found.expires_at - time.time())),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
async def logout(request: Request) -> Response:
    """Drop the cookie."""
    require_same_origin(request)
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer
