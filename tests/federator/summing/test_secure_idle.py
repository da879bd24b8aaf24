"""Rounds of secure sums while nobody is online: one row for the night, unless the next is somebody else's turn."""

import pytest

from foltr.core.protocol.membership import Status
from foltr.core.protocol.topics import ClientTopic
from foltr.storage.queries import list_rounds


async def a_night(secure, *, restarts: bool = False, **changed) -> list[tuple[int, str]]:
    """All leave, and four deadlines pass; returns the rounds."""
    rounds = await secure(3, **changed)
    for client in rounds.clients:
        device = rounds.device(client)
        status = Status(federation="mail", client_id=device.client_id, online=False)
        rounds.served.receive(device, ClientTopic.STATUS, status)
    await rounds.served.turn()
    for _ in range(4):
        if restarts:
            at = rounds.served.clock.at
            await rounds.restart()
            rounds.served.clock.at = at
        rounds.served.clock.at += 61.0
        await rounds.served.turn()
    return [(row.round, row.state) for row in await list_rounds(rounds.served.db, "mail")]


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_idle_round_begins_anew(secure, restarts) -> None:
    """Also in a federator that has read its terms from the database."""
    assert await a_night(secure, restarts=restarts) == [(1, "collecting")]


async def test_where_clients_take_turns_the_next_round_asks_others(secure) -> None:
    """A round whose turn nobody has who ever comes would else be the last one."""
    rows = await a_night(secure, period=2)
    assert rows == [*((number, "abandoned") for number in (1, 2, 3, 4)), (5, "collecting")]
