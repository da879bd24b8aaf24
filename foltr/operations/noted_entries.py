"""Entries of audit logs that somebody has seen are noted in a file of theirs: a log that was cut lacks one of them.

They come from receipts whose signature was right, and from heads that a federator has published. The file is no secret.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from foltr.core.errors import SettingsError
from foltr.core.protocol.signing import key_to_text
from foltr.core.user_files import FileKind, read_json_file


@dataclass(frozen=True)
class NotedEntry:
    """An entry of a federation's audit log, as it was seen.

    Attributes:
        key: the federator's public key that has signed it, as base64.
        source: where it was seen, in words.
    """

    federation: str
    key: str
    seq: int
    hash: str
    source: str


def noted_entry(federation: str, key: bytes, seq: int, hash_: str, source: str) -> NotedEntry:
    """Make an entry that a key has signed."""
    return NotedEntry(federation, key_to_text(key), seq, hash_, source)


def read_noted(path: Path) -> list[NotedEntry]:
    """Read what was noted; nothing where there is no such file yet.

    Raises:
        SettingsError: it is another kind of file, or cannot be read.
    """
    try:
        return [NotedEntry(**entry) for entry in read_json_file(path, FileKind.TOKENS)["entries"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SettingsError(
            f"noted: {path} is no file of noted entries ({error!s:.80}); name another one with --noted, or put a copy "
            "of it in its place"
        ) from error


def contradictions(noted: Sequence[NotedEntry], seen: NotedEntry) -> list[NotedEntry]:
    """List what was noted and cannot be of the same log: another hash of the same federation, key and number."""
    return [
        entry
        for entry in noted
        if (entry.federation, entry.key, entry.seq) == (seen.federation, seen.key, seen.seq) and entry.hash != seen.hash
    ]


def newest_noted(noted: Sequence[NotedEntry], federation: str, key: bytes) -> NotedEntry | None:
    """Return the entry with the highest number that was noted of a federation under a key; None without one."""
    mine = [entry for entry in noted if (entry.federation, entry.key) == (federation, key_to_text(key))]
    return max(mine, key=lambda entry: entry.seq, default=None)


def note(path: Path, seen: Sequence[NotedEntry]) -> str:
    """Add entries to the file, unless they are there; returns why it cannot be written, or nothing."""
    noted = read_noted(path)
    known = {(entry.federation, entry.key, entry.seq, entry.hash) for entry in noted}
    new = [entry for entry in seen if (entry.federation, entry.key, entry.seq, entry.hash) not in known]
    if not new:
        return ""
    text = json.dumps({"entries": [asdict(entry) for entry in (*noted, *new)]}, indent=2)
    try:
        _replace(path, f"{text}\n")
    except OSError as error:
        return f"not noted: {path}: {error.strerror or type(error).__name__}; name another file with --noted"
    return ""


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: it is what cannot be had again."""
    descriptor, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
