"""A process says that its work goes on, to whoever looks at it from outside: the age of a file tells.

The health check of a container reads it. So it needs no connection of its own, which would throw the process out of its
session at the broker, and a process that hangs, or waits for what does not come back, is seen as easily as a dead one.
"""

from pathlib import Path

from foltr.core.errors import SettingsError


class AliveFile:
    """The file that a process touches while its work goes on; without a path it touches none.

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
        """Say that work goes on; a disk that is full must not end it."""
        if self._path is not None:
            try:
                self._path.touch()
            except OSError:
                return


NO_ALIVE_FILE = AliveFile(None)
