"""Numbers answers in the order of decisions, if several processes answer devices.

A device ignores answers older than its newest, by the sequence in them. Leader and workers send on separate
connections, so an older answer may arrive after a newer one, and must be refused then. So an answer gets its number in
the transaction that decides it (``ingestion.n_answers``), which holds the federation's row.
"""

from foltr.core.protocol.signing import sequence_of


class AnswerNumbers:
    """The numbers of one process's answers. Only the process that may decide uses them."""

    def __init__(self) -> None:
        self._epoch = self.newest = 0

    def begin(self, epoch: int, newest: int = 0) -> None:
        """Number above ``newest`` under the claim ``epoch`` from now on."""
        self._epoch, self.newest = epoch, newest

    def continue_above(self, newest: int) -> None:
        """Number above ``newest``: others have used the numbers up to it."""
        self.newest = newest

    def next(self) -> int:
        """Return the sequence of the next answer."""
        self.newest += 1
        return sequence_of(self._epoch, self.newest)
