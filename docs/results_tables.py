"""What documents show of the kept reports of experiments, for `generate.py`: claims, verdicts and tables."""

import csv
import re
from pathlib import Path

import numpy as np

from foltr_research.reproductions.claims import Status, difference_of
from foltr_research.reproductions.experiments.thesis_unlearning import RETRAINED

RESULTS = Path(__file__).parent / "results"


def results_index() -> str:
    """What the kept reports say of themselves."""
    lines = ["| experiment | data | confirmed | not confirmed | not testable here |", "|---|---|---:|---:|---:|"]
    for report in sorted(RESULTS.glob("*/*/report.md")):
        text = report.read_text()
        title = text.splitlines()[0].removeprefix("# ").partition(": ")[2]
        n = {status: len(re.findall(rf"^\d+\. \*\*{status}\*\*", text, re.MULTILINE)) for status in Status}
        name, data = report.parts[-3:-1]
        link = f"[{name}]({name}/{data}/report.md)"
        lines.append(f"| {link}: {title} | {data} | " + " | ".join(str(n[status]) for status in Status) + " |")
    return "\n".join(lines)


# What the reports of the robustness experiments are made of, by file.
ROBUSTNESS_PARTS = ("summary", "kept", "decisions", "exceptions", "detections", "costs", "settings")


def robustness_tables(experiment: str) -> str:
    """The verdicts and tables of an experiment's kept reports, data set by data set."""
    parts = []
    for report in sorted((RESULTS / experiment).glob("*/report.md")):
        data = report.parent.name
        verdicts = report.read_text().partition("## Claims\n")[2].partition("## Setting")[0].strip()
        parts.append(
            f"### {data}\n\n[The report]({experiment}/{data}/report.md) has the setting and every claim's source."
        )
        parts.append(verdicts)
        for part in filter(Path.is_file, (report.parent / f"{name}.md" for name in ROBUSTNESS_PARTS)):
            title, _, text = part.read_text().partition("\n\n")
            parts.append(f"#### {data}: {title}\n\n{text.strip()}")
    return "\n\n".join(parts) or "No results are kept."


# Likewise of the experiments on secure sums: what noise costs, and what hostile devices do.
PRIVACY_PARTS = {
    "noise": ("privacy", ("noise", "epsilon")),
    "unseen": ("privacy-hostile", ("unseen", "discarded")),
    "proved": ("privacy-hostile", ("proved", "best", "left-out")),
}


def privacy_tables(experiment: str, names: tuple[str, ...]) -> str:
    """Some tables of the kept reports on secure sums, data set by data set."""
    parts = []
    for report in sorted((RESULTS / experiment).glob("*/report.md")):
        for name in names:
            title, _, text = (report.parent / f"{name}.md").read_text().partition("\n\n")
            parts.append(f"### {report.parent.name}: {title}\n\n{text.strip()}")
    return "\n\n".join(parts) or "No results are kept."


def canary_tables() -> str:
    """The verdicts and tables of the kept reports on the canary, data set by data set."""
    parts = []
    for report in sorted((RESULTS / "unlearning-canary").glob("*/report.md")):
        verdicts = report.read_text().partition("## Claims\n")[2].partition("## Setting")[0].strip()
        _, _, text = (report.parent / "canary.md").read_text().partition("\n\n")
        parts += [f"### {report.parent.name}", verdicts, text.strip()]
    return "\n\n".join(parts) or "No results are kept."


def _by_seed(rows: list[dict[str, str]], model: str, figure: str) -> dict[str, float]:
    """A figure of a model by seed, the mean over click models."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["model"] == model:
            found.setdefault(row["seed"], []).append(float(row[figure]))
    return {seed: sum(values) / len(values) for seed, values in found.items()}


def _minus(rows: list[dict[str, str]], first: str, second: str, figure: str) -> str:
    """A figure of one model minus that of another, paired by seed."""
    one, other = (_by_seed(rows, which, figure) for which in (first, second))
    found = difference_of(np.array([one[seed] - other[seed] for seed in one]))
    return f"{found.mean:+.3f} ± {found.half_width:.3f}"


def unlearning_overview() -> str:
    """Every way to forget, for each population and leaver, over click models: both data sets beside each other."""
    data = {}
    for path in sorted((RESULTS / "unlearning").glob("*/ranking.csv"), reverse=True):
        with path.open(encoding="utf-8") as file:
            data[path.parent.name] = list(csv.DictReader(file))
    columns = [f"{text}, {name}" for text in ("short", "cosine", "lists", "own queries") for name in data]
    parts = []
    rows = next(iter(data.values()))
    for place in dict.fromkeys((row["population"], row["leaver"]) for row in rows):
        there = {name: [row for row in of if (row["population"], row["leaver"]) == place] for name, of in data.items()}
        lines = ["| way | " + " | ".join([*columns, "steps", "kB"]) + " |", "|---|" + "---:|" * (len(columns) + 2)]
        first = next(iter(there.values()))
        for model in dict.fromkeys(row["model"] for row in first):
            cells = [_minus(of, RETRAINED, model, "ndcg") for of in there.values()]
            for figure in ("cosine", "overlap"):
                cells += [f"{np.mean(list(_by_seed(of, model, figure).values())):.2f}" for of in there.values()]
            cells += [_minus(of, model, RETRAINED, "own") for of in there.values()]
            steps, sent = (np.mean(list(_by_seed(first, model, figure).values())) for figure in ("steps", "bytes"))
            lines.append(f"| {model} | {' | '.join(cells)} | {steps:.0f} | {sent / 1000:.0f} |")
        parts.append(f"### {', '.join(place)}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) or "No results are kept."


def unlearning_claims() -> str:
    """The verdicts of the kept reports on forgetting, side by side."""
    found: dict[str, dict[str, str]] = {}
    for report in sorted((RESULTS / "unlearning").glob("*/report.md"), reverse=True):
        for status, claim in re.findall(r"^\d+\. \*\*(.+?)\*\*: (.+)$", report.read_text(), re.MULTILINE):
            found.setdefault(claim, {})[report.parent.name] = status
    names = list(dict.fromkeys(name for verdicts in found.values() for name in verdicts))
    lines = ["| claim and its source | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    lines += [f"| {claim} | " + " | ".join(of.get(name, "-") for name in names) + " |" for claim, of in found.items()]
    return "\n".join(lines)
