"""``foltr simulate``, ``foltr sweep`` and ``foltr methods`` as a user sees them."""

import csv
import json
import shlex
import signal
import sys

import pytest
from cli.commands import foltr, foltr_fresh, foltr_process, start
from cli.snippets import blocks
from support.waiting import PATIENCE_S

from foltr.cli import main
from foltr.core.aggregation.rule_spec import PRE_STEPS, RULES, read_rule
from foltr.core.methods.preconditions import least_updates
from foltr.core.methods.registry import METHODS
from foltr_research.attacks.registry import ATTACKS
from foltr_research.cli.simulate import describe_exclusions
from foltr_research.simulation import federated

SMALL = ("--clients", "3", "--interactions", "2", "--rounds", "3", "--eval-every", "2")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder to work in, and none of the settings of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for variable in ("FOLTR_DATASET", "FOLTR_SEED", "FOLTR_AGGREGATION", "FOLTR_BYZANTINE"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def command(monkeypatch, capsys, *words: str) -> tuple[int, str]:
    """The exit code of a command in this process, and all it printed."""
    monkeypatch.setattr(sys, "argv", ["foltr", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out + printed.err


def test_the_commands_of_the_document_run(tmp_path):
    """docs/simulation.md, from the first command to the last, each with processes of its own."""
    for line in filter(None, "\n".join(blocks("docs/simulation.md", "sh")).splitlines()):
        # What starts processes for itself cannot be forked from one with everything imported.
        run = foltr_fresh if line.startswith("foltr sweep") else foltr_process
        done = run(*shlex.split(line)[1:], cwd=tmp_path, timeout_s=PATIENCE_S)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    result = json.loads((tmp_path / "result.json").read_text())
    assert [point["round"] for point in result["ndcg_at_10"]] == [0, 10, 20]
    assert {"online_ndcg", "interactions_per_second", "config", "privacy", "bytes", "data"} <= set(result)
    with (tmp_path / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["method"], row["clicks"], row["seed"]) for row in rows}) == 8


def test_the_result_is_that_of_its_configuration(here, monkeypatch, capsys):
    """The options make the configuration; figures on the screen are those in the file."""
    options = ("--method", "fedprox", "--set", "mu=0.5", "--participants", "2", "--clicks", "perfect,poison")
    code, printed = command(monkeypatch, capsys, "simulate", *SMALL, *options, "--json", "r.json", "--out", "r.csv")
    assert code == 0, printed
    result = json.loads((here / "r.json").read_text())
    config = result["config"]
    assert (config["parameters"], config["participants"], config["clicks"]) == ({"mu": 0.5}, 2, ["perfect", "poison"])
    assert f"{result['ndcg_at_10'][-1]['value']:.4f} after 3 rounds" in printed
    assert "round 0/3" in printed
    assert "synthetic" in printed
    with (here / "r.csv").open(newline="") as file:
        assert [row["round"] for row in csv.DictReader(file)] == ["0", "2", "3"]


def test_secure_sums_say_what_they_promise(here, monkeypatch, capsys):
    """On the screen and in the results; their settings want them, and say so of the paper's epsilon, too."""
    options = [
        "--privacy",
        "secure",
        "--mechanism",
        "gamma",
        "--epsilon",
        "4",
        "--participations",
        "2",
        "--helpers",
        "3",
    ]
    _, printed = command(monkeypatch, capsys, "simulate", *SMALL, *options)
    assert "Privacy: secure sums of 3 helpers, gamma: epsilon 4 with delta 1e-06 for 2 participations" in printed
    assert "Norm proofs: 3 checked, 0 failed\n" in printed
    without = [*options, "--norm-proof", "none"]
    code, printed = command(monkeypatch, capsys, "simulate", *SMALL, *without, "--json", "result.json")
    assert code == 0, printed
    assert "Privacy: secure sums of 3 helpers, gamma: epsilon 4 for 2 participations" in printed
    assert "Norm proofs" not in printed
    privacy = json.loads((here / "result.json").read_text())["privacy"]
    expected = {"mode": "secure", "mechanism": "gamma", "epsilon": 4.0, "delta": 0.0, "participations": 2, "helpers": 3}
    assert {name: privacy[name] for name in expected} == expected
    code, printed = command(monkeypatch, capsys, "simulate", *SMALL, "--method", "fpdgd-paper", "--epsilon", "4")
    assert (code, "fpdgd-paper has its own among its parameters" in printed) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--clicks", "prefect"], "unknown click model 'prefect'"),
        (["--fold", "2"], "fold 2"),
        (["--set", "rate"], "not name=value"),
        (["--population", "type9"], "population:"),
        (["--population", "type2", "--clients", "3"], "multiple of 5"),
        (["--resume"], "--checkpoint"),
        (["--json", "no/where.json"], "the folder no"),
        (["--out", "rows.txt"], ".parquet or .csv"),
        (["--json", "folder.csv"], "--json: folder.csv: this is a folder"),
        (["--checkpoint", "folder.csv"], "--checkpoint: folder.csv: this is a folder"),
        (["--out", "folder.csv"], "folder.csv: this is a folder"),
        (["--data", "synthetic-intents"], "add --population type1"),
        (["--population", "type1"], "--data synthetic-intents or a folder with 1.txt to 4.txt"),
        (["--attack", "lie"], "add --attackers and their number"),
        (["--attackers", "1"], "`foltr attacks list` lists all"),
        (["--attack", "lie", "--attackers", "1", "--attack-set", "z"], "--attack-set: "),
    ],
)
def test_wrong_settings_are_one_line(here, monkeypatch, capsys, words, told):
    """Exit code 2 and what is allowed, before the first round."""
    (here / "folder.csv").mkdir()
    code, printed = command(monkeypatch, capsys, "simulate", *SMALL, *words)
    assert code == 2, printed
    (line,) = [line for line in printed.splitlines() if line.startswith("error:")]
    assert told in line
    assert "Traceback" not in printed
    assert "round 0" not in printed


