"""The outcomes of an update under a rule."""

from enum import StrEnum


class Fate(StrEnum):
    """The outcome of one client's update."""

    KEPT = "kept"
    CLIPPED = "clipped"
    DROPPED = "dropped"

    @property
    def in_words(self) -> str:
        """The outcome as people read it, the same on the command line and on the page."""
        return _WORDS[self]


_WORDS = {Fate.KEPT: "kept", Fate.CLIPPED: "shortened", Fate.DROPPED: "left out"}
