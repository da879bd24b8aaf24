"""What a report was made from, kept beside it as JSON, and whether the program is still the same.

A report is *stale* if code that its runs or verdicts use has changed since. Nothing is run or imported to find out.
"""

import ast
import functools
import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind, read_text_file
from foltr_research.simulation.digests.units import Unit
from foltr_research.simulation.digests.used_code import RUN, Sources, installed_sources

_PACKAGE = "foltr_research.reproductions"
_STARTS: tuple[Unit, ...] = (RUN, (f"{_PACKAGE}.outcomes", "METRICS"))
# Of an experiment's record what figures and verdicts depend on. The rest is layout and text.
_COUNTING = ("grid", "more", "claims", "sections", "numbers")
# Only runs with a method, a rule or data from outside come to these modules, and such a run's result is not a report's.
_FOR_PLUGINS = frozenset(
    f"foltr_research.simulation.{one}" for one in ("digests.live", "digests.whole", "own_data", "own_method")
)


class Record(BaseModel):
    """What a report was made from.

    Attributes:
        base: the experiment that this one is made from, whose code it has; empty if it has its own.
        data: the data set's name.
        folds: of it that were used; empty if it has none.
        files: SHA-256 of the data's files; empty for data that the program makes.
        options: of the command line, for its scale and seeds.
        seconds: of all runs together, on one core; None if unknown.
        interactions: of the runs of its grid; None if unknown.
        commit: the checkout's, with a plus sign if it had other changes; None outside a checkout.
        versions: of Python, foltr and the libraries that compute.
        names: the strings of the configurations, which select code.
        code: 16 hexadecimal digits by module; empty for a report from before this was recorded.
        outside: names that were bound to code which is not in the source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str
    base: str = ""
    data: str
    folds: tuple[int, ...]
    files: str
    options: str
    seconds: float | None
    interactions: int | None
    commit: str | None
    versions: dict[str, str]
    names: tuple[str, ...]
    code: dict[str, str]
    outside: tuple[str, ...] = ()

    @property
    def data_folder(self) -> str:
        """Return the data set's folder, below the one that holds it."""
        return self.data.partition("/")[0] if self.folds else self.data

    @property
    def command(self) -> str:
        """Return what to type to make the report again."""
        return f"foltr reproduce {self.experiment} --data {self.data_folder} --out OUT {self.options}"


@dataclass(frozen=True)
class CheckedReport:
    """A report with what was found.

    Attributes:
        record: None without one, or if it cannot be read.
        reason: why it is stale; None if it is not.
        modules: those that have changed.
    """

    path: Path
    record: Record | None
    reason: str | None
    modules: tuple[str, ...] = ()


def record_path(report: Path) -> Path:
    """Return where the record of a report is."""
    return report.with_suffix(".json")


def check_reports(folder: Path, data: Path | None = None) -> Iterator[CheckedReport]:
    """Yield the reports of a folder, as ``NAME/report.md`` or ``NAME/DATA.md``, with what has changed since.

    Args:
        data: the folder that holds the data sets, to compare their files, too.

    Raises:
        SettingsError: the folder has no reports.
    """
    paths = sorted(folder.glob("*/*.md"))
    if not paths:
        raise SettingsError(f"{folder}: it has no report; name the folder that --out named")
    for path in paths:
        try:
            record = Record.model_validate_json(read_text_file(record_path(path), FileKind.RESULT))
        except (OSError, ValidationError):
            yield CheckedReport(path, None, "it has no record of its code")
            continue
        yield _checked(path, record, data)


def _checked(path: Path, record: Record, data: Path | None) -> CheckedReport:
    if (record.base or record.experiment) not in experiments_in(installed_sources()):
        return CheckedReport(path, None, "its experiment is gone")
    if not record.code:
        return CheckedReport(path, record, "it is from before code was recorded")
    if record.outside:
        return CheckedReport(path, record, f"it was made with code of others: {', '.join(record.outside)}")
    now = code_of(installed_sources(), record.base or record.experiment, record.names)
    changed = [
        name for name in sorted((now | record.code).keys() - _FOR_PLUGINS) if now.get(name) != record.code.get(name)
    ]
    if changed:
        return CheckedReport(path, record, "its code has changed", tuple(changed))
    if data is not None and record.files and data_digest(data / record.data_folder, record.folds) != record.files:
        return CheckedReport(path, record, "its data has changed, or is not there")
    return CheckedReport(path, record, None)


def code_of(sources: Sources, experiment: str, names: Iterable[str]) -> dict[str, str]:
    """Return 16 hexadecimal digits for each module that an experiment uses.

    Args:
        names: of the configurations, from `foltr_research.simulation.digests.used_code.names_of`.
    """
    found = experiments_in(sources).get(experiment)
    used = sources.used(_STARTS, names, [] if found is None else [found])
    return {module: digest for module, digest in used.items() if module not in _FOR_PLUGINS}


@functools.cache
def experiments_in(sources: Sources) -> dict[str, tuple[str, tuple[ast.expr, ...]]]:
    """Return each experiment's module and what of its record figures and verdicts depend on."""
    found = {}
    for module in sources.modules_in(_PACKAGE):
        assigned = [one for one in sources.tree(module).body if isinstance(one, ast.Assign | ast.AnnAssign)]
        for node in (node for one in assigned for node in ast.walk(one)):
            match node:
                case ast.Call(func=ast.Name(id="Experiment"), keywords=keywords):
                    values = {one.arg: one.value for one in keywords}
                    if isinstance(name := values.get("name"), ast.Constant):
                        parts = tuple(values[one] for one in _COUNTING if one in values)
                        found[str(name.value)] = (module, parts)
    return found


def data_digest(folder: Path, folds: Iterable[int]) -> str:
    """Return the SHA-256 of a data set's files, of its folds if it has any; empty for a name without a folder."""
    below = [folder / f"Fold{fold}" for fold in folds] or [folder, *(one for one in folder.glob("*") if one.is_dir())]
    digest = hashlib.sha256()
    paths = sorted(path for one in below for path in one.glob("*.txt"))
    for path in paths:
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest() if paths else ""


def checkout_commit() -> str | None:
    """Return the commit of the checkout that this program is in, with a plus sign if it has other changes."""
    git = shutil.which("git")
    if git is None:
        return None

    def run(*words: str) -> str | None:
        done = subprocess.run(  # noqa: S603 (git with fixed words)
            [git, "-C", str(Path(__file__).parent), *words], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    commit, changes = run("rev-parse", "HEAD"), run("status", "--porcelain", "--untracked-files=no")
    return commit and f"{commit}{'+' if changes else ''}"


def duration_text(seconds: float) -> str:
    """Return a time for people: minutes, or hours from two on."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minute{'' if minutes == 1 else 's'}" if minutes < 120 else f"{minutes / 60:.0f} hours"
