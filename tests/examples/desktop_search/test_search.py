"""A search keeps its promises to the user: exact titles first, off is off, a reset forgets."""

import sys
from functools import partial
from pathlib import Path

import pytest
from support.completed_process import completed

from features import SCHEMA
from folder import Folder
from foltr import Experiment, Ranking, SearchRanker
from foltr.core.operator.credentials import write_credentials
from foltr.testing import FakeFederation
from search import N_SHOWN, Search

TERMINAL = Path(__file__).parents[3] / "examples/desktop_search/terminal.py"


def write_books(folder: Path) -> None:
    """Write one module ``page`` and twenty functions that say something of pages, the later the more often."""
    folder.mkdir()
    (folder / "page.py").write_text('"""Leaves."""')
    for i in range(20):
        words = " page" * (i + 1) + " word" * (40 - i)
        (folder / f"book{i:02}.py").write_text(f'def turn{i:02}():\n    """Turn it.\n\n   {words}"""')


@pytest.fixture
def books(tmp_path):
    write_books(tmp_path / "books")
    folder = Folder(tmp_path / "books")
    yield folder
    folder.close()


@pytest.fixture
def search(books, tmp_path, monkeypatch):
    """Without credentials and exploration: it records, and shows the order of BM25."""
    monkeypatch.setattr("search.SearchRanker", partial(SearchRanker, ranking=Ranking(exploration="none")))
    search = Search(books, tmp_path / "home")
    yield search
    search.close()


def test_an_exact_title_is_first_and_nothing_is_learned_from_it(search):
    """Positions of clicks are those of the list that was ranked."""
    found = search.find("page")
    assert len(found) == 1 + N_SHOWN
    assert found[0].name == "page"
    assert found[1].name == "book19.turn19"
    search.open(0)
    search.open(2)
    recorded = []
    search.ranker.record_clicks = lambda serp, clicked: recorded.append((serp.ranking.tolist(), clicked))
    search.finish()
    assert recorded == [(list(range(N_SHOWN)), [1])]


def test_off_shows_the_index_and_records_nothing(search):
    """Also of the list that stands there while it is switched off."""
    before = search.find("page")
    search.learning = False
    search.open(1)
    assert search.find("page") == before
    search.open(2)
    search.finish()
    assert search.ranker.n_waiting == 0
    search.learning = True
    search.find("page")
    search.finish()
    assert search.ranker.n_waiting == 1


def test_a_reset_forgets_what_was_recorded_and_nothing_else(search, tmp_path):
    """What the user keeps beside it stays, and search goes on."""
    (tmp_path / "home" / "mine.txt").write_text("mine")
    search.find("page")
    search.finish()
    search.find("word")
    search.reset()
    assert search.ranker.n_waiting == 0
    assert (tmp_path / "home" / "mine.txt").read_text() == "mine"
    search.find("page")
    search.finish()
    assert search.ranker.n_waiting == 1


def test_what_was_recorded_is_there_at_the_next_start(books, tmp_path):
    """Each list is learned from once, when the next is asked for or at the end, also if nothing was opened."""
    search = Search(books, tmp_path / "home")
    assert search.find("qwertz") == search.find("") == []
    search.find("word")
    assert search.ranker.n_waiting == 0
    search.find("page")
    assert search.ranker.n_waiting == 1
    search.close()
    search = Search(books, tmp_path / "home")
    assert search.ranker.n_waiting == 2
    search.finish()
    assert search.ranker.n_waiting == 2
    search.close()


def test_the_terminal_finds_opens_and_resets(tmp_path):
    """As somebody types it."""
    write_books(tmp_path / "books")
    typed = "page\n1\n12\n:off\npage\n:on\n:reset\npage\nqwertz\n:report\n\n"
    done = completed(
        [sys.executable, str(TERMINAL), "--folder", str(tmp_path / "books"), "--home", str(tmp_path / "home")],
        input=typed,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "21 documents" in done.stdout
    assert done.stdout.count(" 1 page: Leaves.") == 3
    assert "there is no model yet. 1 list was recorded, 0 with a click" in done.stdout
    assert "page.py:1" in done.stdout


def test_it_learns_the_order_of_the_index_and_then_from_what_was_opened(books, tmp_path, monkeypatch):
    """The first model ranks like BM25; in the second what was opened has gained."""
    options = {"ranking": Ranking(exploration="swaps:0.5"), "experiment": Experiment(seed=1)}
    monkeypatch.setattr("search.SearchRanker", partial(SearchRanker, **options))
    best = books.find("word").candidates[:N_SHOWN]
    with FakeFederation(SCHEMA) as federation:
        write_credentials(tmp_path / "device-1.json", federation.credentials("device-1"))
        search = Search(books, tmp_path / "home", tmp_path / "device-1.json")
        leads = []
        for version in (1, 2):
            for _ in range(5):
                found = search.find("word")
                search.open(found.index(best[-1]))
                search.finish()
            assert federation.run_round() == search.ranker.model_version == version
            scores = search.ranker.scores(books.find("word").features)
            leads.append(scores[0] - scores[N_SHOWN - 1])
        assert leads[0] > 0
        assert leads[1] < leads[0]
        assert search.ranker.report().n_clicked == 10
        search.close()
