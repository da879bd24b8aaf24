"""Numbers answers where several processes answer devices: as they are decided, not as they are sent.

A device believes no answer that is older than one it has had, by the sequence in it. Leader and workers send on
connections of their own, so an older answer may come after a newer one, and is to be refused then. So an answer has its
number from the transaction that decides it (``ingestion.n_answers``), which holds the federation's row.
"""

from foltr.core.protocol.signing import sequence_of


class AnswerNumbers:
    """The numbers of one process's answers. Only the holder of the right to decide uses them."""

    def __init__(self) -> None:
        self._epoch = self.newest = 0

    def begin(self, epoch: int, newest: int = 0) -> None:
        """Number above ``newest`` under the claim ``epoch`` from now on."""
        self._epoch, self.newest = epoch, newest

    def go_on(self, newest: int) -> None:
        """Number above ``newest``: others have used what is up to it."""
        self.newest = newest

    def next(self) -> int:
        """Return the sequence of the next answer."""
        self.newest += 1
        return sequence_of(self._epoch, self.newest)
