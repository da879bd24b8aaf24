"""Keeps pages short and English plain: ``python docs/plain_words.py`` names what is too long or reads like a riddle.

It counts the words of all Markdown files but stored results, and finds ten habits that make a stranger read a sentence
twice. ``plain_words.txt`` lists how often older files have them; a file may have fewer, never more. After a review,
``--accept`` writes that list again. A line that needs such words says why: ``plain: quoted`` in a comment.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parent.parent
ACCEPTED = Path(__file__).with_suffix(".txt")
MOST_WORDS, MOST_PAGES, MOST_WORDS_OF_A_PAGE = 60_000, 30, 5_000
_READ = (".md", ".py", ".ts", ".sh", ".yaml", "Makefile")
# What tools install or make.
_NOT_OURS = {"node_modules", "build", "dist", "__pycache__"}
HABITS = {
    r"\bwhere (it|they|none|nobody)\b|\bwhere there (is|are)\b": "if",
    r"\b(whoever|whomever|whatever|whichever)\b": "who does it: name the actor",
    r"\bthere (is|are|was|were) (none|nobody|nothing)\b": "no ..., or say what to do without it",
    r"\b(is|are|was|were|be|been) (told|said)\b": "who tells whom",
    r"\banew\b": "again",
    r", as (it|they|he|she|the|a|an|there|that|those|each|all|nobody|no|one|its|their)\b": "because",
    r", for (it|they|he|she|there|that|those|nobody|no|what|who)\b": "because",
    r"\bin words\b": "say what it says",
    r"\bbut for\b|\bthe like of\b": "except, such as",
    r"\bno more\b(?! than)": "no longer",
}


def habits_in(text: str) -> list[tuple[int, str, str]]:
    """Each place of a text that has a habit: its line from 1, the words, and what to write in their place."""
    lines = text.splitlines()
    return [
        (number, match[0].strip(), better)
        for number, line in enumerate(lines, 1)
        if "plain: quoted" not in line
        for habit, better in HABITS.items()
        for match in re.finditer(habit, line, re.IGNORECASE)
    ]


def too_long(words: dict[str, int]) -> list[str]:
    """What is wrong with so many words by page."""
    faults = [
        f"{page}: {n} words, at most {MOST_WORDS_OF_A_PAGE}" for page, n in words.items() if n > MOST_WORDS_OF_A_PAGE
    ]
    n_pages = sum(page.startswith("docs/") for page in words)
    if n_pages > MOST_PAGES:
        faults.append(f"docs has {n_pages} pages, at most {MOST_PAGES}")
    if sum(words.values()) > MOST_WORDS:
        faults.append(f"all pages have {sum(words.values())} words, at most {MOST_WORDS}")
    return faults


def _files() -> Iterator[str]:
    for folder, below, names in os.walk(PROJECT):
        below[:] = [name for name in below if name not in _NOT_OURS and not name.startswith(".")]
        paths = (os.path.relpath(f"{folder}/{name}", PROJECT) for name in names if name.endswith(_READ))
        yield from (path for path in paths if not path.startswith(("research/results/", "docs/plain_words")))


def main(arguments: list[str]) -> int:
    texts = {file: (PROJECT / file).read_text() for file in sorted(_files())}
    found = {file: habits for file, text in texts.items() if (habits := habits_in(text))}
    if "--accept" in arguments:
        ACCEPTED.write_text("".join(f"{len(habits)} {file}\n" for file, habits in found.items()))
        return 0
    rows = (line.split(" ", 1) for line in ACCEPTED.read_text().splitlines())
    accepted = Counter({file: int(n) for n, file in rows})
    faults = too_long({file: len(text.split()) for file, text in texts.items() if file.endswith(".md")})
    for file, habits in found.items():
        if len(habits) > accepted[file]:
            faults += [f"{file}:{line}: {words!r}; better: {better}" for line, words, better in habits]
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
