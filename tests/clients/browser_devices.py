"""Devices of the TypeScript client in processes of Node.js."""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.waiting import PATIENCE_S

from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.signing import SigningKey

CLIENT = Path(__file__).parents[2] / "clients" / "browser"


def build(folder: Path) -> Path:
    """Compile the client and its test harness into a folder of this test's own; skip where that cannot be."""
    if shutil.which("node") is None or not (CLIENT / "node_modules").is_dir():
        pytest.skip("no Node.js, or no packages in clients/browser: make browser-test")
    compiler = CLIENT / "node_modules" / ".bin" / "tsc"
    subprocess.run([compiler, "--project", CLIENT, "--outDir", folder / "dist"], check=True, timeout=PATIENCE_S)
    (folder / "package.json").write_text((CLIENT / "package.json").read_text())
    (folder / "node_modules").symlink_to(CLIENT / "node_modules")
    return folder / "dist" / "tests" / "harness"


@dataclass
class NodeProcess:
    """A script in Node.js that prints a JSON object on each line.

    Attributes:
        said: the objects so far, of all of its lives.
    """

    script: Path
    argument: dict[str, Any] | None = None
    said: list[dict[str, Any]] = field(default_factory=list)
    _process: asyncio.subprocess.Process | None = None
    _reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        arguments = [] if self.argument is None else [json.dumps(self.argument)]
        self._process = await asyncio.create_subprocess_exec(
            "node",
            str(self.script),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
            env={**os.environ, "NODE_NO_WARNINGS": "1"},
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.endswith(b"\n"):  # a life may end within a line
                self.said.append(json.loads(line))

    async def wait_said(self, event: str, n: int = 1) -> list[dict[str, Any]]:
        """What it said of an event, once that is ``n`` times."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := self.all_said(event)) < n:  # noqa: ASYNC110 (its lines come by themselves)
                await asyncio.sleep(0.02)
        return found

    def all_said(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.said if each.get("event") == event]

    async def kill(self) -> None:
        """End it as a loss of power would, if it still runs."""
        if self._process is None or self._reading is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def tell_to_end(self) -> None:
        """Let it end by itself, as a page that is closed once all that it has recorded counts."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()
        async with asyncio.timeout(PATIENCE_S):
            assert await self._process.wait() == 0
        assert self._reading is not None
        await self._reading


class BrowserDevice(NodeProcess):
    """A device whose store is a file, so that it outlives its process."""

    def __init__(
        self, harness: Path, folder: Path, credentials: Credentials, key: SigningKey, web_socket: str, **searching: Any
    ) -> None:
        mine = credentials.model_dump() | {"signing_key": None}
        argument = {
            "store": str(folder / f"{credentials.name}.store"),
            "seed": base64.b64decode(key.to_text()).hex(),
            "public_key": key.public.hex(),
            "credentials": mine,
            "broker": web_socket,
            **searching,
        }
        super().__init__(harness / "device.js", argument)

    @property
    def n_recorded(self) -> int:
        """So many lists were on its disk, as it said."""
        return len(self.all_said("recorded"))
