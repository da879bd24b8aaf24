"""What a process is called that leads a federation or waits to: by nobody else, and so that a person finds it."""

import os
import secrets
import socket

_CHANCE = 4
# PostgreSQL keeps 63 bytes of a session's name, which has this in it (`foltr.storage.engines.application_name`).
_LONGEST = 57


def new_holder() -> str:
    """Return host, process number and chance, e.g. ``north:4711:5e0c93b2``: the first two may be equal."""
    ending = f":{os.getpid()}:{secrets.token_hex(_CHANCE)}"
    host = socket.gethostname().encode("ascii", "replace").decode()
    return host[: _LONGEST - len(ending)] + ending
