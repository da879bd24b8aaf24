"""An experiment runs end to end, keeps what is finished, and refuses data and settings it cannot use."""

import pytest
from made_results import profile

from foltr.core.errors import DataError, FoltrError, SettingsError
from foltr_research.reproductions.checks import higher
from foltr_research.reproductions.claims import Claim, Status
from foltr_research.reproductions.experiment import Experiment, Table, Variant
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.harness import check_data, plan, profile_data, reproduce
from foltr_research.reproductions.records import Record
from foltr_research.reproductions.sizes import Size, read_seeds
from foltr_research.simulation.config import SimulationConfig

pytest.importorskip("matplotlib", reason="figures are drawn by matplotlib, in the extra figures")


def grid(scale, _data):
    rounds = 3 if scale == "quick" else 6
    return [
        Variant(
            {"method": method, "clicks": "perfect"},
            SimulationConfig(method=method, clients=2, interactions=2, rounds=rounds, eval_every=2),
        )
        for method in ("fpdgd", "pdgd")
    ]


TINY = Experiment(
    name="tiny",
    title="two methods",
    source="nowhere",
    setting="none.",
    grid=grid,
    seeds={"quick": 2, "full": 4},
    figures=(Figure("offline.png", "offline", ("method",)), Figure("maxrr.png", "max_rr", ("method",))),
    tables=(Table("Final nDCG@10", "offline", ("method",)),),
    claims=(Claim("pdgd is better", "nowhere", "higher", higher("offline", {"method": "pdgd"}, {"method": "fpdgd"})),),
)


def test_reproduces_end_to_end(tmp_path):
    """Figures, tables, numbers and report are written, and the claim has a verdict from four real runs."""
    progress = []
    done = reproduce(TINY, "synthetic", tmp_path, on_done=lambda n_done, n_all: progress.append((n_done, n_all)))
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert done.folder == tmp_path / "tiny"
    assert {path.name for path in done.folder.iterdir()} == {
        *("offline.png", "maxrr.png", "runs.csv", "curves.csv", "report.md", "report.json")
    }
    record = Record.model_validate_json((done.folder / "report.json").read_text(encoding="utf-8"))
    assert (record.data, record.options, record.files) == ("synthetic", "--scale quick --seeds 2", "")
    assert record.interactions == 2 * 2 * 3 * 4
    assert record.seconds >= 0
    assert "foltr.core.learning.pdgd" in record.code
    assert {"config.method=fpdgd", "config.method=pdgd"} < set(record.names)
    assert done.verdicts[0][1].status in {Status.CONFIRMED, Status.NOT_CONFIRMED}
    assert "100 training queries" in (done.folder / "report.md").read_text(encoding="utf-8")


def test_more_metrics_repeat_the_first_table(tmp_path):
    """Each run measures them; the report has a table for each and the command that makes it again."""
    done = reproduce(TINY, "synthetic", tmp_path, Size(seeds=1, metrics=("err@10", "ndcg@10")))
    text = (done.folder / "report.md").read_text(encoding="utf-8")
    tables = text.split("\n## ")
    again = next(part for part in tables if part.startswith("err@10 on the test queries after the last round"))
    assert "| fpdgd | 0." in again
    first, same = (next(part for part in tables if part.startswith(name)) for name in ("Final nDCG@10", "ndcg@10 on"))
    assert first.splitlines()[4:] == same.splitlines()[4:]
    assert "--seeds 1 --metric err@10,ndcg@10`" in text
    with pytest.raises(SettingsError, match="metric: unknown 'fast'"):
        reproduce(TINY, "synthetic", tmp_path, Size(metrics=("fast",)))


def test_equal_configurations_run_once(tmp_path):
    """Two variants that are the same run share its result; a failure is one line, and the other results are kept."""

    def twice(_scale, _data):
        config = SimulationConfig(clients=2, interactions=2, rounds=2)
        return [Variant({"method": name, "clicks": "perfect"}, config) for name in ("pdgd", "fpdgd")]

    calls = []
    same = Experiment("same", "t", "s", "x", twice, {"quick": 2, "full": 2}, claims=TINY.claims)
    done = reproduce(same, "synthetic", tmp_path, on_done=lambda *call: calls.append(call))
    assert calls == [(1, 2), (2, 2)]
    assert done.verdicts[0][1].found == "perfect +0.000 ± 0.000"

    def broken(_scale, _data):
        good = SimulationConfig(clients=2, interactions=2, rounds=2)
        bad = good.changed(population="type2")
        return [Variant({"method": "good"}, good), Variant({"method": "bad"}, bad)]

    experiment = Experiment("broken", "t", "s", "x", broken, {"quick": 1, "full": 1})
    with pytest.raises(FoltrError, match=r"1 of 2 runs failed, first bad, seed 1: .*multiple of 5"):
        reproduce(experiment, "synthetic", tmp_path)
    assert len(list((tmp_path / "runs").glob("*.json"))) >= 1


def test_unknown_scale_and_no_seeds(tmp_path):
    """Seed i runs on fold i, and round again; wrong words are one line each, before anything runs."""
    with pytest.raises(SettingsError, match="scale: 'huge' is neither quick nor full"):
        reproduce(TINY, "synthetic", tmp_path, Size("huge"))
    with pytest.raises(SettingsError, match="seeds: 0"):
        reproduce(TINY, "synthetic", tmp_path, Size(seeds=0))
    planned = plan(TINY, "full", profile(folds=(1, 2, 3)), 4)
    assert [(one.config.seed, one.config.fold) for one in planned[:4]] == [(1, 1), (2, 2), (3, 3), (4, 1)]
    assert {one.config.data for one in planned} == {"synthetic"}


