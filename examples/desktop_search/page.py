"""Search a folder on a web page, only on this machine. The order of results learns from what is opened."""

import json
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from folder import Folder
from options import read_options
from search import Search

LOOPBACK: Final = "127.0.0.1"
_PAGE: Final = Path(__file__).with_name("page.html")
_LONGEST_BODY: Final = 1000


class PageServer(HTTPServer):
    """Answers one request at a time, in one thread, as the index requires.

    Args:
        port: 0 takes a free one; see `url`.
    """

    def __init__(self, folder: Folder, home: Path, credentials: Path | None, port: int) -> None:
        self.search = Search(folder, home, credentials)
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}"

    def server_close(self) -> None:
        super().server_close()
        self.search.close()

    def state(self) -> dict[str, Any]:
        """Return the ranker's state and report for the page."""
        ranker = self.search.ranker
        return {"learning": self.search.learning, "words": str(ranker.state), "report": str(ranker.report())}

    def find(self, query: str) -> dict[str, Any]:
        """Return the results for the page."""
        found = self.search.find(query)
        rows = [asdict(document) | {"exact": i < self.search.n_exact} for i, document in enumerate(found)]
        return {"found": rows, "state": self.state()}

    def open(self, position: int) -> dict[str, Any]:
        self.search.open(position)
        return self.state()

    def learn(self, on: bool) -> dict[str, Any]:
        """Switch learning on or off. Off, results are in BM25's order and nothing is recorded."""
        self.search.learning = on
        return self.state()

    def reset(self) -> dict[str, Any]:
        """Forget what was learned on this device."""
        self.search.reset()
        return self.state()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if not self._is_ours():
            self.send_error(403)
        elif address.path == "/":
            self._send(_PAGE.read_bytes(), "text/html; charset=utf-8")
        elif address.path == "/state":
            self._send_json(self.server.state())
        elif address.path == "/find":
            self._send_json(self.server.find(parse_qs(address.query).get("query", [""])[0]))
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        actions: dict[str, Callable[[Any], dict[str, Any]]] = {
            "/open": lambda given: self.server.open(int(given["position"])),
            "/learning": lambda given: self.server.learn(bool(given["on"])),
            "/reset": lambda _: self.server.reset(),
        }
        action = actions.get(self.path)
        if not self._is_ours() or self.headers.get_content_type() != "application/json":
            self.send_error(403)
        elif action is None:
            self.send_error(404)
        else:
            try:
                answer = action(json.loads(self.rfile.read(min(_LONGEST_BODY, int(self.headers["Content-Length"])))))
            except (KeyError, TypeError, ValueError):
                self.send_error(400)
            else:
                self._send_json(answer)

    def _is_ours(self) -> bool:
        """Whether the request is from our page: other pages in this browser must not read this machine's files."""
        port = self.server.server_port
        return self.headers.get("Host") in (f"{LOOPBACK}:{port}", f"localhost:{port}")

    def _send_json(self, answer: dict[str, Any]) -> None:
        self._send(json.dumps(answer).encode(), "application/json")

    def _send(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing, to keep searches private."""


def main() -> None:
    options = read_options("Search a folder on a page, on this machine only.")
    server = PageServer(Folder(options.folder), options.home, options.credentials, options.port)
    print(f"Open {server.url} in a browser; Ctrl-C ends.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
