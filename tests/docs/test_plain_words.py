"""The check of our English finds each habit, and takes a quotation."""

from plain_words import HABITS, MOST_PAGES, MOST_WORDS, habits_in, too_long

RIDDLES = [
    "where it has none",
    "whoever asks",
    "there is none",
    "the client is told",
    "begins anew",
    "it waits, as the broker is away",
    "it waits, for nobody came",
    "refused in words",
    "all but for one",
    "it comes no more",
]


def test_it_finds_each_habit_and_takes_a_quotation():
    """One of them in a line that is otherwise plain; a habit that is added needs an example here."""
    for riddle in RIDDLES:
        assert [line for line, _, _ in habits_in(f"A plain line.\n{riddle}.\n")] == [2], riddle
    assert len(RIDDLES) == len(HABITS)
    assert habits_in("# He says 'there is none'.  plain: quoted") == []
    assert habits_in("no more than ten, where the file is, as fast as the disk") == []


def test_it_counts_words_and_pages():
    """Of a page, of all, and the pages of docs."""
    assert too_long({"README.md": 700}) == []
    many = {f"docs/{i}.md": 1 for i in range(MOST_PAGES + 1)}
    assert len(too_long(many)) == 1
    assert len(too_long({"a.md": MOST_WORDS + 1})) == 2
