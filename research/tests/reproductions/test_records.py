"""A report's record says what it was made from, and a check names what has changed since."""

import shutil
import subprocess
from pathlib import Path

import pytest
from made_results import profile

import foltr.core
import foltr_research
from foltr.core.errors import SettingsError
from foltr_research.reproductions import records
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.records import Record, check_reports, checkout_commit, code_of, data_digest
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.simulation.digests.used_code import Sources, installed_sources, names_of

RESULTS = Path(__file__).parents[2] / "results"
ROOTS = {one.__name__: Path(one.__file__).parent for one in (foltr.core, foltr_research)}


def names(experiment, n_grades=3):
    planned = plan(EXPERIMENTS[experiment], "quick", profile(n_grades), 1)
    return sorted(set().union(*(names_of(one.config.model_dump(mode="json")) for one in planned)))


def record(experiment="thesis-3.9", **changed):
    known = {
        "options": "--scale quick --seeds 3",
        "seconds": 90.0,
        "interactions": 9,
        "commit": None,
        "versions": {"numpy": "2.0.0"},
    }
    used = {"names": names(experiment), "code": code_of(installed_sources(), experiment, names(experiment))}
    return Record(
        **{"experiment": experiment, "data": "MQ2008/Fold1", "folds": (1,), "files": "", **known, **used, **changed}
    )


def stored(folder, made, report="report.md"):
    (folder / made.experiment).mkdir(parents=True, exist_ok=True)
    (folder / made.experiment / report).write_text("# a report\n")
    (folder / made.experiment / report).with_suffix(".json").write_text(made.model_dump_json())


@pytest.fixture
def edited(tmp_path):
    """The digests of an experiment's code after edits of files: a text of each replaced by another."""
    for package, root in ROOTS.items():
        shutil.copytree(root, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))

    def changed(experiment, file, old, new):
        path = tmp_path / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        found = code_of(Sources({package: tmp_path / package for package in ROOTS}), experiment, names(experiment))
        path.write_text(text)
        before = code_of(installed_sources(), experiment, names(experiment))
        return sorted(name for name in found | before if found.get(name) != before.get(name))

    return changed


FPDGD = "foltr_research/reproductions/experiments/fpdgd_sizes.py"


@pytest.mark.parametrize(
    ("file", "old", "new", "modules"),
    [
        ("foltr.core/learning/pdgd.py", "def pdgd_step(", "# a comment\ndef pdgd_step(", []),
        ("foltr.core/aggregation/krum.py", "def krum(", "_MORE = 1\n\n\ndef krum(", []),
        ("foltr.core/aggregation/rules.py", "return krum(rows, m)", "return krum(rows, m + 1)", []),
        ("foltr.core/learning/ips.py", "return propensities", "return 2 * propensities", []),
        ("foltr.core/learning/pdgd.py", "last_click + 2", "last_click + 3", ["foltr.core/learning/pdgd.py"]),
        ("foltr_research/simulation/own_method.py", "learning_rate: Rate = 0.1", "learning_rate: Rate = 0.2", []),
        (FPDGD, "For the same number of rounds, the larger the batch the better", "The larger the better", []),
        (FPDGD, '"FPDGD by the number of clients, with and without noise"', '"FPDGD by clients"', []),
        (FPDGD, 'increasing("offline-mean"', 'increasing("offline"', [FPDGD]),
        (FPDGD, '_BATCHES = ("2", "4", "8")', '_BATCHES = ("2", "4", "16")', [FPDGD]),
        ("foltr_research/reproductions/claims.py", "return self.mean > 0.0 and", "return self.mean >= 0.0 and", None),
    ],
)  # fmt: skip
def test_a_report_depends_on_its_own_code(edited, file, old, new, modules):
    """On its learner, rule, grid and criteria; not on comments, texts, or what others use, such as plug-ins."""
    module = file.removesuffix(".py").replace("/", ".")
    expected = [module] if modules is None else [one.removesuffix(".py").replace("/", ".") for one in modules]
    assert edited("thesis-3.9", file, old, new) == expected


