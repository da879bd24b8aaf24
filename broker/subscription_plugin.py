"""Mosquitto's plugin that judges subscriptions: one file of C, built on the machine that needs it.

A plugin built elsewhere, on a machine of the broker's kind, is recognised by the mark of its source inside it.
"""

import hashlib
import os
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from foltr.broker.files import Owner, replace_file
from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind, read_file

SOURCE = Path(__file__).with_name("foltr_subscriptions.c")
# Nothing of libc is linked: Mosquitto has loaded its own, be it glibc or musl.
_OPTIONS = ("-std=c11", "-O2", "-shared", "-fPIC", "-ffreestanding", "-nostdlib")
_WITHIN_S = 60.0


def put_plugin(path: Path, built: Path | None, owner: Owner | None) -> None:
    """Put the plugin at ``path``: keep the one there, or copy the file ``built``, or build it.

    Raises:
        SettingsError: ``built`` is not a plugin of this foltr, or no compiler can build it.
        OSError: the file cannot be written.
    """
    if built is not None:
        content = _read(built)
    elif path.exists() and _is_of_this_source(content := read_file(path, FileKind.PLUGIN)):
        pass  # perhaps for another kind of machine
    else:
        content = build_plugin()
    replace_file(path, content, mode=0o644, owner=owner)


@cache
def build_plugin() -> bytes:
    """Compile the plugin with the C compiler that CC names, by default cc. SettingsError if that fails."""
    command = shlex.split(os.environ.get("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "plugin.so"
        told = f'-DFOLTR_SOURCE="{_source_hash()}"'
        try:
            subprocess.run(  # noqa: S603 (the compiler that the user has chosen)
                [*command, *_OPTIONS, told, "-o", str(out), str(SOURCE)],
                check=True,
                capture_output=True,
                timeout=_WITHIN_S,
                text=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            cause = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[0]
            raise SettingsError(
                f"plugin: the C compiler `{shlex.join(command)}` cannot build {SOURCE}, without which one device could "
                f"take all of the broker's memory: {cause}. Install a compiler (Debian: apt-get install gcc), or name "
                "with --plugin FILE the foltr_subscriptions.so that `foltr broker config` has built on another "
                "machine of the broker's kind"
            ) from error
        return out.read_bytes()


def _read(path: Path) -> bytes:
    try:
        content = read_file(path, FileKind.PLUGIN)
    except OSError as error:
        raise SettingsError(
            f"plugin: {path}: {error.strerror}; name a foltr_subscriptions.so that was built"
        ) from error
    if not _is_of_this_source(content):
        raise SettingsError(
            f"plugin: {path} was not built from this foltr's {SOURCE.name}; build it again, or leave out --plugin "
            "if a C compiler is installed"
        )
    return content


def _is_of_this_source(content: bytes) -> bool:
    return f"foltr-subscriptions:{_source_hash()}\0".encode() in content


@cache
def _source_hash() -> str:
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()
