"""The errors a caller can act on. One class per thing a caller would do differently."""


class FoltrError(Exception):
    """Base of every error foltr raises on purpose; its message ends with what to do next."""


class DataError(FoltrError):
    """Input data is invalid. The message names the file, the line and what was expected."""


class MessageError(FoltrError):
    """Bytes from a peer are not a message of this protocol: they broke it, not we.

    Attributes:
        code: the receipt code for the peer, e.g. ``malformed``.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class SettingsError(FoltrError):
    """A setting is wrong or contradicts another. The message names the key and the allowed values."""


class UsageError(FoltrError):
    """A program calls something from the wrong thread or at the wrong time. The message says how to call it."""


class UnavailableError(FoltrError):
    """A broker, database or package index cannot be reached. The message says which, where and what to do."""


class ProtocolViolationError(FoltrError):
    """We broke our own protocol: an event was offered to a state machine that does not allow it."""


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in a nested group: one task's failure cancels the others, so only its own matters."""
    first = group.exceptions[0]
    return first_cause(first) if isinstance(first, BaseExceptionGroup) else first
