"""What a federation with ten million past updates takes: each question, a round's end, forgetting, retention.

Run: python research/benchmarks/histories.py [--updates 10000000] [--clients 1000] [--db URL] [--folder FOLDER]
     [--json FILE] [--only PART ...]

The history is written in bulk (`filled_history`) to an empty PostgreSQL database, or to SQLite in the folder; an
interrupted one is continued. Then the service's code runs these parts:

- ``sizes``: the bytes of each table and index.
- ``queries``: what each command and page reads, the first time and the median of some.
- ``serving``: the federator's start; and with a hundred devices that send an update for each round, how long an update
  waits for its answer, and how long a commit and a round's end take.
- ``forgetting``: the same while clients are forgotten that have an update in every round; the figure is the longest
  wait.
- ``retention``: the same while the bodies of all except the newest rounds are deleted.

Without ``--only`` all parts run, in this order. Forgetting and retention change the history.
"""

import asyncio
import logging
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from answered_fleet import Fleet, serving
from command_line import parser_of, write_json
from filled_history import NAME, Past, fill, sizes
from servers import describe_machine

from foltr.core.errors import UnavailableError
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.store import FederationStore
from foltr.operations.overview import read_overview
from foltr.operations.reading import read_situation
from foltr.storage import pages, queries
from foltr.storage.body_parts import DropStep
from foltr.storage.cipher import require_keys
from foltr.storage.database import Database
from foltr.storage.erasure.client_rows import rows_of
from foltr.storage.erasure.erasures import list_erasures, unreadable_clients
from foltr.storage.keys import KeyStore
from foltr.storage.migrate import upgrade
from foltr.storage.retention import RetentionStep

PARTS = ("sizes", "queries", "serving", "forgetting", "retention")
_REPEATS = 5
_FLEET = 100
_KEPT_ROUNDS = 100
# Clients not forgotten by then are waited for no longer.
_TIMEOUT_S = 600.0
_FIRST_S = 30.0


@dataclass(frozen=True)
class RunParameters:
    """The parameters of a run.

    Attributes:
        seconds: for serving devices before anybody leaves, and the longest duration of a part.
        leaving: clients that are forgotten, one after the other.
    """

    past: Past
    parts: Sequence[str]
    seconds: float
    leaving: int


class TimedStore(FederationStore):
    """A store that records the time of each transaction, and the progress of retention."""

    def __init__(self, db: Database, federation: str) -> None:
        super().__init__(db, federation)
        self.spent: dict[str, list[float]] = defaultdict(list)
        self.n_thinned = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not asyncio.iscoroutinefunction(found):
            return found

        async def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            answer = await found(*arguments, **options)
            self.spent[name].append(time.perf_counter() - began)
            if isinstance(answer, RetentionStep):
                self.n_thinned += answer.n_deleted
            elif isinstance(answer, DropStep):
                self.n_thinned += answer.n_updates
            return answer

        return timed


async def run(url: str, keys: KeyStore, asked: RunParameters) -> dict[str, Any]:
    """Fill the database and measure the parts. Return the results for JSON."""
    past = asked.past
    async with await Database.connect(url, keys=keys) as db:
        await upgrade(db)
        filled_s = await fill(db, keys, past)
        n_bytes = await queries.database_size(db)
        results: dict[str, Any] = {
            "database": db.dialect, "n_updates": past.n_rounds * past.n_clients, "n_rounds": past.n_rounds,
            "n_clients": past.n_clients, "dim": past.dim, "filled_s": filled_s, "bytes": n_bytes,
            "load": os.getloadavg()[0],
        }  # fmt: skip
        print(
            f"{db.dialect}: {results['n_updates']:,} updates of {past.n_clients:,} clients, {past.n_rounds:,} rounds, "
            f"{n_bytes / 1e9:.2f} GB, written in {filled_s:.0f} s; load average {results['load']:.1f}",
            flush=True,
        )
        measures: dict[str, Callable[[Database, RunParameters], Awaitable[dict[str, Any]]]] = {
            "sizes": _sizes, "queries": _queries, "serving": _serve, "forgetting": _forget, "retention": _retain,
        }  # fmt: skip
        for part in asked.parts:
            results[part] = await measures[part](db, asked)
        return results


