"""Every snippet of docs/sdk.md runs as it stands there; those for the web are driven as a browser would."""

import asyncio
import json
import re
import runpy
from unittest.mock import Mock

import pytest
from cli.commands import foltr
from cli.snippets import blocks, n_recorded, run_python
from support.servers import free_port

from foltr.core.errors import DataError, UnavailableError
from foltr.core.operator.credentials import read_credentials
from foltr.edge_client.search_ranker import SearchRanker

SNIPPETS = blocks("docs/sdk.md", "python")
NAMED = {match[1]: code for code in SNIPPETS if (match := re.match(r"# (\w+)\.py\n", code))}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the snippets run: with a device's credentials, and a broker that is away."""
    access = {"FOLTR_BROKER_URL": f"mqtt://127.0.0.1:{free_port()}"}
    foltr("device", "enrol", "device-7", cwd=tmp_path, **access, code=0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def snippet(sentence):
    """The one snippet with this in it."""
    (code,) = (code for code in SNIPPETS if sentence in code)
    return code


def test_ten_lines_and_credentials_later(folder):
    """Without credentials a list, and its clicks on disk; later they are this client's, by either way to enrol."""
    shown = run_python(snippet("# show them in this order"), folder)
    assert sorted(json.loads(shown.replace("'", '"'))) == ["green tea", "tea", "teapot"]
    code = snippet("# or so, while it runs")
    state = "without a broker, no model yet: lists are in the application's order; 1 list waits 300 s for more clicks\n"
    assert run_python(code, folder) == state
    later = code.replace("credentials if credentials.exists() else None", "None")
    assert run_python(later, folder).startswith("without")
    assert n_recorded(folder / "clicks.sqlite") == 1


def test_what_it_tells_and_tests_of_an_application(folder):
    """With nothing to tell yet; a round in a test's process changes the model; in asyncio the click is on disk."""
    assert run_python(snippet("def observe"), folder).splitlines() == [
        "without a broker, no model yet: lists are in the application's order",
        "0 lists with their clicks are in no update yet",
        "{}",
        "None None",
    ]
    assert run_python(snippet("foltr.testing"), folder) == ""
    assert read_credentials(folder / "fake.json", "device").name == "device-8"
    assert run_python(snippet("asyncio.run(search())"), folder).startswith("1 list is in no update yet: ")
    assert n_recorded(folder / "device-7.sqlite") == 1


def test_flask(folder, monkeypatch):
    """A search, clicks on it, once more, and a search without results; the search goes on if the ranker fails."""
    names = runpy.run_path(written(folder, "flask_app"))
    client = names["app"].test_client()
    found = client.get("/search?q=tea").json
    assert sorted(found["results"]) == ["green tea", "tea", "teapot"]
    for _ in range(2):
        assert client.post("/click", json={"id": found["id"], "positions": [0, 1]}).status_code == 204
    assert client.post("/click", json={"id": "long ago", "positions": [0]}).status_code == 410
    assert client.get("/search?q=wine").json["results"] == []
    for method, wrong in (("rank", DataError("no number")), ("record_clicks", UnavailableError("it hangs"))):
        monkeypatch.setattr(SearchRanker, method, Mock(side_effect=wrong))
    assert client.get("/search?q=teapot").json == {"id": None, "results": ["teapot"]}
    assert client.post("/click", json={"id": found["id"], "positions": [0]}).status_code == 503
    names["ranker"].close()
    assert n_recorded(folder / "clicks.sqlite") == 1


def test_fastapi(folder, monkeypatch):
    """The same, by the protocol that a server speaks to it."""
    app = runpy.run_path(written(folder, "fastapi_app"))["app"]

    async def visit():
        async with app.router.lifespan_context(app):
            status, body = await asgi(app, "GET", "/search", b"q=tea")
            found = json.loads(body)
            assert (status, sorted(found["results"])) == (200, ["green tea", "tea", "teapot"])
            assert (await asgi(app, "POST", f"/click/{found['id']}", body=b"[0, 1]"))[0] == 204
            assert (await asgi(app, "POST", "/click/long-ago", body=b"[0]"))[0] == 410
            assert json.loads((await asgi(app, "GET", "/search", b"q=wine"))[1])["results"] == []
            for method, wrong in (("rank", DataError("no number")), ("record_clicks", UnavailableError("it hangs"))):
                monkeypatch.setattr(SearchRanker, method, Mock(side_effect=wrong))
            assert json.loads((await asgi(app, "GET", "/search", b"q=pot"))[1]) == {"id": None, "results": ["teapot"]}
            assert (await asgi(app, "POST", f"/click/{found['id']}", body=b"[0]"))[0] == 503

    asyncio.run(visit())
    assert n_recorded(folder / "clicks.sqlite") == 1


def test_every_snippet_is_run():
    """Those above, and no others."""
    assert NAMED.keys() == {"flask_app", "fastapi_app"}
    assert len(SNIPPETS) == 5 + len(NAMED)


def written(folder, name):
    file = folder / f"{name}.py"
    file.write_text(NAMED[name])
    return str(file)


async def asgi(app, method, path, query=b"", body=b""):
    """One request; its status and its body."""
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
    scope |= {"path": path, "raw_path": path.encode(), "query_string": query, "root_path": ""}
    scope |= {"headers": [(b"content-type", b"application/json")], "server": ("x", 80), "client": ("y", 1)}
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)
