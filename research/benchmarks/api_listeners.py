"""Whoever looks at a federation over HTTP: ``python api_listeners.py URL TOKENS N_STREAMS RATE RESULT``.

N_STREAMS pages listen for events, and each asks for the rounds as a page does: once, and again where the events have
left some out. The line ``ready`` is printed when all pages have their rounds. Then requests are made at RATE a second,
of every kind that a viewer has, whether or not earlier ones are answered; their latency counts from the moment each was
due. SIGTERM ends it, and RESULT then has what it saw.

HTTP is spoken on plain sockets, for the machine is shared with what is measured.
"""

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections import Counter, defaultdict
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

# As `foltr/api/pages/static/page.js` asks.
ROUNDS = "/api/v1/rounds?limit=200"
PATHS = (
    *("/api/v1/status", "/api/v1/rounds?limit=100", "/api/v1/rounds/2", "/api/v1/clients?limit=100"),
    *("/api/v1/clients/device-0001", "/api/v1/models", "/api/v1/erasures", "/api/v1/jobs", "/api/v1/audit"),
    *("/api/v1/orders", "/metrics", "/ready"),
)


class Asker:
    """One connection that is kept: a request at a time."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._address = host, port
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> int:
        """Ask, read the whole answer, and return its status; once more where the server has closed the connection."""
        for attempt in range(2):
            try:
                return await self._get(path)
            except (OSError, asyncio.IncompleteReadError):
                self.close()
                if attempt:
                    raise
        raise AssertionError

    async def open(self, path: str) -> tuple[asyncio.StreamReader, int]:
        """Send a request; return what its body is to be read from, and the status."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=1 << 20)
        reader, writer = self._streams
        head = f"GET {path} HTTP/1.1\r\nHost: {self._address[0]}\r\nAuthorization: Bearer {self._token}\r\n\r\n"
        writer.write(head.encode())
        return reader, int((await reader.readuntil(b"\r\n")).split()[1])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _get(self, path: str) -> int:
        reader, status = await self.open(path)
        headers = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(headers.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        return status


class Watched:
    """What the pages and the requests saw."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.latencies: dict[str, list[float]] = defaultdict(list)
        self.pages: list[float] = []
        self.n_events = 0
        self.gaps: list[float] = []
        self.n_lost = 0

    def document(self) -> dict[str, object]:
        every = [seconds for each in self.latencies.values() for seconds in each]
        return {
            "n_requests": len(every),
            "statuses": {str(status): n for status, n in self.statuses.items()},
            "latency_ms": percentiles(every),
            "by_path_ms": {path: percentiles(each) for path, each in self.latencies.items()},
            "page_requests_ms": percentiles(self.pages),
            "n_page_requests": len(self.pages),
            "n_events": self.n_events,
            "n_streams_lost": self.n_lost,
            "between_events_s": {name: ms / 1e3 for name, ms in percentiles(self.gaps).items()},
        }


async def page(watched: Watched, address: tuple[str, int], token: str, ready: asyncio.Semaphore) -> None:
    """Listen as a page does, and ask for rounds that the events have left out."""
    stream, asker = Asker(*address, token), Asker(*address, token)
    try:
        reader, status = await stream.open("/api/v1/stream")
        watched.statuses[status] += 1
        newest, heard_at = 0, 0.0
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            now, told = time.perf_counter(), json.loads(line.removeprefix(b"data: "))
            if isinstance(told, list):
                newest = told[0]["round"] if told[-1]["round"] <= newest else newest
                continue
            watched.n_events += 1
            number = (told.get("round") or {"number": 0})["number"]
            if number > newest:
                watched.statuses[await asker.get(ROUNDS)] += 1
                watched.pages.append(time.perf_counter() - now)
                newest = number
            if heard_at:
                watched.gaps.append(now - heard_at)
            else:
                ready.release()
            heard_at = now
        watched.n_lost += 1
    except (OSError, asyncio.IncompleteReadError):
        watched.n_lost += 1
    finally:
        stream.close()
        asker.close()


async def requests(watched: Watched, address: tuple[str, int], tokens: list[str], rate_per_s: float) -> None:
    """Ask at a fixed rate; connections are kept, and another is opened where all are waiting for an answer."""
    idle: list[Asker] = []
    asking: set[asyncio.Task[None]] = set()
    turns = cycle(tokens)

    async def one(path: str, due_at: float) -> None:
        asker = idle.pop() if idle else Asker(*address, next(turns))
        try:
            watched.statuses[await asker.get(path)] += 1
            watched.latencies[path].append(time.perf_counter() - due_at)
            idle.append(asker)
        except (OSError, asyncio.IncompleteReadError):
            watched.statuses[0] += 1

    due_at = time.perf_counter()
    try:
        for path in cycle(PATHS):
            await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
            task = asyncio.create_task(one(path, due_at))
            asking.add(task)
            task.add_done_callback(asking.discard)
            due_at += 1.0 / rate_per_s
    finally:
        await asyncio.gather(*asking, return_exceptions=True)


async def run(url: str, tokens: list[str], n_streams: int, rate_per_s: float) -> Watched:
    """Look until SIGTERM."""
    watched, ended, ready = Watched(), asyncio.Event(), asyncio.Semaphore(0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    address = urlsplit(url).hostname or "", urlsplit(url).port or 0
    tasks = [
        asyncio.create_task(page(watched, address, token, ready)) for _, token in zip(range(n_streams), cycle(tokens))
    ]
    for _ in range(n_streams):
        await ready.acquire()
    print("ready", flush=True)
    tasks.append(asyncio.create_task(requests(watched, address, tokens, rate_per_s)))
    await ended.wait()
    n_lost = watched.n_lost
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
    watched.n_lost = n_lost
    return watched


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50, p90, p99 and the largest, in milliseconds; empty where there is nothing."""
    if not seconds:
        return {}
    names = ("p50", "p90", "p99", "max")
    return {
        name: round(1e3 * float(x), 1) for name, x in zip(names, np.percentile(seconds, (50, 90, 99, 100)), strict=True)
    }


if __name__ == "__main__":
    url, tokens_path, n_streams, rate, result = sys.argv[1:]
    seen = asyncio.run(run(url, json.loads(Path(tokens_path).read_text()), int(n_streams), float(rate)))
    Path(result).write_text(json.dumps(seen.document(), indent=2) + "\n")
