"""A log in the published form is read query by query, in the order of time."""

import gzip
import itertools
import tracemalloc

import numpy as np
import pytest
from made_logs import BEGIN, WIDTH, query, write_published

import foltr_research as fr
from foltr.core.data.letor_lines import normalise_by_query
from foltr.core.errors import DataError
from foltr_research.simulation.logged_clicks.aol4foltr import AOL4FOLTR, LogFormat, most_active_users

FORM = LogFormat(n_features=WIDTH)


def published(folder, n=10, **how):
    """Queries of three users, two each second."""
    queries = [query(BEGIN + i // 2, str(7 + i % 3), 100 + i) for i in range(n)]
    write_published(folder, queries, **how)
    return queries


def test_files_become_the_log(tmp_path):
    """Users, times, clicks and features scaled by query; the last fifth is for measuring."""
    queries = published(tmp_path)
    log = fr.AolLog(tmp_path, form=FORM)
    read = list(log)
    assert [one[:3] for one in read] == [one[:3] for one in queries[:8]]
    for one, wanted in zip(read, queries, strict=False):
        np.testing.assert_array_equal(one.relevance, wanted.relevance)
        raw = np.array(wanted.features.tolist())
        np.testing.assert_array_equal(one.features, normalise_by_query(raw, np.array([0, len(raw)])))
    assert log.test.query_ids.tolist() == [108, 109]
    assert log.test.relevance.sum() == 2
    assert next(iter(log)).query_id == 100


def test_the_compressed_file_is_read_too(tmp_path):
    """As it is published."""
    published(tmp_path)
    wanted = [one.query_id for one in fr.AolLog(tmp_path, form=FORM)]
    plain = tmp_path / "letor.txt"
    (tmp_path / "letor.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert [one.query_id for one in fr.AolLog(tmp_path, form=FORM)] == wanted


def test_only_chosen_users_are_replayed(tmp_path):
    """Such as the most active ones; the split is by their queries."""
    published(tmp_path)
    assert most_active_users(tmp_path, 2) == ["7", "8"]
    log = fr.AolLog(tmp_path, {"7"}, form=FORM)
    assert [one.query_id for one in log] == [100, 103, 106]
    assert log.test.query_ids.tolist() == [109]


def test_queries_without_documents_are_left_out(tmp_path):
    """And queries of one second may be in another order."""
    queries = published(tmp_path, without=[103, 104])
    lines = (tmp_path / "letor.txt").read_text().splitlines(keepends=True)
    blocks = [list(block) for _, block in itertools.groupby(lines, lambda line: line.split()[1])]
    blocks[0], blocks[1] = blocks[1], blocks[0]
    (tmp_path / "letor.txt").write_text("".join(itertools.chain(*blocks)))
    assert [one.query_id for one in fr.AolLog(tmp_path, form=FORM)] == [101, 100, 102, 105, 106, 107]
    assert queries[0].time == queries[1].time


def test_test_queries_are_spread_over_the_last_ones(tmp_path):
    """Not more than asked for."""
    published(tmp_path, n=50)
    log = fr.AolLog(tmp_path, test_share=0.4, most_test_queries=5, form=FORM)
    assert log.test.query_ids.tolist() == [130, 134, 138, 142, 146]


def test_a_replay_of_files_learns(tmp_path):
    """From the loader to the curve."""
    published(tmp_path, n=60)
    replay = fr.replay(fr.AolLog(tmp_path, form=FORM), interactions=2, min_clients=2)
    assert replay.lists_shown == 48
    assert replay.curve.values[-1] > replay.curve.values[0]


def test_memory_does_not_grow_with_the_files(tmp_path):
    """Neither while the log is read nor while its test queries are looked for."""
    published(tmp_path, n=3_000)
    log = fr.AolLog(tmp_path, most_test_queries=2, form=FORM)
    tracemalloc.start()
    assert sum(1 for _ in log) == 2_400
    assert log.test.n_queries == 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * (tmp_path / "letor.txt").stat().st_size


def test_the_published_form():
    """All that is assumed of the files is in one record."""
    assert LogFormat("metadata.csv", "qid", "user_id", "timestamp", "letor.txt", 103) == AOL4FOLTR


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        ("metadata.csv", lambda text: text.replace("user_id", "user"), "no column user_id"),
        (
            "metadata.csv",
            lambda text: text.replace("2006-03-01 00:00:01", "noon"),
            r"metadata\.csv:4: .*noon.* such as",
        ),
        ("metadata.csv", lambda text: text.replace("2006-03-01 00:00:01", "2006-02-01"), "sort both files by time"),
        ("metadata.csv", lambda text: text.replace("\n101,", "\n901,"), "query 101 of letor.txt is not at its place"),
        ("letor.txt", lambda text: text.replace("qid:102", "id:102"), "in place of qid:<integer>"),
        ("letor.txt", lambda text: text.replace("qid:100 1:", "qid:100 one:"), "query 100: 'one:.* is not <feature>"),
        ("letor.txt", lambda text: text.replace("qid:100 1:0", "qid:100 1:0 99:0"), "expected rising feature numbers"),
        ("letor.txt", lambda text: text.replace("\n", " 9:1\n", 1), "it has feature 9; expected 6"),
    ],
)
def test_a_file_of_another_form_is_named(tmp_path, file, change, told):
    """With the place and what was expected."""
    published(tmp_path)
    path = tmp_path / file
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=told):
        list(fr.AolLog(tmp_path, form=FORM))


def test_missing_files_are_named(tmp_path):
    """Either of them."""
    with pytest.raises(DataError, match=r"metadata\.csv: cannot be read"):
        list(fr.AolLog(tmp_path))
    published(tmp_path)
    (tmp_path / "letor.txt").unlink()
    with pytest.raises(DataError, match=r"letor\.txt: cannot be read"):
        list(fr.AolLog(tmp_path, form=FORM))
