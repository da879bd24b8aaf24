"""Arrays of one's own are read like a folder with the same data, of any real type and in any order of rows."""

import numpy as np
import pytest

import foltr_research as fr
from foltr.core.data.letor import load_letor
from foltr.core.errors import DataError
from foltr_research.simulation.own_data import arrays_of, dataset_of, digest_of_arrays, load_own, takes_seed

SMALL = {"clients": 3, "interactions": 2, "rounds": 2}


def rows(n_queries=12, n_docs=5, n_features=3):
    """Features as whole numbers, grades and query ids."""
    rng = np.random.default_rng(3)
    n = n_queries * n_docs
    return rng.integers(0, 50, (n, n_features)), rng.integers(0, 3, n), np.repeat(np.arange(1, n_queries + 1), n_docs)


def write(path, features, relevance, queries):
    lines = (
        f"{grade} qid:{query} {' '.join(f'{i}:{value}' for i, value in enumerate(values, 1))}\n"
        for values, grade, query in zip(features, relevance, queries, strict=True)
    )
    path.write_text("".join(lines))


def test_arrays_give_the_result_of_their_folder(tmp_path):
    """Bit for bit: the same documents in LETOR files."""
    train, test = rows(), rows(6)
    write(tmp_path / "train.txt", *train)
    write(tmp_path / "test.txt", *test)
    folder, own = fr.simulate(data=str(tmp_path), **SMALL), fr.simulate(data=(train, test), **SMALL)
    np.testing.assert_array_equal(own.weights, folder.weights)
    np.testing.assert_array_equal(own.curve.values, folder.curve.values)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int8, np.uint16, np.int64, list])
def test_any_real_type_will_do(tmp_path, kind):
    """Also plain lists; features and grades are what a file says."""
    features, relevance, queries = rows()
    write(tmp_path / "letor.txt", features, relevance, queries)
    given = [part.tolist() if kind is list else part.astype(kind) for part in (features, relevance, queries)]
    found, read = dataset_of("own", arrays_of(tuple(given))), load_letor(tmp_path / "letor.txt")
    np.testing.assert_array_equal(found.features, read.features)
    np.testing.assert_array_equal(found.relevance, read.relevance)
    np.testing.assert_array_equal(found.offsets, read.offsets)
    np.testing.assert_array_equal(found.query_ids, read.query_ids)


def test_rows_of_a_query_may_be_apart():
    """Queries stand in the order of their first row, whose order is kept; ids may be words, grades yes and no."""
    features, queries = np.arange(5.0)[:, None], np.array(["b", "a", "b", "c", "a"], dtype=object)
    found = dataset_of("own", arrays_of((features, np.array([True, False, False, True, True]), queries)))
    assert found.offsets.tolist() == [0, 2, 4, 5]
    assert found.relevance.tolist() == [1, 0, 0, 1, 1]
    assert found.features[:, 0].tolist() == [0, 1, 0, 1, 0]
    assert found.query_ids.tolist() == [0, 1, 2]


def test_a_function_returns_them_and_may_ask_for_the_seed():
    """Of one triple each third query is for testing. Of a compiled function Python may not know the arguments."""
    assert load_own("own", lambda: rows(9), 7).train.n_queries == 6
    seeds = []
    load_own("own", lambda seed: seeds.append(seed) or (rows(3), rows(3)), 7)
    assert seeds == [7]
    assert not takes_seed(max)


@pytest.mark.parametrize(
    ("change", "told"),
    [  # x, y, q: features, grades and query ids
        (lambda x, y, _: (x, y), "2 of tuple"),
        (lambda x, *_: x, "1 of ndarray"),
        (lambda x, y, q: (x[1:], y, q), "a row, a grade and an id for each document"),
        (lambda x, y, q: (x[:, 0], y, q), "a row, a grade"),
        (lambda x, y, q: (x[:0], y[:0], q[:0]), "a row, a grade"),
        (lambda x, y, q: (x * 1j, y, q), "features must be finite real numbers; they are complex128"),
        (lambda x, y, q: (x / 0.0, y, q), "features must be finite"),
        (lambda x, y, q: (x.astype(str), y, q), "features must be finite real"),
        (lambda x, y, q: (np.ma.masked_less(x, 0.5), y, q), "values that are masked out would count"),
        (lambda x, y, q: (x, y + 0.5, q), "relevance must be whole numbers from 0"),
        (lambda x, y, q: (x, y - 1, q), "relevance must be whole numbers from 0"),
        (lambda x, y, q: (x, y, q // 100), "1 queries cannot be split"),
        (lambda x, y, q: (x, y + 9, q), "expected grades 0 to 2 or 0 to 4"),
    ],
)
def test_what_is_no_data_is_refused(change, told):
    """With what is wrong, before anything runs."""
    with np.errstate(all="ignore"):
        given = change(*rows())
    with pytest.raises(DataError, match=told):
        fr.simulate(data=given, **SMALL)


def test_arrays_are_named_by_their_values():
    """So a kept run is of these values, under any name and made anywhere."""
    features, relevance, queries = rows()
    digests = {
        digest_of_arrays(arrays_of(given))
        for given in (
            (features, relevance, queries),
            (features.copy(), relevance.copy(), queries.copy()),
            (features, relevance, queries.astype(str)),
            (features, relevance[::-1], queries),
            (features.astype(float), relevance, queries),
            ((features, relevance, queries), (features, relevance, queries)),
        )
    }
    assert len(digests) == 5
