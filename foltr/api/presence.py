"""Presence over time: how many devices were online, counted once a minute while this server runs.

The database has who is online now and not who was when, for that would be a diary of every client. So this is kept in
memory, as two numbers a minute: it begins anew with the process. Prometheus keeps it for longer.
"""

import asyncio
import contextlib
from collections import deque
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from sqlalchemy.exc import SQLAlchemyError

from foltr.api.access import Looker
from foltr.api.reading import PROBLEMS
from foltr.api.schemas import Shown
from foltr.api.served import Served
from foltr.core.errors import FoltrError
from foltr.storage.activity import count_members

router = APIRouter(prefix="/api/v1", responses=PROBLEMS)

_EVERY_S = 60.0
_WITHIN_S = 20.0
# A day.
_MOST = 1440


class Present(Shown):
    """How many members there were at a moment, and how many of them online."""

    at: datetime
    n_members: int
    n_online: int


class Presence:
    """What was counted since the process began.

    Attributes:
        counted: the oldest first, a day at most.
    """

    def __init__(self, served: Served) -> None:
        self._served = served
        self.counted: deque[Present] = deque(maxlen=_MOST)

    async def count(self) -> None:
        """Go on counting; while the database is away there is nothing to count."""
        while True:
            with contextlib.suppress(FoltrError, SQLAlchemyError, OSError):
                async with asyncio.timeout(_WITHIN_S):
                    await self._served.db.follow_file()
                    members = await count_members(self._served.db, self._served.federation)
                    self.counted.append(
                        Present(at=datetime.now(UTC), n_members=members.n_members, n_online=members.n_online)
                    )
            await asyncio.sleep(_EVERY_S)


@router.get("/presence", openapi_extra={"x-who": "viewer, operator"})
async def presence(request: Request, _who: Looker) -> list[Present]:
    """How many devices were online, minute by minute since this server was started, the last day at most."""
    kept: Presence = request.app.state.presence
    return list(kept.counted)
