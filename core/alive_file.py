"""A process shows that it still works by touching a file; the file's age shows when it last did.

A container's health check reads it. It needs no connection, which would disconnect the process from its session at the
broker. And a process that hangs, or waits for ever, is noticed as easily as a dead one.
"""

from pathlib import Path

from foltr.core.errors import SettingsError


class AliveFile:
    """The file that a process touches while it works; without a path it does nothing.

    Raises:
        SettingsError: it cannot be written.
    """

    def __init__(self, path: str | Path | None) -> None:
        self._path = None if path is None else Path(path)
        if self._path is not None:
            # Of an earlier process of this container.
            try:
                self._path.unlink(missing_ok=True)
                self._path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SettingsError(f"alive_file: {self._path}: {error.strerror}") from error

    def touch(self) -> None:
        """Touch the file; a full disk must not stop the process."""
        if self._path is not None:
            try:
                self._path.touch()
            except OSError:
                return


NO_ALIVE_FILE = AliveFile(None)
