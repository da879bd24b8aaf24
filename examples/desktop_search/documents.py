"""Reads a folder as documents: docstrings of the Python modules, classes and functions, and text files."""

import ast
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Kind = Literal["module", "class", "function", "text"]

TEXT_ENDINGS: Final = (".md", ".rst", ".txt")
# Parts of the standard library: tests, demonstrations, installed packages.
_LEFT_OUT: Final = frozenset(
    {
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "turtledemo",
        "site-packages",
        "dist-packages",
        "lib-dynload",
        "__pycache__",
    }
)
_WORD = re.compile(r"[^\W\d_]+|\d+")
# Between the parts of readLine, and those of HTTPServer.
_INNER_BEGINNING = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Document:
    """One thing that can be found.

    Attributes:
        name: with dots: ``shutil.copytree``; for a text its path.
        place: its file, and the line at which it begins.
        summary: the first line of its documentation.
        body: all the other lines, and the names of parameters.
    """

    name: str
    kind: Kind
    place: str
    summary: str
    body: str

    @property
    def file(self) -> str:
        return self.place.rpartition(":")[0]

    @property
    def is_private(self) -> bool:
        """Whether its name, or that of a parent, begins with ``_``."""
        return any(part.startswith("_") and not part.endswith("__") for part in self.name.split("."))

    def text(self, with_summary: bool) -> str:
        """The documentation, with or without its first line."""
        return f"{self.summary}\n{self.body}" if with_summary else self.body


def standard_library() -> Path:
    """Return the folder of the standard library, which every Python has."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_documents(folder: Path) -> list[Document]:
    """Read all documents below a folder, in the order of their paths. Unreadable files have none."""
    documents: list[Document] = []
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for file in sorted(files):
            if file.endswith((".py", *TEXT_ENDINGS)):
                documents.extend(_documents_of(Path(where, file), folder))
    return documents


def words_of(text: str) -> list[str]:
    """Return the words of a text or a name, in lower case: ``readLine_2`` has read, line and 2."""
    return [word.casefold() for word in _WORD.findall(_INNER_BEGINNING.sub(" ", text))]


def _documents_of(path: Path, folder: Path) -> Iterator[Document]:
    inside = path.relative_to(folder)
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".py":
            module = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
            yield from _definitions(_parse(text), module, str(inside))
        elif text.strip():
            yield _document(str(inside), "text", f"{inside}:1", text)
    except (OSError, SyntaxError, ValueError):
        return


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parser's warnings about other people's code
        return ast.parse(text)


def _definitions(node: _Definition, name: str, file: str) -> Iterator[Document]:
    """Yield the document of a definition, then of those within it."""
    text = ast.get_docstring(node)
    if text:
        kind: Kind = "function"
        parameters = ""
        if isinstance(node, ast.Module | ast.ClassDef):
            kind = "module" if isinstance(node, ast.Module) else "class"
        else:
            parameters = " ".join(each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
        yield _document(name, kind, f"{file}:{getattr(node, 'lineno', 1)}", text, parameters)
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _definitions(child, f"{name}.{child.name}", file)


def _document(name: str, kind: Kind, place: str, text: str, parameters: str = "") -> Document:
    first, _, rest = text.strip().partition("\n")
    return Document(name, kind, place, first.strip("# ").strip(), f"{parameters}\n{rest}".strip())
