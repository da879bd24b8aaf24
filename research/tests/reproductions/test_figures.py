"""Figures are written, small, and leave nothing behind."""

import sys

import pytest
from made_results import by_method, results

from foltr.core.errors import UnavailableError
from foltr_research.reproductions.figures import Figure, draw, require_matplotlib

pytest.importorskip("matplotlib", reason="figures are drawn by matplotlib, in the extra figures")

SMALL = 60_000


@pytest.mark.parametrize("kind", ["curves", "bars"])
@pytest.mark.parametrize("metric", ["offline", "shown", "max_rr"])
def test_draws_a_small_png(tmp_path, kind, metric):
    """One file, a PNG of at most 60 kB."""
    made, before = by_method(a=[0.5, 0.6, 0.55], b=[0.4, 0.41, 0.42], c=[0.3]), "matplotlib.pyplot" in sys.modules
    draw(Figure("x.png", metric, ("method",), kind=kind), made, tmp_path / "x.png")
    written = (tmp_path / "x.png").read_bytes()
    assert written.startswith(b"\x89PNG")
    assert len(written) < SMALL
    assert ("matplotlib.pyplot" in sys.modules) == before, "a long sweep must not collect figures"


def test_draws_rows_and_several_labels(tmp_path):
    """Panels for a second label, dashes for the curves' second one, and curves that lack it."""
    made = results(
        {
            (("method", "a"), ("ε", epsilon), ("clicks", clicks), ("ranker", ranker)): [0.4, 0.5]
            for epsilon in ("1", "2")
            for clicks in ("perfect", "informational")
            for ranker in ("linear", "neural")
        }
    )
    reference = results({(("method", "b"), ("clicks", "perfect"), ("ranker", "linear")): [0.3, 0.2]})
    both = type(made)((*made.outcomes, *reference.outcomes), made.data)
    figure = Figure("x.png", "offline", ("method", "ε"), rows="ranker", x="interactions", title="t")
    draw(figure, both, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size < SMALL


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnavailableError, match=r"pip install .*\[figures\]"):
        require_matplotlib()
