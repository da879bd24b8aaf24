"""Which proofs fail, of a norm or of a vote: the federator's own answers, added to what the helpers have answered.

A page of them takes a tenth of a second, and one of long vectors a second where nothing is compiled. So it is done in a
thread, beside the single writer, which goes on answering devices.
"""

import asyncio
from collections.abc import Callable, Mapping

from foltr.core.errors import DataError, MessageError
from foltr.core.protocol.signed_tickets import open_ticket, ticket_name
from foltr.core.secure.coins import Words
from foltr.core.secure.field import add, read_words
from foltr.core.secure.message_proof import MessageShape, answer_message, is_message_kept
from foltr.federator.summing.verdicts import CheckProofs
from foltr.storage.sum_records import TicketRow


class ProofChecks:
    """Checks proofs in a thread, a `CheckProofs` at a time.

    Args:
        wake: called in the event loop when there is something to take.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._running: tuple[CheckProofs, asyncio.Task[set[int]]] | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is something to take."""
        return self._running is not None and self._running[1].done()

    def begin(self, check: CheckProofs, bodies: Mapping[int, bytes], verify_key: bytes, shape: MessageShape) -> None:
        """Begin to find out which of these fail, as `failing_proofs`."""
        task = asyncio.create_task(asyncio.to_thread(failing_proofs, check, bodies, verify_key, shape))
        task.add_done_callback(self._end)
        self._running = check, task

    def _end(self, task: "asyncio.Task[set[int]]") -> None:
        if not task.cancelled():
            task.exception()  # what is never taken is no error that nobody has seen
        self._wake()

    def take(self) -> tuple[CheckProofs, set[int]] | None:
        """Return what was checked, and the positions of those that fail; None where nothing is done.

        Raises:
            DataError: what is stored of a client is not what was taken from it.
        """
        if self._running is None or not self._running[1].done():
            return None
        (check, task), self._running = self._running, None
        return check, task.result()

    def drop(self) -> None:
        """Forget what is being checked: its round is over."""
        self._running = None


def failing_proofs(check: CheckProofs, bodies: Mapping[int, bytes], verify_key: bytes, shape: MessageShape) -> set[int]:
    """Return the positions of those whose proofs fail, of the norm or of a vote.

    Args:
        bodies: what their clients have sent, by position: a masked vector and, behind it, its proofs.
        verify_key: of the policy.

    Raises:
        DataError: what is stored of a client is not what was taken from it.
    """
    return {
        row.position
        for row, answers in zip(check.rows, check.answers, strict=True)
        if not _is_kept(row, answers, bodies[row.position], verify_key, shape)
    }


def _is_kept(row: TicketRow, answers: Words, body: bytes, verify_key: bytes, shape: MessageShape) -> bool:
    try:
        share = read_words(body, shape.n_values)
    except MessageError as error:
        raise DataError(
            f"the vector at position {row.position} and its proofs cannot be read: {error.detail}"
        ) from error
    own = answer_message(share, verify_key, ticket_name(open_ticket(row.ticket).ticket), shape)
    return is_message_kept(add(answers, own), shape)
