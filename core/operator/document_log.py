"""The numbered documents of an operator's folder: the signed bytes of each version, which never change.

00000003.policy    version 3, on disk before anybody is told of it
"""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from foltr.core.errors import MessageError, SettingsError
from foltr.core.operator.credentials import write_secret
from foltr.core.protocol.signed_documents import SignedDocument
from foltr.core.user_files import FileKind, read_file

D = TypeVar("D", bound=SignedDocument)


class DocumentLog(Generic[D]):
    """The documents of one kind in one operator's folder, whose lock is held.

    Args:
        folder: of these documents alone; made with the first one.
        kind: what files end in, and what errors call a document.
        read: checks the signature of a file's bytes.
    """

    def __init__(self, folder: Path, kind: str, read: Callable[[bytes], D]) -> None:
        self._folder = folder
        self._kind = kind
        self._read = read
        names = folder.iterdir() if folder.is_dir() else ()
        self.versions = {int(path.stem) for path in names if path.suffix == f".{kind}" and path.stem.isdecimal()}

    @property
    def newest_version(self) -> int:
        """The version of the newest document; 0 before the first."""
        return max(self.versions, default=0)

    def newest(self) -> D | None:
        """Return the newest document; None before the first."""
        return self.get(self.newest_version) if self.versions else None

    def get(self, version: int) -> D:
        """Return a document.

        Raises:
            SettingsError: there is none of this version, or its file is damaged.
        """
        if version not in self.versions:
            raise SettingsError(
                f"{self._kind}: {self._folder} has no version {version}; its newest is {self.newest_version}"
            )
        path = self._path(version)
        try:
            document = self._read(read_file(path, FileKind.MESSAGE))
        except (OSError, MessageError) as error:
            raise SettingsError(f"operator: {path} is damaged ({error}); restore it from a backup") from error
        if document.version != version:
            raise SettingsError(f"operator: {path} is damaged (it is version {document.version})")
        return document

    def require_newer(self, version: int) -> None:
        """Raise SettingsError unless a version is above all others here."""
        if version <= self.newest_version:
            raise SettingsError(f"version: {version} is not above {self.newest_version}, the newest {self._kind} here")

    def write(self, document: D) -> D:
        """Write a newer document down, and return it; SettingsError as `require_newer`."""
        self.require_newer(document.version)
        write_secret(self._path(document.version), document.signed)
        self.versions.add(document.version)
        return document

    def set_aside(self, version: int) -> None:
        """Have a document no more; its file stays, under another name."""
        self._path(version).rename(self._path(version).with_suffix(f".{self._kind}-set-aside"))
        self.versions.discard(version)

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:08}.{self._kind}"