def test_a_folder_without_permission_is_one_line(here, monkeypatch, capsys):
    """Before the first round, whoever runs the tests."""
    monkeypatch.setattr("os.access", lambda path, _mode: path != here)
    for option in ("--json", "--checkpoint", "--out"):
        code, printed = command(monkeypatch, capsys, "simulate", *SMALL, option, "new.csv")
        assert (code, "no permission" in printed, "round 0" in printed) == (2, True, False), printed


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--json", "gone/r.json"], "on standard output"),
        (["--out", "gone/r.csv"], "on standard output"),
        (["--json", "gone/r.json", "--out", "gone/r.csv"], "on standard output"),
        (["--json", "r.json", "--out", "gone/r.csv"], "in the other file"),
    ],
)
def test_a_result_that_cannot_be_written_is_not_lost(here, monkeypatch, capsys, options, where):
    """The folder went away during the run: one line, and the result as JSON on standard output or in the other file."""
    (here / "gone").mkdir()
    finished = federated.run

    def run(*arguments, **options):
        result = finished(*arguments, **options)
        (here / "gone").rmdir()
        return result

    monkeypatch.setattr(federated, "run", run)
    monkeypatch.setattr(sys, "argv", ["foltr", "simulate", *SMALL, *options])
    with pytest.raises(SystemExit) as ended:
        main.main()
    printed = capsys.readouterr()
    assert ended.value.code == 2
    (line,) = printed.err.splitlines()
    assert where in line
    kept = (here / "r.json").read_text() if "r.json" in options else printed.out[printed.out.index("\n{") :]
    assert json.loads(kept)["config"]["rounds"] == 3


def test_wrong_data_is_one_line(here, monkeypatch, capsys):
    """A folder that is not there is a wrong setting, exit code 2; a test set in which nothing is relevant fails, 1."""
    code, printed = command(monkeypatch, capsys, "simulate", *SMALL, "--data", "nothing")
    assert code == 2
    assert "nothing" in printed
    (here / "data").mkdir()
    (here / "data" / "train.txt").write_text("".join(f"{i % 3} qid:1 1:{i} 2:{i * i}\n" for i in range(9)))
    (here / "data" / "test.txt").write_text("".join(f"0 qid:2 1:{i} 2:{i}\n" for i in range(9)))
    code, printed = command(monkeypatch, capsys, "simulate", *SMALL, "--data", "data")
    assert code == 1
    assert "no relevant document" in printed