@pytest.mark.parametrize(
    ("needs", "data", "said"),
    [
        ({"needs_intents": True}, profile(), "needs labels per intent"),
        ({}, profile(2, intents=True), "needs a learning-to-rank data set"),
        ({"needs_grades": 5}, profile(3), "needs 5 relevance grades; made has 3"),
    ],
)
def test_data_that_lacks_what_is_needed(needs, data, said):
    """Intents and grades are checked before anything runs."""
    with pytest.raises(DataError, match=said):
        check_data(Experiment("x", "t", "s", "x", grid, TINY.seeds, **needs), data)


def test_profile_of_folds(real_data):
    """Quick takes the first fold, full all; the name is the folder's, and queries without a relevant document count."""
    quick, full = (profile_data(str(real_data("MQ2008")), scale) for scale in ("quick", "full"))
    assert (quick.name, quick.folds, quick.n_grades) == ("MQ2008/Fold1", (1,), 3)
    assert (full.name, full.folds) == ("MQ2008", (1, 2, 3, 4, 5))
    assert (quick.n_test_evaluated, quick.n_test_queries, quick.n_features) == (105, 156, 46)
    assert profile_data(str(real_data("MQ2008") / "Fold1"), "full").name == "MQ2008/Fold1"
    assert profile_data("synthetic", "quick").name == "synthetic"


def test_seeds_are_a_number_or_a_list():
    """A number is how many; ranges and lists say which, each once."""
    assert [read_seeds(text) for text in ("5", "3,5,8", "1-3", "2-3,7", "4,")] == [
        5,
        (3, 5, 8),
        (1, 2, 3),
        (2, 3, 7),
        (4,),
    ]
    for text in ("", "a", "3-1", "1-2000", "-3"):
        with pytest.raises(SettingsError, match="give a number of seeds"):
            read_seeds(text)
    for seeds in ((), (3, 3), (0, 1)):
        with pytest.raises(SettingsError, match="different ones"):
            Size(seeds=seeds).of(TINY)
    assert Size(seeds=2, rounds=5).of(TINY).options == "--scale quick --seeds 2 --rounds 5"
    assert Size("full", (4,)).of(TINY).options == "--scale full --seeds 4,"


def test_chosen_seeds_rounds_and_clients_are_run(tmp_path):
    """The report and its record say what to type; a second one says how long it takes, and another what it replaces."""
    told = []
    size = Size(seeds=(2, 5), rounds=4, clients=3)
    for _ in range(2):
        done = reproduce(TINY, "synthetic", tmp_path, size, on_plan=told.append)
    text = (done.folder / "report.md").read_text(encoding="utf-8")
    assert "--scale quick --seeds 2,5 --rounds 4 --clients 3`" in text
    assert "3 clients in a round, 2 interactions each, 4 rounds" in text
    assert [one.status is Status.NOT_TESTABLE for _, one in done.verdicts] == [False]
    assert told[0] == "4 runs on synthetic, 96 interactions; a report at quick scale first lets it estimate the time"
    assert told[1] == "4 runs on synthetic, 96 interactions; about 1 minute"
    reproduce(TINY, "synthetic", tmp_path, Size(seeds=2, rounds=4, clients=3), on_plan=told.append)
    assert f"replaces the report on synthetic, {size.options}, whose runs stay in {tmp_path / 'runs'}" in told[2]


def test_a_size_that_cannot_answer_has_no_verdict(tmp_path):
    """Fewer rounds than at quick scale, or settings that become the same; runs of an experiment's own have no size."""
    done = reproduce(TINY, "synthetic", tmp_path, Size(seeds=2, rounds=2))
    assert [one.found for _, one in done.verdicts] == ["--rounds 2 is less than at quick scale"]

    def by_clients(_scale, _data):
        of = SimulationConfig(interactions=2, rounds=2)
        return [Variant({"method": str(n), "clicks": "perfect"}, of.changed(clients=n)) for n in (2, 4)]

    same = Experiment("same", "t", "s", "x", by_clients, TINY.seeds, claims=TINY.claims)
    done = reproduce(same, "synthetic", tmp_path, Size(seeds=2, clients=5))
    assert "some of the settings that it compares are the same" in done.verdicts[0][1].found
    with pytest.raises(SettingsError, match="only a scale and a number of seeds"):
        Size(rounds=9).of(Experiment("own", "t", "s", "x", grid, TINY.seeds, more=lambda *_: []))


def test_a_fold_without_a_file_is_found_before_the_runs(tmp_path):
    """At full scale each fold is used, and hours would pass before the last."""
    for fold in (1, 2):
        (tmp_path / f"Fold{fold}").mkdir()
        for name in ("train.txt", "test.txt"):
            (tmp_path / f"Fold{fold}" / name).write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    (tmp_path / "Fold2" / "test.txt").write_text("")
    with pytest.raises(DataError, match=r"Fold2: test.txt is missing or empty"):
        profile_data(str(tmp_path), "full")
    assert profile_data(str(tmp_path), "quick").folds == (1,)
