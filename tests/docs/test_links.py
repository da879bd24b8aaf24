"""Links between the documents lead somewhere, also where the files are read in the repository."""

import posixpath
import re

from build_site import CODE, LINK
from cli.commands import PROJECT
from docs.markdown_files import markdown_files


def anchors_of(text: str) -> set[str]:
    """Return the anchors that a repository's page makes of a document's headings: as GitHub does."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ +(.*?) *#*$", text, re.MULTILINE):
        words = re.sub(r"\]\([^)]*\)", "", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (numbered := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(numbered)
    return found


def test_links_between_documents_lead_somewhere():
    """Each is to a file that is there, and to a heading that it has."""
    texts = {file: (PROJECT / file).read_text() for file in markdown_files()}
    wrong = []
    for file, text in texts.items():
        for link in LINK.findall(CODE.sub("", text)):
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(file), path)) if path else file
            has_anchor = not anchor or target not in texts or anchor in anchors_of(texts[target])
            if not ((PROJECT / target).is_file() and has_anchor):
                wrong.append(f"{file}: {link}")
    assert wrong == []


def test_no_document_has_another_form_of_link():
    """The tests know inline links and autolinks; a reference that is defined elsewhere would be checked by none."""
    definition = re.compile(r"^\[[^\]]+\]: ", re.MULTILINE)
    assert [file for file in markdown_files() if definition.search(CODE.sub("", (PROJECT / file).read_text()))] == []
