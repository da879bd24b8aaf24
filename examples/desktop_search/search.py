"""A search whose order learns from what is opened: the code that an application adds to its search."""

import logging
from pathlib import Path
from typing import Final

from documents import Document
from features import SCHEMA
from folder import Folder
from foltr import Privacy, SearchRanker
from foltr.core.errors import FoltrError
from foltr.edge_client.client import Serp

log = logging.getLogger(__name__)

N_SHOWN: Final = 10
_STORE: Final = "clicks.sqlite"


class Search:
    """Searches a folder in a learned order; with ``learning`` off, in BM25's."""

    def __init__(self, folder: Folder, home: Path, credentials: Path | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._folder, self._home, self._credentials = folder, home, credentials
        self._serp: Serp | None = None
        self._opened: set[int] = set()
        self.learning, self.n_exact, self.ranker = True, 0, self._open_ranker()

    def _open_ranker(self) -> SearchRanker:
        at_once = Privacy(click_window_s=0)  # each list is recorded once, when the user leaves it
        return SearchRanker(self._credentials, store=self._home / _STORE, schema=SCHEMA, privacy=at_once)

    def find(self, query: str) -> list[Document]:
        """Return exact matches first, then the best of all others."""
        self.finish()
        found = self._folder.find(query)
        self.n_exact = len(found.exact)
        if not self.learning:
            return found.exact + found.candidates[:N_SHOWN]
        self._serp = self.ranker.rank(found.features, k=N_SHOWN, base=found.bm25)
        return found.exact + [found.candidates[i] for i in self._serp.ranking]

    def open(self, position: int) -> None:
        """Record what was opened in the list. Exact matches are first by rule, so nothing is learned from them."""
        if position >= self.n_exact:
            self._opened.add(position - self.n_exact)

    def finish(self) -> None:
        """Learn from the last list, also if nothing in it was opened. Does nothing while learning is off."""
        serp, opened = self._serp, sorted(self._opened)
        self._serp, self._opened = None, set()
        if serp is not None and self.learning:
            try:
                self.ranker.record_clicks(serp, opened)
            except FoltrError:  # e.g. the disk is full; the search goes on
                log.exception("nothing was learned from a list")

    def reset(self) -> None:
        """Forget what was learned on this device. The federation's model comes again."""
        self._serp, self._opened = None, set()
        self.ranker.close()
        for file in self._home.glob(f"{_STORE}*"):
            file.unlink()
        self.ranker = self._open_ranker()

    def close(self) -> None:
        self.finish()
        self.ranker.close()
