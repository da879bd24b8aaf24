"""``foltr status``: how a federation is, on one screen, once or again and again."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.text import Text

from foltr.cli import options
from foltr.cli.database import answering, open_federation
from foltr.cli.history.heartbeat import hear
from foltr.cli.options import option
from foltr.cli.output import console, print_json, print_jsonl, to_plain, wrapped
from foltr.cli.settings import Settings, load_settings
from foltr.cli.status.screen import needs_attention, screen_lines
from foltr.core.errors import SettingsError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from foltr.operations.overview import Overview
    from foltr.operations.situation import Heard

# A look at the database takes a tenth of a second; whatever takes longer than this is no answer.
_LOOK_S = 10.0
# A new connection each time: what the broker retains does not change more often than the federator beats.
_ASK_BROKER_EVERY_S = 5.0
_NEVER = "never"


def status(
    watch: Annotated[bool, option("Look again and again, until Ctrl-C", "--watch")] = False,
    every: Annotated[float, option("Seconds between two looks", min=0.2, max=3600)] = 2.0,
    db: options.Db = None,
    federation: options.Federation = None,
    credentials: options.Credentials = None,
    broker: options.Broker = None,
    json: options.Json = False,
    jsonl: Annotated[bool, option("Print a line of JSON, with --watch one for each look", "--jsonl")] = False,
) -> None:
    """Say on one screen how a federation is: its federator, its open round, who is there, and what needs you.

    The broker is asked as `foltr rounds why` does. Exit code 1 where something needs you: the federator is not
    running or hangs, an erasure is overdue, or unlearning waits for your order or for a device.
    """
    if json and watch:
        raise SettingsError("json: a stream has a line of JSON for each look: --jsonl --watch")
    settings = load_settings(db_url=db, federation=federation, credentials=credentials, broker_url=broker)
    if watch:
        asyncio.run(_watch(settings, every, named=federation is not None, jsonl=jsonl))
        return
    found = asyncio.run(_once(settings, named=federation is not None))
    if json or jsonl:
        (print_json if json else print_jsonl)(_plain(found))
    else:
        console.print(_screen(found, console.height), soft_wrap=True)
    if needs_attention(found):
        raise typer.Exit(1)


async def _once(settings: Settings, *, named: bool) -> "Overview":
    async with _looking(settings, named=named) as look:
        return await look()


async def _watch(settings: Settings, every_s: float, *, named: bool, jsonl: bool) -> None:
    """Show what each look finds. One that fails says so, beside the time of the last that did not.

    Settings that were right at first stay so: where there is no file or no federation any more, or another schema, the
    database is being restored or upgraded.
    """
    as_of = _NEVER
    live = Live(console=console, auto_refresh=False, screen=True) if console.is_terminal and not jsonl else None
    with live or nullcontext():
        while True:
            started = time.monotonic()
            try:
                async with _looking(settings, named=named) as look:
                    while True:
                        started = time.monotonic()
                        found = await look()
                        as_of = f"{found.as_of:%Y-%m-%d %H:%M:%S} UTC"
                        _show(found, live, jsonl=jsonl)
                        await asyncio.sleep(max(0.0, every_s - (time.monotonic() - started)))
            except (SettingsError, UnavailableError) as error:
                if isinstance(error, SettingsError) and as_of == _NEVER:
                    raise
                _show_away(str(error), as_of, live, jsonl=jsonl)
            await asyncio.sleep(max(0.0, every_s - (time.monotonic() - started)))


@asynccontextmanager
async def _looking(settings: Settings, *, named: bool) -> "AsyncIterator[Callable[[], Awaitable[Overview]]]":
    """Connect to the database; each look reads it once, and asks the broker every few seconds.

    Raises:
        UnavailableError: there was no answer in time: of a connection the drivers wait for it, of a look `answering`.
    """
    from foltr.operations.overview import read_overview

    async with open_federation(settings, named=named) as (database, name):
        heard: Heard | None = None
        asked_at = -math.inf

        async def look() -> "Overview":
            nonlocal heard, asked_at
            async with answering(database, _LOOK_S):
                await database.follow_file()
                if time.monotonic() - asked_at >= _ASK_BROKER_EVERY_S:
                    heard, asked_at = await hear(settings, name), time.monotonic()
                return (await read_overview(database, name)).with_heard(heard)

        yield look


def _show(found: "Overview", live: Live | None, *, jsonl: bool) -> None:
    if jsonl:
        print_jsonl(_plain(found))
    elif live is None:
        console.print(_screen(found, console.height), end="\n\n", soft_wrap=True)
    else:
        live.update(_screen(found, console.height - 1), refresh=True)


def _show_away(why: str, as_of: str, live: Live | None, *, jsonl: bool) -> None:
    if jsonl:
        print_jsonl({"as_of": None, "unavailable": why, "last_as_of": as_of})
        return
    lines = wrapped(f"{why} Looking again; the last answer is as of {as_of}.", console.width)
    if live is None:
        console.print(Text(lines), end="\n\n", soft_wrap=True)
    else:
        live.update(Text(lines), refresh=True)


def _screen(found: "Overview", height: int) -> Text:

    return Text("\n".join(screen_lines(found, console.width, height)))


def _plain(found: "Overview") -> Any:
    """Return the overview for programs: all of it, with whom the round awaits."""
    situation = found.situation
    judged = {"awaited": situation.awaited, "n_not_asked": situation.n_not_asked, "overdue_s": situation.overdue_s}
    plain = to_plain(found)
    return plain | {"situation": plain["situation"] | judged}
