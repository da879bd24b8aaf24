"""How far something is: lines on standard error if nobody sits before a terminal."""

from foltr.cli import progress
from foltr.cli.progress import progress_reporter


def test_progress_is_told_once_it_lasts_or_something_is_new(monkeypatch, capsys):
    """Nothing in the first two seconds, then a line now and then; or what is new, and the same after ten seconds."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress_reporter(after_s=2.0) as tell:
        for number in range(1, 31):
            now += 0.75
            tell(f"round {number}")
    assert capsys.readouterr().err.split() == ["round", "3", "round", "17"]
    now = 0.0
    with progress_reporter("waiting", changes=True) as tell:
        for at, text in ((0.0, "[one]"), (1.0, "[one]"), (2.0, "two"), (11.0, "two"), (12.0, "two")):
            now = at
            tell(text)
    assert capsys.readouterr().err.split() == ["[one]", "two", "two"]  # what looks like markup is shown