def test_every_experiment_is_found_in_the_source():
    """One that is written another way would have no code of its own."""
    assert records.experiments_in(installed_sources()).keys() == {one.base or one.name for one in EXPERIMENTS.values()}


def test_a_rule_that_is_used_counts(edited):
    """The change that leaves an experiment without Krum alone makes one with it stale."""
    change = ("foltr.core/aggregation/rules.py", "return krum(rows, m)", "return krum(rows, m + 1)")
    assert edited("thesis-5.4", *change) == ["foltr.core.aggregation.rules"]


def test_a_check_names_what_changed(tmp_path):
    """Fresh, changed, without a record, of an experiment that is gone, from before, and made by a plug-in."""
    made = record()
    changed = {**made.code, "foltr.core.learning.pdgd": "0" * 16, "foltr.core.learning.gone": "1" * 16}
    stored(tmp_path, made, "fresh.md")
    stored(tmp_path, made.model_copy(update={"code": changed}), "changed.md")
    stored(tmp_path, made.model_copy(update={"code": {}}), "before.md")
    stored(tmp_path, made.model_copy(update={"outside": ("foltr.core.aggregation.rules.krum",)}), "patched.md")
    stored(tmp_path, made.model_copy(update={"experiment": "thesis-9.9"}))
    (tmp_path / "thesis-3.9" / "bare.md").write_text("# a report\n")
    found = {one.path.stem: one for one in check_reports(tmp_path)}
    assert found.pop("fresh").reason is None
    assert found["changed"].modules == ("foltr.core.learning.gone", "foltr.core.learning.pdgd")
    assert {name: one.reason for name, one in found.items()} == {
        "changed": "its code has changed",
        "before": "it is from before code was recorded",
        "patched": "it was made with code of others: foltr.core.aggregation.rules.krum",
        "bare": "it has no record of its code",
        "report": "its experiment is gone",
    }
    with pytest.raises(SettingsError, match="it has no report"):
        list(check_reports(tmp_path / "thesis-3.9"))


def test_other_versions_of_libraries_do_not_make_it_stale(tmp_path):
    """They are recorded to explain a difference; the same program is expected to have the same verdicts."""
    stored(tmp_path, record(versions={"numpy": "1.0.0"}))
    assert [one.reason for one in check_reports(tmp_path)] == [None]


def test_data_is_its_content(tmp_path):
    """Files that are copied or touched are the same data; a changed row of a fold that was used is not."""
    data = tmp_path / "data" / "MQ2008"
    for fold in (1, 2):
        (data / f"Fold{fold}").mkdir(parents=True)
        (data / f"Fold{fold}" / "train.txt").write_text("1 qid:1 1:0.5\n")
    stored(tmp_path / "reports", record(files=data_digest(data, (1,))))

    def reason():
        return next(check_reports(tmp_path / "reports", tmp_path / "data")).reason

    assert reason() is None
    (data / "Fold2" / "train.txt").write_text("2 qid:1 1:0.5\n")
    (data / "Fold1" / "train.txt").write_text("1 qid:1 1:0.5\n")
    assert reason() is None
    (data / "Fold1" / "train.txt").write_text("2 qid:1 1:0.5\n")
    assert reason() == "its data has changed, or is not there"
    assert data_digest(tmp_path / "nowhere", ()) == ""


def test_the_commit_says_whether_there_were_other_changes(tmp_path, monkeypatch):
    """None outside a checkout, as of an installed wheel."""
    monkeypatch.setattr(records, "__file__", str(tmp_path / "records.py"))
    assert checkout_commit() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    (tmp_path / "a").write_text("1")
    for words in (["init", "-q"], ["add", "a"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = checkout_commit()
    assert len(commit) == 40
    (tmp_path / "a").write_text("2")
    assert checkout_commit() == f"{commit}+"


def test_stored_reports_are_those_of_this_program():
    """A report that has become stale is made again, by the command that the check prints."""
    stale = [one for one in check_reports(RESULTS) if one.reason is not None]
    told = [f"{one.path.relative_to(RESULTS)}: {one.reason} {' '.join(one.modules)}" for one in stale]
    assert not told, "stale: run `foltr reproduce check research/results`\n" + "\n".join(told)
