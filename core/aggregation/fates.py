"""The outcomes of an update under a rule."""

from enum import StrEnum


class Fate(StrEnum):
    """The outcome of one client's update."""

    KEPT = "kept"
    CLIPPED = "clipped"
    DROPPED = "dropped"
