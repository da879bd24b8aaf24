"""Enums whose members each have a sentence for people."""

from enum import StrEnum
from typing import Self


class DescribedEnum(StrEnum):
    """A member is written ``NAME = value, meaning``; it equals its value."""

    meaning: str

    # The default is for type checkers, to which a look-up by value, `EventKind("client_left")`, looks like this call.
    def __new__(cls, value: str, meaning: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member
