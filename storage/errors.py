"""Errors of the stored state itself, as opposed to reaching it (``foltr.core.errors``)."""

from typing import ClassVar

from foltr.core.errors import DataError, FoltrError, SettingsError, UnavailableError


class PartsRefusedError(FoltrError):
    """The database's user may not make parts of tables; bodies of updates are then deleted row by row."""


class SchemaDiffersError(SettingsError):
    """The tables are of another version than this program: one of the two kinds below.

    Attributes:
        next_step: what to do, without the database's address, which not every reader may know.
    """

    next_step: ClassVar[str]


class SchemaOlderError(SchemaDiffersError):
    """The tables are missing, or of an older version than this program."""

    next_step = "Bring the database up to date: foltr db upgrade."


class SchemaNewerError(SchemaDiffersError):
    """The tables are of a newer version, which this program does not know."""

    next_step = "Install the version of foltr that made the tables, or a newer one. Do not upgrade or downgrade them."


class DataKeysError(SettingsError):
    """The folder of data keys lacks keys of stored updates, or holds others."""


class DatabaseGoneError(UnavailableError):
    """The file of a SQLite database is missing, or another one has taken its place."""


class WriterFencedError(FoltrError):
    """Another federator has claimed the federation; this one must stop writing."""


class MissingKeyError(DataError):
    """A stored update cannot be decrypted: its client's data key was destroyed, or the keys are in another folder."""
