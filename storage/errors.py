"""Errors of the stored state itself, as opposed to reaching it (``foltr.core.errors``)."""

from foltr.core.errors import DataError, FoltrError, SettingsError, UnavailableError


class PartsRefusedError(FoltrError):
    """The database's user may not make parts of tables; bodies of updates are then deleted row by row."""


class SchemaDiffersError(SettingsError):
    """The tables are missing, or of another version than this program."""


class DataKeysError(SettingsError):
    """The folder of data keys lacks keys of stored updates, or holds others."""


class DatabaseGoneError(UnavailableError):
    """The file of a SQLite database is missing, or another one has taken its place."""


class WriterFencedError(FoltrError):
    """Another federator has claimed the federation; this one must stop writing."""


class MissingKeyError(DataError):
    """A stored update cannot be decrypted: its client's data key was destroyed, or the keys are in another folder."""
