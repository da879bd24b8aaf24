"""A TCP proxy on the loopback interface that a test makes as bad as a network can be."""

import asyncio
import contextlib
from typing import Self

_CHUNK = 4096


class TcpProxy:
    """Forwards to ``target_port``; use as an async context manager.

    Attributes:
        port: its own port.
        latency_s: how long each piece of data is under way, in each direction.
        bytes_per_s: how fast each direction of each connection is; None: as fast as it goes.
        swallows: take everything, forward nothing, and say nothing of it, as a dead route does. What was taken
            meanwhile is lost, so connections of that time are useless ever after.
        refuses: end every new connection at once.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.port = 0
        self.latency_s = 0.0
        self.bytes_per_s: float | None = None
        self.swallows = False
        self.refuses = False
        self._running = asyncio.Event()
        self._running.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.resume()
        self.drop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def stall(self) -> None:
        """Hold everything back, and lose nothing, until `resume`."""
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            if self.refuses:
                return
            back, onward = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers.add(onward)
            pumps = [asyncio.create_task(self._pump(reader, onward)), asyncio.create_task(self._pump(back, writer))]
            try:
                # One direction that ends, ends the connection.
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # nobody listens there now; the caller sees its connection end
        finally:
            for end in filter(None, (writer, onward)):
                self._writers.discard(end)
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction. Data overlap on the way: latency delays it, and does not slow it down."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(self._deliver(under_way, writer))
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_CHUNK):
                    if self.swallows:
                        continue
                    if self.bytes_per_s is not None:
                        await asyncio.sleep(len(data) / self.bytes_per_s)
                    under_way.put_nowait((loop.time() + self.latency_s, data))
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)

    async def _deliver(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_at, data = await under_way.get()
            await asyncio.sleep(max(0.0, due_at - loop.time()))
            await self._running.wait()
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()
