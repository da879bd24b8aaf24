"""The documentation site, built once for all tests of a run, and a server for its files."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from build_site import build


def built_once(base: Path) -> Path:
    """Return the folder of the rendered site; of several test processes one builds it, and the others wait."""
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "documentation"
    with (shared / "documentation.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            build(folder)
            (folder / "done").touch()
    return folder / "site"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody reads the requests of a test."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
