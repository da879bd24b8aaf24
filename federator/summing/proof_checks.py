"""Finds failing proofs, of a norm or of a vote: adds the federator's own answers to those of the helpers.

A page of them takes a tenth of a second, and one of long vectors a second without compiled code. So it runs in a
thread, beside the single writer, which goes on answering devices.
"""

import asyncio
from collections.abc import Callable, Mapping

from foltr.core.errors import DataError, MessageError
from foltr.core.protocol.signed_tickets import open_ticket, ticket_name
from foltr.core.secure.coins import Words
from foltr.core.secure.field import add, read_words
from foltr.core.secure.message_proof import MessageShape, answer_message, is_message_proof_valid
from foltr.federator.summing.verdicts import CheckProofs
from foltr.storage.sum_records import TicketRow


class ProofChecks:
    """Checks proofs in a thread, a `CheckProofs` at a time.

    Args:
        wake: called in the event loop when a result is ready.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._running: tuple[CheckProofs, asyncio.Task[set[int]]] | None = None

    @property
    def is_done(self) -> bool:
        """Whether a result is ready."""
        return self._running is not None and self._running[1].done()

    def begin(self, check: CheckProofs, bodies: Mapping[int, bytes], verify_key: bytes, shape: MessageShape) -> None:
        """Begin to find failing proofs; see `failing_proofs`."""
        task = asyncio.create_task(asyncio.to_thread(failing_proofs, check, bodies, verify_key, shape))
        task.add_done_callback(self._end)
        self._running = check, task

    def _end(self, task: "asyncio.Task[set[int]]") -> None:
        if not task.cancelled():
            task.exception()  # read it, or asyncio logs an error that was never retrieved
        self._wake()

    def pop_result(self) -> tuple[CheckProofs, set[int]] | None:
        """Return what was checked, and the positions of failing proofs; None if no result is ready.

        Raises:
            DataError: the stored data of a client differs from what was accepted.
        """
        if self._running is None or not self._running[1].done():
            return None
        (check, task), self._running = self._running, None
        return check, task.result()

    def drop(self) -> None:
        """Drop the running check: its round is over."""
        self._running = None


def failing_proofs(check: CheckProofs, bodies: Mapping[int, bytes], verify_key: bytes, shape: MessageShape) -> set[int]:
    """Return the positions of clients whose proofs fail, of the norm or of a vote.

    Args:
        bodies: by position: a masked vector followed by its proofs.
        verify_key: of the policy.

    Raises:
        DataError: the stored data of a client differs from what was accepted.
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
    return is_message_proof_valid(add(answers, own), shape)
