"""Commands that no federator answers: they give up once the broker has their order, and not by a clock."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support.waiting import until

from foltr.operations import order_session
from foltr.operations.order_session import OrderSession


def has_come_back(talk: OrderSession) -> bool:
    return talk._came_back  # noqa: SLF001


def hears_another_federator(talk: OrderSession) -> bool:
    return talk._came_back and talk._other_federator  # noqa: SLF001


def give_up_once(monkeypatch: pytest.MonkeyPatch, heard: Callable[[OrderSession], bool] = has_come_back) -> None:
    """End an order's time for an answer as soon as this message was heard, after pending output is printed."""

    async def retry_taken_over(visit: Callable[[], Awaitable[None]]) -> None:
        talk, visiting = visit.__self__, asyncio.ensure_future(visit())
        await until(lambda: visiting.done() or heard(talk), "the broker has not delivered the order")
        if visiting.done():
            return await visiting
        monkeypatch.setattr(order_session, "_TELL_AFTER_S", 0.0)
        await talk._tell_later()  # noqa: SLF001
        visiting.cancel()
        await asyncio.wait([visiting])
        raise TimeoutError

    monkeypatch.setattr(order_session, "_TELL_AFTER_S", 10_000.0)
    monkeypatch.setattr(order_session, "retry_taken_over", retry_taken_over)
