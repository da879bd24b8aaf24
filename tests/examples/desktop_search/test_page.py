"""The page answers this machine's user, and no page of others."""

import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest
from support.waiting import PATIENCE_S

from folder import Folder
from page import PageServer


@pytest.fixture
def server(tmp_path):
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "leaf.py").write_text('"""Pages.\n\nBoth sides of them."""')
    (tmp_path / "books" / "sides.py").write_text('"""Left and right."""')
    folder = Folder(tmp_path / "books")
    server = PageServer(folder, tmp_path / "home", None, port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
    folder.close()


def ask(server: PageServer, path: str, body: Any = None, **headers: str) -> Any:
    """Return what is answered, decoded, or the status of an error."""
    if body is not None:
        headers = {"Content-Type": "application/json"} | headers
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, headers)  # noqa: S310 (http, and our own)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            text = answer.read().decode()
            return json.loads(text) if answer.headers.get_content_type() == "application/json" else text
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_what_is_found_can_be_opened_and_is_learned_from(server):
    """An exact title is marked as such; the page itself needs nothing from elsewhere."""
    page = ask(server, "/")
    assert ("<title>Desktop search</title>" in page, "://" in page) == (True, False)
    answer = ask(server, "/find?query=sides")
    assert [(one["name"], one["exact"]) for one in answer["found"]] == [("sides", True), ("leaf", False)]
    assert answer["state"]["learning"] is True
    ask(server, "/open", {"position": 1})
    assert ask(server, "/find?query=qwertz")["found"] == []
    assert server.search.ranker.n_waiting == 2 - 1
    assert "1 list was recorded, 1 with a click" in ask(server, "/state")["report"]


def test_it_can_be_switched_off_and_reset(server):
    """And says what it does."""
    assert ask(server, "/learning", {"on": False})["learning"] is False
    ask(server, "/find?query=pages")
    ask(server, "/find?query=pages")
    assert server.search.ranker.n_waiting == 0
    assert ask(server, "/learning", {"on": True})["learning"] is True
    ask(server, "/find?query=pages")
    ask(server, "/find?query=pages")
    assert server.search.ranker.n_waiting == 1
    assert ask(server, "/reset", {})["words"] == str(server.search.ranker.state)
    assert server.search.ranker.n_waiting == 0
    assert ask(server, "/state") == server.state()


def test_a_page_of_another_name_or_a_form_of_another_page_is_refused(server):
    """A name that someone else points at this machine is not its own; other pages can send forms here, but no JSON."""
    for path in ("/", "/state", "/find?query=pages"):
        assert ask(server, path, Host="elsewhere.example") == 403, path
        assert ask(server, path, Host=f"localhost:{server.server_port}") != 403, path
    for headers in ({"Content-Type": "text/plain"}, {"Host": "elsewhere.example"}):
        assert ask(server, "/reset", {}, **headers) == 403


def test_what_cannot_be_read_is_refused(server):
    """And the next question is answered."""
    for body in ({}, {"position": "x"}, [], 3, {"position": None}):
        assert ask(server, "/open", body) == 400, body
        assert ask(server, "/nowhere", body) == 404, body
        assert ask(server, "/nowhere") == 404, body
        assert ask(server, "/state")["learning"] is True, body
