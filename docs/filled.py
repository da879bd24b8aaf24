"""Fills the generated parts of a document, each between two comments that name it."""


def fill(text: str, name: str, content: str) -> str:
    """Return a document with the part between the comments ``name:begin`` and ``name:end`` replaced.

    Raises:
        ValueError: the document does not have each of these comments once.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{content}\n{end}{after}"
