"""What can become of one client's update under a rule."""

from enum import StrEnum


class Fate(StrEnum):
    """What became of one client's update."""

    KEPT = "kept"
    CLIPPED = "clipped"
    DROPPED = "dropped"