def test_methods_rules_and_attacks_are_listed(monkeypatch, capsys):
    """All of them, with what they need and their parameters; as JSON with the defaults of these."""
    code, printed = command(monkeypatch, capsys, "methods", "--json")
    assert code == 0
    rows = {row["method"]: row for row in json.loads(printed)}
    assert {name for name, row in rows.items() if "package" not in row} == set(METHODS)
    assert rows["fpdgd"]["parameters"]["learning_rate"] == "0.1"
    _, printed = command(monkeypatch, capsys, "methods")
    assert all(f"{name}: " in printed for name in METHODS)
    assert "    --set personal_learning_rate=0.2\n" in printed, "names and values are whole, however narrow the screen"
    code, printed = command(monkeypatch, capsys, "rules", "--json")
    assert code == 0
    rules = {row["rule"]: row for row in json.loads(printed)}
    assert list(rules) == [*RULES, *PRE_STEPS]
    assert rules["krum"]["least_clients"] == 5
    assert "beta" in rules["trimmed-mean"]["parameters"]
    _, printed = command(monkeypatch, capsys, "rules")
    assert "\nkrum (n >= 2m + 3; from 5 updates): " in printed
    assert "    --aggregation-set bucket_size=VALUE, default 2\n" in printed
    code, printed = command(monkeypatch, capsys, "attacks", "list", "--json")
    assert code == 0
    assert [row["attack"] for row in json.loads(printed)] == list(ATTACKS)
    _, printed = command(monkeypatch, capsys, "attacks", "list")
    assert "    --attack-set epsilon=0.1\n" in printed


def test_an_attack_and_a_defence(here, monkeypatch, capsys):
    """The options make the configuration; the report says who attacked, what became of updates, what votes did."""
    options = ("--aggregation", "nnm+krum", "--byzantine", "1", "--aggregation-set", "beyond_bounds=true")
    options += ("--fallback", "abandon", "--attack", "lie", "--attackers", "1", "--attack-set", "z=2")
    code, printed = command(monkeypatch, capsys, "simulate", *SMALL, "--clients", "4", *options, "--json", "r.json")
    assert code == 0, printed
    result = json.loads((here / "r.json").read_text())
    config = result["config"]
    assert (config["aggregation"], config["byzantine"], config["aggregation_fallback"]) == ("nnm+krum", 1.0, "abandon")
    assert config["aggregation_parameters"] == {"beyond_bounds": True}
    assert (config["attack"], config["attackers"], config["attack_parameters"]) == ("lie", 1, {"z": 2})
    assert "Attackers: device-001" in printed
    assert "Rounds that had too few updates for the rule's promise: 3" in printed
    assert result["robustness"]["beyond_bounds_rounds"] == 3
    options = ("--data", "synthetic", "--clicks", "perfect", "--rounds", "9", "--eval-every", "9", "--take-back")
    options += ("--attackers", "4", "--liars-vote", "worse")
    code, printed = command(monkeypatch, capsys, "simulate", *options, "--json", "r.json")
    assert code == 0, printed
    decisions = json.loads((here / "r.json").read_text())["robustness"]["decisions"]
    assert [made["verdict"] for made in decisions] == ["move_anchor"]
    assert f"Votes: the anchor moved in round {decisions[0]['round']}\n" in printed


def test_whom_the_adaptive_rule_left_out_is_one_line():
    """A few names with their rounds; to a last one if they were counted again in the end."""

    def left_out(*findings):
        names = ("round", "kind", "client", "detail")
        found = [dict(zip(names, (number, f"defence_{kind}", who, ""), strict=True)) for number, kind, who in findings]
        return describe_exclusions(found, 40)

    assert left_out((9, "raised", None)) == "adaptive found nobody in 40 rounds"
    told = left_out((12, "raised", "a"), (20, "lowered", "a"), (20, "raised", "b"), (32, "proposed", "a"))
    assert told == "adaptive left out: a from round 12 to 19, b from round 20"
    again = left_out((3, "raised", "a"), (5, "lowered", "a"), (9, "raised", "a"))
    assert again == "adaptive left out: a from round 3"
    first = ", ".join(f"c{i} from round {i}" for i in range(1, 6))
    assert left_out(*((i, "raised", f"c{i}") for i in range(1, 8))) == f"adaptive left out: {first} and 2 more"


