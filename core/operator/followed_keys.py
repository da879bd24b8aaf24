"""The keys that a short-lived command trusts: those of its credentials, and their successors.

A running device remembers what it received. A command has a file, perhaps from before a rotation, and the broker's
retained messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from foltr.core.errors import MessageError
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import Topics

_NEW_FILE = "ask the operator for a newer file: of a device, foltr device enrol NAME --replace"
_STRANGE_SUCCESSION = (
    "the operator's keys at the broker do not begin with the enrolment key in these credentials: they are another "
    f"federation's, or somebody else wrote them; {_NEW_FILE}"
)
_SILENT_BROKER = (
    "an enrolment key that these credentials do not know states the federator's key, and the broker does not show "
    "that it follows from theirs. If the enrolment key was rotated, the broker's access list is too old: the "
    f"operator rewrites it, foltr broker config --force, and then: foltr operator publish. Else {_NEW_FILE}"
)


class _Retained(Protocol):
    """A message as the broker delivered it."""

    @property
    def payload(self) -> bytes: ...


@dataclass(frozen=True)
class FollowedKeys:
    """The keys to trust, by what was received.

    Attributes:
        credentials: those of the file, with the newest keys that follow from theirs.
        blocker: why newer keys may exist that cannot be trusted, and what to do; None without a sign of that.
    """

    credentials: Credentials
    blocker: str | None = None


def key_topics(federation: str) -> list[str]:
    """The topics with the retained messages for `follow_retained`."""
    topics = Topics(federation)
    return [topics.operator_key, topics.federator_key]


def follow_messages(credentials: Credentials, heard: Mapping[str, _Retained]) -> FollowedKeys:
    """Follow the keys by the messages on these topics; other topics are ignored."""
    succession, statement = (heard.get(topic) for topic in key_topics(credentials.federation))
    return follow_retained(
        credentials,
        None if succession is None else succession.payload,
        None if statement is None else statement.payload,
    )


def follow_retained(credentials: Credentials, succession: bytes | None, statement: bytes | None) -> FollowedKeys:
    """Follow the operator's key from the one in the credentials, and by it the federator's.

    Args:
        succession, statement: the retained messages of the operator's and of the federator's key; None or empty without
            one.
    """
    blocker = None
    if succession:
        try:
            credentials = credentials.with_succession(succession)
        except MessageError:
            # Without access control anybody may have written it: the keys of the file stay valid.
            blocker = _STRANGE_SUCCESSION
    if statement:
        try:
            credentials = credentials.with_federator_key(statement)
        except MessageError as error:
            # An older one than the file's own changes nothing.
            if error.code != ReceiptCode.REPLAYED and blocker is None:
                blocker = _SILENT_BROKER
    return FollowedKeys(credentials, blocker)
