"""A device's wish to be forgotten that was requested outside it, in a file next to its credentials.

`foltr erasure request --credentials` stores the wish there before it sends it. A device that is started with these
credentials finds it, sends nothing else, and repeats it until a receipt arrives.
"""

import contextlib
import json
from pathlib import Path

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import Credentials, write_secret
from foltr.core.user_files import FileKind, read_text_file


def request_file(credentials: Path) -> Path:
    """Return the file that keeps the wish of the client with these credentials."""
    return credentials.with_name(credentials.name + ".forget")


def save_request(path: Path, own: Credentials) -> bool:
    """Store the wish, on disk when it returns; False if that fails, e.g. in a read-only folder."""
    try:
        write_secret(path, json.dumps(_content(own)) + "\n", replace=True)
    except SettingsError:
        return False
    return True


def is_saved(path: Path, own: Credentials) -> bool:
    """Whether the file has the wish of this very client: a copy of another client's does not count."""
    try:
        return bool(json.loads(read_text_file(path, FileKind.CREDENTIALS)) == _content(own))
    except (OSError, ValueError):
        return False


def delete_request(path: Path) -> None:
    """Delete the wish: a receipt has arrived, or the federation has refused it."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _content(own: Credentials) -> dict[str, str]:
    return {"forget": own.name, "federation": own.federation}
