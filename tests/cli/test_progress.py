"""How far something is: lines on standard error if nobody sits before a terminal."""

from foltr.cli import progress
from foltr.cli.progress import progress_reporter


def test_progress_is_told_once_it_lasts(monkeypatch, capsys):
    """Nothing in the first two seconds; then a line now and then."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress_reporter(after_s=2.0) as tell:
        for number in range(1, 31):
            now += 0.75
            tell(f"round {number}")
    assert capsys.readouterr().err.split() == ["round", "3", "round", "17"]


def test_lines_come_when_something_is_new_or_the_same_has_lasted(monkeypatch, capsys):
    """At once what is new, the same again after ten seconds; what looks like markup is shown."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress_reporter("waiting", changes=True) as tell:
        for at, text in ((0.0, "[one]"), (1.0, "[one]"), (2.0, "two"), (11.0, "two"), (12.0, "two")):
            now = at
            tell(text)
    assert capsys.readouterr().err.split() == ["[one]", "two", "two"]
