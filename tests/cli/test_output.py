"""How results look: what a device says is shown as it is, and nothing of one record is left out."""

from dataclasses import dataclass

import pytest

from foltr.cli.output import print_record, print_rows


@dataclass(frozen=True)
class Row:
    name: str


@pytest.mark.parametrize("name", ["[/b]", "[red]x", "[link=file:///etc/passwd]x[/link]", "a\\[b]"])
def test_what_was_said_is_no_markup(name, capsys):
    """In a table as in one record."""
    print_rows([Row(name)], ["name"], title="rows", as_json=False)
    print_record(Row(name), title="record", as_json=False)
    assert capsys.readouterr().out.count(name) == 2


def test_a_long_value_of_one_record_is_whole(capsys):
    """Folded, where the terminal is too narrow, and not cut."""
    print_record(Row("0123456789" * 50), title="record", as_json=False)
    printed = "".join(capsys.readouterr().out.split())
    assert "0123456789" * 50 in printed.removeprefix("record").replace("name", "")
