"""The benchmarks of what users lose compute expectations and histories as devices draw them."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from foltr.core.evaluation.click_models import click_model
from foltr.core.learning.credits import Credits, pooled
from foltr.core.learning.gate import BASE_DECAY, FEWEST_BASE_LISTS, FadingMean, Gate, Source, source_of_next
from foltr.core.methods.lists import list_from
from foltr.core.protocol.explorations import SAFE

OPENED = {False: Gate(), True: Gate(is_open=True)}


def test_a_made_search_has_the_base_that_it_was_asked_for(benchmark_module):
    searches = benchmark_module("known_searches")
    rng = np.random.default_rng(1)
    for base_mrr in (0.3, 0.75, 0.95):
        search = searches.MadeSearch(base_mrr)
        found = [searches.reciprocal(search.query(0, rng).wanted) for _ in range(2000)]
        assert np.mean(found) == pytest.approx(base_mrr, abs=4 * np.std(found) / 2000**0.5)


@pytest.mark.parametrize("is_open", [False, True])
def test_expected_gains_are_the_means_of_lists_as_devices_draw_them(benchmark_module, is_open):
    """Within four standard errors, over lists of the gate's sources."""
    searches, users = benchmark_module("known_searches"), benchmark_module("gated_users")
    rng = np.random.default_rng(2)
    gate = replace(OPENED[is_open], credits=FadingMean(8.0, 8.0, 8.0, 8.0), of_base=FadingMean(FEWEST_BASE_LISTS))
    for _ in range(3):
        query = searches.MadeSearch(0.5).query(0, rng)
        scores = rng.standard_normal(len(query.features)).astype(np.float32)
        gain, _ = users.expected_gains(gate, query, scores)
        drawn = []
        for _ in range(3000):
            ranking = list_from(source_of_next(gate, rng), SAFE, scores, query.base, searches.K, rng).shown.ranking
            at = np.flatnonzero(ranking == query.wanted)
            drawn.append(searches.reciprocal(int(at[0]) if len(at) else searches.K))
        error = np.std(drawn) / len(drawn) ** 0.5
        assert gain + searches.reciprocal(query.wanted) == pytest.approx(np.mean(drawn), abs=4 * error + 1e-9)


def test_histories_are_computed_as_gates_compute_them(benchmark_module):
    """Shares, bets and pooled credits of many at once are those of each."""
    errors = benchmark_module("gate_errors")
    rng = np.random.default_rng(3)
    n = rng.integers(0, 40, (6, 8)).astype(float)
    total = np.round(rng.uniform(-1, 1, n.shape) * np.sqrt(n) * 2)
    n_base = rng.choice([5, 20, 90], n.shape)
    base = (1.0 - BASE_DECAY**n_base) / (1.0 - BASE_DECAY)
    shared_total, shared_squares = errors.pooled_each(total, n)
    shares = errors.shares_of(total, n, base, shared_total[:, None], shared_squares[:, None])
    growth = errors.growth_of(total, n)
    for i, federation in enumerate(zip(total, n, strict=True)):
        shared = pooled(*federation)
        assert (shared_total[i], shared_squares[i]) == pytest.approx(tuple(shared))
        for j in range(8):
            own = FadingMean(n[i, j], n[i, j], total[i, j], n[i, j])
            gate = Gate(credits=own, of_base=FadingMean(base[i, j]), shared=shared)
            assert shares[i, j] == pytest.approx(gate.share_interleaved)
            assert growth[i, j] == pytest.approx(gate.growth)
    assert errors.growth_of(np.array([25.0]), np.array([40.0]))[0] == pytest.approx(Credits(25.0, 40.0).growth)


def test_users_of_a_federation_search_until_gates_open(benchmark_module):
    """Of a weak base whose users click cleanly; new users come later, and a model upside down is noticed."""
    searches, users = benchmark_module("known_searches"), benchmark_module("gated_users")
    federation = users.GatedFederation(searches.MadeSearch(0.3), click_model("navigational", 2), 8, 1)
    federation.run(120)
    assert {len(user.gains) for user in federation.users} == {600}
    assert any(user.gate.is_open for user in federation.users)
    assert np.mean([user.gains[-100:] for user in federation.users]) > 0.0
    assert max(federation.lists_until_closed()) < 200
    assert federation.lists_to_know(500) < 2000
    assert {user.gate.count(Source.BASE).lists for user in federation.join(2)} == {0}


def test_both_tables_are_printed_and_written(benchmark_module, tmp_path, monkeypatch, capsys):
    arguments = {
        "never_worse": "--bases 0.5 --clicks noisy --users 3 --searches 100 --new-users 1 --seeds 2",
        "gate_errors": "--histories 30 --searches 200 --users 1,3",
    }
    for name, options in arguments.items():
        file = tmp_path / f"{name}.json"
        monkeypatch.setattr(sys, "argv", [name, *options.split(), "--json", str(file)])
        benchmark_module(name).main()
        assert len(capsys.readouterr().out.splitlines()) == 1 + len(json.loads(file.read_text()))
