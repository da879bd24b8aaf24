"""The page of keys: each row of its table has a test that tries it, and each command in it is one."""

import re

from cli.commands import PROJECT, foltr

PAGE = (PROJECT / "docs" / "keys.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.split("<!-- keys:begin -->")[1].split("<!-- keys:end -->")[0].strip().splitlines()[2:]
]


def test_each_row_names_a_test_that_is_there():
    """A row that nobody tries is a promise that nobody keeps."""
    assert len(ROWS) >= 3
    for what, _, _, test in ROWS:
        path, _, name = test.strip("`").partition("::")
        assert re.search(rf"^(async )?def {name}\(", (PROJECT / path).read_text(), re.MULTILINE), what


def test_each_command_of_the_page_exists():
    """With the options that the page gives it."""
    commands = set(re.findall(r"(?:^|`)(foltr(?: [a-z][a-z-]*)+)((?: [A-Z-][^\s`,;|]*)*)", PAGE, re.MULTILINE))
    assert len(commands) >= 3
    for words, rest in commands:
        helped = foltr(*words.split()[1:], "--help", code=0)
        assert all(flag in helped.stdout for flag in re.findall(r"--[a-z-]+", rest)), (words, rest)