async def _sizes(db: Database, _asked: RunParameters) -> dict[str, Any]:
    found = await sizes(db)
    for name, n_bytes in found.items():
        print(f"  {name:44} {n_bytes / 1e6:10.1f} MB")
    return found


# --- questions --------------------------------------------------------------------------------------------------


async def _queries(db: Database, asked: RunParameters) -> dict[str, Any]:
    """Time what each command and page reads: the first time, then median and longest of the others."""
    past = asked.past
    middle, somebody = past.n_rounds // 2, past.names[past.n_clients // 3]

    async def round_shown() -> None:
        await queries.get_round(db, NAME, middle)
        await queries.list_contributions(db, NAME, round_number=middle)
        await queries.list_events(db, NAME, round_number=middle, limit=1000)
        await queries.erased_updates(db, NAME, middle, middle)

    async def rounds_listed() -> None:
        rows = await queries.list_rounds(db, NAME, 100)
        await queries.erased_updates(db, NAME, rows[0].round, rows[-1].round)

    async def client_shown() -> None:
        await queries.get_client(db, NAME, somebody)
        await queries.list_contributions(db, NAME, client_id=somebody)
        await queries.list_events(db, NAME, client_id=somebody, limit=1000)
        await queries.count_fates(db, NAME, somebody)

    questions: dict[str, Callable[[], Awaitable[Any]]] = {
        "status": lambda: read_overview(db, NAME),
        "rounds why": lambda: read_situation(db, NAME),
        "rounds list": rounds_listed,
        "rounds show": round_shown,
        "device list": lambda: queries.list_clients(db, NAME),
        "device show": client_shown,
        "a client's page": lambda: queries.list_contributions(db, NAME, client_id=somebody, limit=100),
        "erasure list": lambda: list_erasures(db, NAME),
        "erasure show, a name's rows": lambda: rows_of(db, NAME, somebody),
        "metrics, rounds recounted": lambda: pages.add_rounds(db, NAME, pages.RoundTotals()),
        "refusals counted": lambda: queries.count_rejections(db, NAME),
        "bodies counted": lambda: queries.count_bodies(db, NAME),
        "doctor, clients without keys": lambda: unreadable_clients(db, NAME),
        "a worker's start, whose keys": lambda: require_keys(db, NAME),
    }
    found: dict[str, Any] = {}
    for words, question in questions.items():
        spent = []
        try:
            for _ in range(_REPEATS):
                began = time.perf_counter()
                await question()
                spent.append(1e3 * (time.perf_counter() - began))
        except UnavailableError as error:
            print(f"  {words:44} {error}")
        else:
            found[words] = {"first_ms": spent[0], "median_ms": statistics.median(spent[1:]), "most_ms": max(spent)}
            print(f"  {words:44} {spent[0]:9.1f} ms at first, then {found[words]['median_ms']:.1f} ms", flush=True)
    return found


# --- updates that arrive ----------------------------------------------------------------------------------------


