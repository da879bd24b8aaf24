"""A client that a generator writes from the served OpenAPI document works with the server."""

import asyncio
import importlib
import json
import sys
from contextlib import asynccontextmanager

import pytest
from support.api_server import FEDERATION

from foltr.api.tokens import Role

pytest.importorskip("openapi_python_client", reason="openapi-python-client generates the client")

# A receipt is text of a media type of its own, which the generator does not know.
SETTINGS = {"content_type_overrides": {"application/jose": "text/plain"}, "post_hooks": []}


class Generated:
    """A generated client with a token."""

    def __init__(self, package, url, token):
        self._package = package
        self._client = self._part("client").AuthenticatedClient(base_url=url, token=token)

    def _part(self, name):
        return importlib.import_module(f"{self._package}.{name}")

    async def call(self, operation, *arguments, **options):
        """Call an operation, such as ``rounds.list_rounds``, and return the status and the answer as it is typed."""
        function = self._part(f"api.{operation}").sync_detailed
        answer = await asyncio.to_thread(function, *arguments, client=self._client, **options)
        return int(answer.status_code), answer.parsed

    async def follow(self, page):
        """Return the next page of a list."""
        answer = await asyncio.to_thread(self._client.get_httpx_client().get, page.next_)
        return type(page).from_dict(answer.json())

    def close(self):
        self._client.get_httpx_client().close()


@asynccontextmanager
async def generated(server, role, folder):
    """Generate a client from what the server says of itself; a warning of the generator is an error."""
    package = folder / f"generated_{role}"
    document, settings = folder / "openapi.json", folder / "settings.json"
    document.write_text((await server.get("/api/v1/openapi.json")).text)
    settings.write_text(json.dumps(SETTINGS))
    command = (sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning")
    options = ("--path", document, "--config", settings, "--output-path", package)
    process = await asyncio.create_subprocess_exec(*command, *options, stdout=-1, stderr=-2)
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    client = Generated(package.name, server.url, server.token(role))
    try:
        yield client
    finally:
        client.close()


async def test_it_reads_lists_page_by_page_and_problems(on_sqlite, tmp_path, monkeypatch):
    """Every answer has its type: the status, rounds over two pages, a device, and each error as a problem."""
    monkeypatch.syspath_prepend(tmp_path)
    async with generated(on_sqlite, Role.VIEWER, tmp_path) as client:
        status, found = await client.call("status.get_status")
        assert (status, found.federation, found.round_.number) == (200, FEDERATION, 2)
        status, newest = await client.call("rounds.list_rounds", limit=1)
        oldest = await client.follow(newest)
        assert [page.items[0].round_ for page in (newest, oldest)] == [2, 1]
        assert (oldest.items[0].rule, oldest.next_) == ("median", None)
        status, device = await client.call("clients.get_client", "b")
        assert (device.client.quarantine_reason, device.contributions[0].fate) == ("it flips signs", "clipped")
        status, problem = await client.call("clients.get_client", "nobody")
        assert (status, problem.status, "/api/v1/clients" in problem.detail) == (404, 404, True)
        status, problem = await client.call("rounds.list_rounds", limit=0)
        assert (status, [wrong.field for wrong in problem.errors]) == (422, ["query.limit"])
