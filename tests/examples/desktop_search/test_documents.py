"""A folder's Python files and texts become documents, each with a name, a first line and the rest."""

from documents import Document, read_documents, words_of

SHELVES = '''"""Shelves hold books.

They bend.
"""

class Shelf(object):
    """One shelf.

    It is made of wood.
    """

    def take_down(self, book, *, gently=True):
        """Take a book down.

        Raises KeyError without one."""

    def _measure(self):
        """Measure it."""

    def silent(self): ...
'''


def test_definitions_are_named_with_dots_and_their_first_lines_stand_apart(tmp_path):
    """In the order of the file; what says nothing of itself is no document."""
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "shelves.py").write_text(SHELVES)
    (tmp_path / "house" / "__init__.py").write_text('"""A house."""')
    documents = read_documents(tmp_path)
    assert [(d.name, d.kind, d.summary) for d in documents] == [
        ("house", "module", "A house."),
        ("house.shelves", "module", "Shelves hold books."),
        ("house.shelves.Shelf", "class", "One shelf."),
        ("house.shelves.Shelf.take_down", "function", "Take a book down."),
        ("house.shelves.Shelf._measure", "function", "Measure it."),
    ]
    taken = documents[3]
    assert taken.body.split() == ["self", "book", "gently", "Raises", "KeyError", "without", "one."]
    assert taken.place == "house/shelves.py:12"
    assert [d.is_private for d in documents] == [False, False, False, False, True]


def test_a_text_is_one_document_and_what_cannot_be_read_is_none(tmp_path):
    """Neither a broken file nor a picture stops the reading, and an empty one has nothing to say."""
    (tmp_path / "b.md").write_text("# Übersicht\n\nAlles Weitere.\n")
    (tmp_path / "a.py").write_text("def broken(:")
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe not text")
    (tmp_path / "d.rst").write_text(" \n")
    (tmp_path / "e.png").write_bytes(b"\x89PNG")
    assert read_documents(tmp_path) == [Document("b.md", "text", "b.md:1", "Übersicht", "Alles Weitere.")]
    # Names come apart where a capital letter, an underscore or a digit begins.
    assert words_of("os.path.readLine_2 HTTPServer") == ["os", "path", "read", "line", "2", "http", "server"]
    assert (words_of("Größe?"), words_of(" -- ")) == (["grösse"], [])