def _plan(past: Past, n_devices: int, history_rounds: int | None = None) -> FederationPlan:
    policy = RoundPolicy(1, max(1, n_devices // 2), 0.5, 20.0)
    return FederationPlan(NAME, past.dim, policy, history_rounds=history_rounds)


def _fleet(asked: RunParameters) -> Fleet:
    """Make devices that stay, from the last clients; the first are to be forgotten."""
    return Fleet(asked.past.names[-min(_FLEET, asked.past.n_clients // 2) :], asked.past.dim)


def _served(
    db: Database, asked: RunParameters, history_rounds: int | None = None
) -> tuple[Fleet, TimedStore, AbstractAsyncContextManager[asyncio.Task[None]]]:
    fleet, store = _fleet(asked), TimedStore(db, NAME)
    plan = _plan(asked.past, len(fleet.names), history_rounds)
    return fleet, store, serving(plan, store, fleet)


async def _serve(db: Database, asked: RunParameters) -> dict[str, Any]:
    fleet, store, service = _served(db, asked)
    began = time.perf_counter()
    async with service:
        started_s = time.perf_counter() - began
        await asyncio.sleep(asked.seconds)
        waits = _waits(fleet)
    ended = _spent(store, "complete_round", "begin_aggregation", "commit_batch", "load_updates")
    print(f"  {'the federator starts':44} {started_s:9.2f} s")
    _say_waits("an update is answered", waits)
    for name, figures in ended.items():
        _say_waits(name, figures)
    return {"started_s": started_s, "answered": waits, **ended}


async def _forget(db: Database, asked: RunParameters) -> dict[str, Any]:
    fleet, store, service = _served(db, asked)
    staying = set(fleet.names)
    leaving = [each.client_id for each in await store.load_clients() if each.client_id not in staying][: asked.leaving]
    took: list[float] = []
    async with service:
        await asyncio.sleep(min(5.0, asked.seconds))
        usual = _waits(fleet)
        fleet.waits_s.clear()
        for name in leaving:
            fleet.leaving.add(name)
            began = time.perf_counter()
            fleet.say(name, ClientTopic.FORGET, Forget(federation=NAME, client_id=name))
            await _until(lambda name=name: name in fleet.forgotten, _TIMEOUT_S)
            took.append(time.perf_counter() - began)
            await asyncio.sleep(1.0)
        meanwhile = _waits(fleet)
    parts = _spent(store, "erase_client", "erase_more", "note_key_destroyed", "purge")
    _say_waits("an update is answered, usually", usual)
    _say_waits("while clients are forgotten", meanwhile)
    print(f"  {'a forgotten client is notified after':44} {max(took):9.2f} s at most")
    for name, figures in parts.items():
        _say_waits(name, figures)
    return {"usual": usual, "answered": meanwhile, "told_s": took, **parts}


async def _retain(db: Database, asked: RunParameters) -> dict[str, Any]:
    fleet, store, service = _served(db, asked, _KEPT_ROUNDS)
    began = time.perf_counter()
    async with service:
        await asyncio.sleep(asked.seconds)
        # On a busy machine no body may have been deleted by then.
        await _until(lambda: store.n_thinned > 0 and len(fleet.waits_s) > 0, _FIRST_S)
        meanwhile, seconds = _waits(fleet), time.perf_counter() - began
    parts = _spent(store, *(name for name in store.spent if "bod" in name or "retention" in name or "part" in name))
    _say_waits("while old bodies are deleted", meanwhile)
    print(f"  {'deleted bodies':44} {store.n_thinned:9,} in {seconds:.0f} s")
    for name, figures in parts.items():
        _say_waits(name, figures)
    return {"answered": meanwhile, "n_thinned": store.n_thinned, "seconds": seconds, **parts}


async def _until(holds: Callable[[], bool], seconds: float) -> None:
    """Poll until a condition holds, at most ``seconds``."""
    ends_at = time.perf_counter() + seconds
    while not holds() and time.perf_counter() < ends_at:  # noqa: ASYNC110 (nothing signals it)
        await asyncio.sleep(0.01)


def _waits(fleet: Fleet) -> dict[str, float]:
    return _figures(fleet.waits_s, fleet.longest_wait_s())


def _spent(store: TimedStore, *names: str) -> dict[str, dict[str, float]]:
    return {name: _figures(store.spent[name], max(store.spent[name])) for name in names if store.spent[name]}


def _figures(seconds: Sequence[float], longest_s: float) -> dict[str, float]:
    median = statistics.median(seconds) if seconds else 0.0
    return {"n": len(seconds), "median_ms": 1e3 * median, "most_ms": 1e3 * longest_s}


def _say_waits(words: str, figures: dict[str, float]) -> None:
    print(
        f"  {words:44} {figures['median_ms']:9.1f} ms, at most {figures['most_ms']:.0f} ms, of {figures['n']:.0f}",
        flush=True,
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--updates", type=int, default=10_000_000)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=46)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--leaving", type=int, default=3)
    parser.add_argument("--db", help="a PostgreSQL database, empty or filled before; default: SQLite in the folder")
    parser.add_argument(
        "--folder", type=Path, help="folder for data keys and SQLite's file, which are kept; default: a temporary one"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    given = parser.parse_args()
    asked = RunParameters(Past(given.updates, given.clients, given.dim), given.only, given.seconds, given.leaving)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(describe_machine())
    with tempfile.TemporaryDirectory(prefix="foltr-histories-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        url = given.db or f"sqlite:///{folder}/foltr.sqlite"
        results = asyncio.run(run(url, KeyStore(folder / "keys"), asked))
    write_json(given.json, {"machine": describe_machine(), **results})


if __name__ == "__main__":
    main()