@pytest.mark.usefixtures("here")
def test_the_rule_is_told(monkeypatch, capsys):
    """Also where it found nobody, which is else no different from no rule at all; a plain mean needs no word."""
    for rule, words in (
        ("adaptive", "Rule: adaptive\nadaptive found nobody in 3 rounds\n"),
        ("median", "Rule: median\n"),
    ):
        _, printed = command(monkeypatch, capsys, "simulate", *SMALL, "--clients", "4", "--aggregation", rule)
        assert words in printed
    assert "Rule:" not in command(monkeypatch, capsys, "simulate", *SMALL)[1]


def test_rules_of_the_environment_count(here, monkeypatch, capsys):
    """As for a federator; an option wins."""
    monkeypatch.setenv("FOLTR_AGGREGATION", "median")
    monkeypatch.setenv("FOLTR_BYZANTINE", "1")
    command(monkeypatch, capsys, "simulate", *SMALL, "--json", "r.json")
    assert json.loads((here / "r.json").read_text())["config"]["aggregation"] == "median"
    command(monkeypatch, capsys, "simulate", *SMALL, "--aggregation", "mean", "--json", "r.json")
    assert json.loads((here / "r.json").read_text())["config"]["aggregation"] == "mean"


def test_the_conditions_of_rules_are_those_that_are_checked(monkeypatch, capsys):
    """Each formula gives the fewest updates that the rule takes, for several m; no formula means any number."""
    _, printed = command(monkeypatch, capsys, "rules", "--json")
    for row in json.loads(printed):
        if row["rule"] == "bucketing":
            continue
        for m in (1, 2, 3, 7):
            rule = f"{row['rule']}+mean" if row["rule"] in PRE_STEPS else row["rule"]
            formula = (row["needs"] or "n >= 1").removeprefix("n >= ").removesuffix(" and what its rule needs")
            slope, _, offset = formula.replace(" * beta", "m").rpartition("m + ")
            assert least_updates(read_rule(rule, byzantine=m)) == int(slope or 0) * m + int(offset), row


def test_a_failed_run_of_a_sweep_shows(here, monkeypatch, capsys):
    """Its row has the error, and the other run is there; a row is what `foltr simulate` says of the same settings."""
    words = ("sweep", *SMALL, "--vary", "method=fpdgd,fedper", "--out", "sweep.csv")
    code, printed = command(monkeypatch, capsys, *words)
    assert code == 1
    assert "run 2/2  method=fedper seed=1  failed: fedper: a linear ranker" in printed
    with (here / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["fpdgd", "fpdgd", "fpdgd", "fedper"]
    assert "linear ranker" in rows[-1]["error"]
    assert len(list((here / "sweep.csv.runs").glob("*.json"))) == 2
    command(monkeypatch, capsys, "sweep", *SMALL, "--seeds", "1,2", "--vary", "learning-rate=0.1,0.3", "--out", "s.csv")
    command(monkeypatch, capsys, "simulate", *SMALL, "--seed", "2", "--set", "learning_rate=0.3", "--out", "r.csv")
    tables = []
    for name in ("s.csv", "r.csv"):
        with (here / name).open(newline="") as file:
            tables.append([row for row in csv.DictReader(file) if row["seed"] == "2" and "0.3" in row["parameters"]])
    for swept, single in zip(*tables, strict=True):
        assert {**swept, "interactions_per_second": ""} == {**single, "interactions_per_second": "", "error": ""}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--vary", "seed"], "not NAME=VALUE"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--backend dask or ray"),
        (["--vary", "data.foo=1"], "data.foo: no field or parameter has this name"),
        (["--vary", "seed=3,4", "--seeds", "1"], "--vary seed: use --seeds 3,4"),
        (["--choose-by", "validation", "--vary", "clicks=perfect,poison"], "--choose-by: nothing to choose"),
        (["--metric", "err@10,ndgc@5"], "metric: unknown 'ndgc@5'; known are ndcg, mrr, err, map, maxrr"),
        (["--folds", "1", "--vary", "fold=2"], "--vary fold: use --folds 2"),
        (["--vary", "method=fpdgd", "--vary", "method=pdgd"], "--vary method=VALUE,VALUE with all values"),
        (["--vary", "rounds=1,2"], "--rounds sets one value"),
        (["--set", "learning_rate=1", "--vary", "learning-rate=0.1,1"], "--set learning_rate sets one value"),
        (["--set", "foo=1"], "foo: fpdgd has no such parameter"),
        (["--attack-set", "z=1", "--vary", "attack_parameters.z=1,2"], "--attack-set z sets one value"),
        (["--vary", "clicks=prefect,fedips-500"], "unknown click model 'prefect'"),
        (["--seeds", "3-1"], "--seeds: '3-1' is neither a number nor a range such as 1-3"),
        (["--folds", "1,x"], "--folds: 'x' is neither"),
        (["--plot", "figure.txt"], "figures are written as .png, .svg, .pdf"),
        (["--plot", "no/figure.png"], "--plot: no/figure.png: "),
        (["--out", "folder.csv"], "folder.csv: this is a folder"),
        (["--out", "taken.csv"], "taken.csv.runs is a file; expected a folder"),
    ],
)
def test_wrong_sweeps_are_one_line(here, monkeypatch, capsys, words, told):
    """Exit code 2 and what to do instead, before the first run."""
    (here / "folder.csv").mkdir()
    (here / "taken.csv.runs").write_text("")
    code, printed = command(monkeypatch, capsys, "sweep", *SMALL, "--out", "sweep.csv", *words)
    assert code == 2, printed
    (line,) = [line for line in printed.splitlines() if line.startswith("error:")]
    assert told in line
    assert "run 1/" not in printed


