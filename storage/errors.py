"""What can go wrong with the stored state itself, as opposed to reaching it (``foltr.errors``)."""

from foltr.errors import FoltrError


class WriterFencedError(FoltrError):
    """Another federator has claimed the federation; this one must stop and write no more."""
