"""Stores new reports in research/results: ``python research/benchmarks/keep_reports.py OUT`` after ``foltr reproduce``.

OUT is what ``--out`` named, or one experiment's folder in it.

Each report replaces the stored one on its data, without figures. Its verdicts are counted in README.md, and pages that
collect tables get the new ones in place of the former. What pages say about them is for you to read again.
"""

import re
import shutil
import sys
from collections import Counter
from pathlib import Path

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.records import Record, record_path
from foltr_research.reproductions.registry import EXPERIMENTS

RESULTS = Path(__file__).parents[1] / "results"
_TABLE = re.compile(r"(?:^\|[^\n]*\n)+", re.MULTILINE)
_FIGURES = re.compile(r"^(?:!\[[^\n]*|Lines are means over seeds[^\n]*)\n\n", re.MULTILINE)


def keep(report: Path, results: Path = RESULTS) -> str:
    """Store a report with its record, and return its place below ``results``."""
    record = Record.model_validate_json(record_path(report).read_bytes())
    place = f"{record.experiment}/{record.data_folder}.md"
    stored = results / place
    former = stored.read_text("utf-8") if stored.exists() else ""
    text = _FIGURES.sub("", report.read_text("utf-8"))
    stored.parent.mkdir(exist_ok=True)
    stored.write_text(text, "utf-8")
    shutil.copy(record_path(report), record_path(stored))
    pages = {page: page.read_text("utf-8") for page in results.glob("*.md")}
    old, new = _TABLE.findall(former), _TABLE.findall(text)
    if len(old) == len(new):
        for before, after in zip(old, new, strict=True):
            pages = {page: written.replace(before, after) for page, written in pages.items()}
    pages[results / "README.md"] = _with_row(pages[results / "README.md"], place, record, text)
    for page, written in pages.items():
        page.write_text(written, "utf-8")
    return place


def _with_row(readme: str, place: str, record: Record, text: str) -> str:
    """Return the page with the report's row in place of a former one, else after the last row of its experiment."""
    found = Counter(re.findall(r"^\d+\. \*\*(.*?)\*\*: ", text, re.MULTILINE))
    counts = " | ".join(str(found[status]) for status in Status)
    title = EXPERIMENTS[record.experiment].title
    row = f"| [{record.experiment}]({place}): {title} | {record.data_folder} | {counts} |\n"
    rows = re.compile(rf"^\| \[[^\n]*\({re.escape(place)}\)[^\n]*\n", re.MULTILINE)
    if rows.search(readme):
        return rows.sub(lambda _: row, readme)
    of_experiment = list(re.finditer(rf"^\| \[{re.escape(record.experiment)}\][^\n]*\n", readme, re.MULTILINE))
    at = of_experiment[-1].end() if of_experiment else _TABLE.search(readme).end()  # type: ignore[union-attr]
    return readme[:at] + row + readme[at:]


if __name__ == "__main__":
    for out in sys.argv[1:]:
        for made in sorted((*Path(out).glob("report.md"), *Path(out).glob("*/report.md"))):
            print(keep(made))