def test_a_sweep_tells_its_means_and_draws_them(here, monkeypatch, capsys):
    """Of each combination over the seeds, with the interval; the figure has a line for each."""
    words = ("sweep", *SMALL, "--vary", "clicks=perfect,poison", "--out", "s.csv", "--plot", "s.svg")
    code, printed = command(monkeypatch, capsys, *words, "--seeds", "1-2,4", "--metric", "mrr@3")
    assert code == 0, printed
    with (here / "s.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["clicks"], row["round"]) == ("poison", "3")]
    assert [row["seed"] for row in rows] == ["1", "2", "4"]
    mean = sum(float(row["ndcg_at_10"]) for row in rows) / 3
    assert f"poison nDCG@10 {mean:.4f} (" in printed
    mean = sum(float(row["mrr@3"]) for row in rows) / 3
    assert f"poison mrr@3 {mean:.4f} (" in printed
    assert printed.count(", round 3, 3 runs\n") == 2 * 2
    assert "Figure: s.svg" in printed
    assert "<svg" in (here / "s.svg").read_text()


def test_a_table_that_cannot_be_written_keeps_the_runs(here, monkeypatch, capsys):
    """One line that says where they are; the same command then only writes."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    words = ("sweep", *SMALL, "--out", "s.csv")
    with monkeypatch.context() as patched:
        patched.setattr("foltr_research.simulation.sweeps.tables._write", fail)
        code, printed = command(patched, capsys, *words)
    assert code == 2
    assert "s.csv: the rows cannot be written: No space left on device; the runs are kept in s.csv.runs" in printed
    (kept,) = (here / "s.csv.runs").glob("*.json")
    written = kept.stat().st_mtime_ns
    assert command(monkeypatch, capsys, *words)[0] == 0
    assert (here / "s.csv").is_file()
    assert kept.stat().st_mtime_ns == written


def test_a_stopped_simulation_goes_on(tmp_path):
    """A signal ends it after a round with a checkpoint; --resume ends with what an uninterrupted run has."""
    words = ("simulate", "--rounds", "1000", "--clients", "20", "--eval-every", "500")
    assert foltr(*words, "--json", "whole.json", cwd=tmp_path).returncode == 0
    whole = without_times(tmp_path / "whole.json")
    for number in (signal.SIGINT, signal.SIGTERM):
        kept = (*words, "--checkpoint", number.name)
        process = start(*kept, cwd=tmp_path)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("round 0/"):
                break
        process.send_signal(number)
        printed, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, printed
        assert "--resume" in printed
        other = foltr(*kept, "--resume", "--seed", "2", cwd=tmp_path)
        assert (other.returncode, "seed: 1 and 2" in other.stderr) == (2, True)
        assert foltr(*kept, "--resume", "--json", "resumed.json", cwd=tmp_path).returncode == 0
        assert without_times(tmp_path / "resumed.json") == whole


def without_times(file):
    """The result of a run, but for how long it took."""
    result = json.loads(file.read_text())
    del result["seconds"], result["interactions_per_second"]
    return result
