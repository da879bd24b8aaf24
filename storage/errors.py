"""Errors of the stored state itself, as opposed to reaching it (``foltr.core.errors``)."""

from foltr.core.errors import FoltrError


class PartsRefusedError(FoltrError):
    """The database's user may not make parts of tables; bodies of updates are then deleted row by row."""


class WriterFencedError(FoltrError):
    """Another federator has claimed the federation; this one must stop writing."""
