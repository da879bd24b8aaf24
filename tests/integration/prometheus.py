"""A real Prometheus on loopback, which scrapes the processes of a test and answers queries."""

import asyncio
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml
from cli.commands import PROJECT
from support.servers import free_port
from support.waiting import PATIENCE_S, until

RULES = PROJECT / "monitoring/alerts.yml"
SCRAPED_EVERY_S = 1


class Prometheus:
    """The running server; what it has scraped is in ``data``, and not compressed."""

    def __init__(self, url: str, data: Path) -> None:
        self.url = url
        self.data = data

    async def ask(self, path: str, **parameters: str) -> Any:
        """Ask its HTTP API; fails where it answers with an error."""
        async with httpx2.AsyncClient(base_url=self.url) as client:
            answer = await client.get(f"/api/v1/{path}", params=parameters, timeout=PATIENCE_S)
        if answer.status_code == 503:
            raise httpx2.ConnectError("Prometheus is not ready yet")
        told = answer.json()
        assert told["status"] == "success", f"{parameters}: {told}"
        return told["data"]

    async def query(self, expression: str) -> list[float]:
        """Evaluate an expression now; returns the values of all series."""
        data = await self.ask("query", query=expression)
        assert data["resultType"] == "vector", expression
        return [float(series["value"][1]) for series in data["result"]]


@asynccontextmanager
async def prometheus(folder: Path, jobs: Mapping[str, list[str]], token: Path) -> AsyncIterator[Prometheus]:
    """Run one until the block is left, with the project's alert rules and the URLs of each job's targets."""
    if shutil.which("prometheus") is None:
        pytest.skip(
            "SKIPPED: no prometheus here: the board's queries were run against none (Debian: apt install prometheus)"
        )
    config, data = folder / "prometheus.yml", folder / "prometheus"
    scraped = [
        {"job_name": job, "static_configs": [{"targets": [urlsplit(url).netloc for url in urls]}]}
        | ({"authorization": {"credentials_file": str(token)}} if job == "foltr" else {})
        for job, urls in jobs.items()
    ]
    every = {"scrape_interval": f"{SCRAPED_EVERY_S}s", "evaluation_interval": "1s"}
    config.write_text(yaml.safe_dump({"global": every, "rule_files": [str(RULES)], "scrape_configs": scraped}))
    port = free_port()
    command = [
        *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--no-storage.tsdb.wal-compression"),
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.to_thread(subprocess.Popen, command, stdout=log, stderr=log)
    server = Prometheus(f"http://127.0.0.1:{port}", data)
    try:

        async def has_all() -> bool:
            try:
                found = await server.query("count_over_time(up[1m])")
            except httpx2.HTTPError:
                return False
            return len(found) == sum(map(len, jobs.values())) and min(found) >= 2

        await until(has_all, "Prometheus did not scrape all")
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, PATIENCE_S)
