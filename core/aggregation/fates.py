"""An update has one of these fates under a rule."""

from enum import StrEnum


class Fate(StrEnum):
    """A fate says what became of one client's update."""

    KEPT = "kept"
    CLIPPED = "clipped"
    DROPPED = "dropped"
