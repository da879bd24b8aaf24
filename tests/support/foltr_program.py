"""A program ``foltr`` for scripts, each process of which begins with everything imported (`prepared_processes`).

A page or a set-up calls it a dozen times, and a fresh interpreter imports for most of a second.
"""

import contextlib
import json
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread

from support.prepared_processes import PreparedProcess

# What the script starts: it hands over its arguments, environment, folder and standard streams, hands on signals, and
# ends as that process does. Without site packages, as it needs none.
_CALLER = """
import json, os, signal, socket, sys

# From the beginning: one that comes before the process is there is handed on as well.
HANDED_ON = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(chr(0) + {name!r})
    request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [request], [0, 1, 2])
    pid = int(server.recv(64))
    for number in HANDED_ON:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    code = int(server.recv(64) or 1)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
_LONGEST_REQUEST = 1 << 20


@contextlib.contextmanager
def prepared_foltr(path: Path) -> Iterator[None]:
    """Have the program at ``path``, in a folder that is made if need be, while the block lasts."""
    name = f"foltr-tests-{secrets.token_hex(8)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    caller = path.with_name(f".{path.name}.py")
    caller.write_text(_CALLER.format(name=name))
    path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", str(caller)])} "$@"\n')
    path.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(f"\0{name}")
        server.listen(64)
        accepting = Thread(target=_accept, args=(server,), daemon=True)
        accepting.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()


def _accept(server: socket.socket) -> None:
    while True:
        try:
            caller, _ = server.accept()
        except OSError:  # the block has ended
            return
        Thread(target=_serve, args=(caller,), daemon=True).start()


def _serve(caller: socket.socket) -> None:
    with caller:
        request, streams, _, _ = socket.recv_fds(caller, _LONGEST_REQUEST, 3)
        words, variables, folder = json.loads(request)
        given, output, errors = streams
        process = PreparedProcess(words, variables, Path(folder), output=output, errors=errors, given=given)
        for stream in streams:
            os.close(stream)
        with contextlib.suppress(OSError):
            caller.send(str(process.pid).encode())
        # Of the caller nothing comes any more but its end, where it was killed; its process ends with it.
        if caller in wait([process.sentinel, caller]):
            process.kill()
        code = process.wait()
        with contextlib.suppress(OSError):
            caller.send(str(code).encode())
