import tracemalloc

import numpy as np
import pytest
from support.adaptive_rounds import ADAPTIVE, DIM, Attack, Federation, clipped, dropped, names_of

from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.round_aggregation import aggregate_round
from foltr.core.aggregation.rule_spec import RuleSpec, read_rule

N = 10
NAMES = names_of(N)

ATTACKS: dict[str, Attack] = {
    "the opposite": lambda rows, _: -rows,
    "minus three times": lambda rows, _: -3.0 * rows,
    "a constant bias": lambda rows, _: rows + 0.3,
    "a hundred times": lambda rows, rng: 100.0 * rng.permutation(rows, axis=1),
}


def test_without_attackers_it_is_the_mean_to_the_last_bit() -> None:
    """Nobody is left out or shortened in 200 rounds, and every round equals the plain mean."""
    for seed in range(2):
        for signal in [0.0, 0.5, 2.0]:
            rng = np.random.default_rng(seed)
            memory = None
            for _ in range(200):
                rows = (signal + rng.normal(size=(N, DIM))).astype(np.float32)
                one = aggregate_round(ADAPTIVE, NAMES, rows, np.full(N, 5.0), memory)
                mean = aggregate_round(read_rule("mean"), NAMES, rows, np.full(N, 5.0))
                memory = one.memory
                assert one.vector.tobytes() == mean.vector.tobytes(), (seed, signal)
                assert (one.report.rule, one.report.fates, one.report.findings) == ("mean", (), ()), (seed, signal)


def test_attackers_are_left_out_and_nobody_else() -> None:
    """Within 60 rounds each of them is, with a reason, whether there is one or there are four of ten."""
    for n_attackers in [1, 4]:
        for name, attack in ATTACKS.items():
            federation = Federation(n_attackers=n_attackers, attack=attack).play(60)
            assert dropped(federation.played[-1]) == federation.attackers == federation.ever_dropped()
            assert all(fate.reason for fate in federation.played[-1].report.fates if fate.fate is Fate.DROPPED)
            raised = federation.found("defence_raised")
            assert {finding.client_id for finding in raised} == federation.attackers, (n_attackers, name)
            assert all(10 < len(finding.detail) <= 500 for finding in raised), (n_attackers, name)


def test_clients_that_send_the_same_have_the_weight_of_one() -> None:
    """Copies are told apart from users who agree, also where they agree much; and nobody is suspected."""
    for n_attackers in [2, 4]:
        for signal in [0.5, 2.5]:

            def alike(rows, _):
                return np.tile(rows[-1], (N, 1))

            federation = Federation(n_attackers=n_attackers, attack=alike, signal=signal).play(30)
            assert federation.ever_dropped() == set(), (n_attackers, signal)
            last = federation.played[-1]
            group = {*NAMES[:n_attackers], NAMES[-1]}
            shares = {fate.client_id: fate.share for fate in last.report.fates}
            assert clipped(last) == group, (n_attackers, signal)
            assert {round(shares[name], 6) for name in set(NAMES) - group} == {round(1 / (N - n_attackers), 6)}
            assert sum(shares[name] for name in group) == pytest.approx(1 / (N - n_attackers)), (n_attackers, signal)
            assert all("count as one" in fate.reason for fate in last.report.fates if fate.client_id in group)


def test_who_behaves_again_is_counted_again() -> None:
    """The switch back is told too, and later than the bound that raised it: nobody flickers."""
    federation = Federation(n_attackers=2, attack=ATTACKS["a constant bias"]).play(60)
    federation.attack = None
    federation.play(340)
    assert sorted(finding.client_id for finding in federation.found("defence_raised")) == NAMES[:2]
    assert sorted(finding.client_id for finding in federation.found("defence_lowered")) == NAMES[:2]
    assert dropped(federation.played[-1]) == set()


def test_a_client_that_stays_suspicious_is_proposed_for_quarantine() -> None:
    """After `patience` updates under suspicion, twice as many, four times: let out again it is proposed again."""
    spec = read_rule("adaptive", parameters={"patience": 10})
    federation = Federation(n_attackers=1, attack=ATTACKS["the opposite"], spec=spec).play(100)
    raised = next(number for number, one in enumerate(federation.played) if dropped(one))
    proposed = [
        number - raised + 1
        for number, one in enumerate(federation.played)
        for finding in one.report.findings
        if finding.kind == "quarantine_proposed"
    ]
    assert proposed == [10, 20, 40, 80]
    proposals = federation.found("quarantine_proposed")
    assert {finding.client_id for finding in proposals} == {NAMES[0]}
    assert all("pulls against the others" in finding.detail for finding in proposals)


def half_and_half(spec: RuleSpec = ADAPTIVE) -> Federation:
    """Five of ten turn against the others after forty rounds."""
    federation = Federation(spec=spec).play(40)
    federation.n_attackers, federation.attack = 5, ATTACKS["minus three times"]
    return federation.play(60)


def test_half_and_half_is_undecided_and_follows_the_fallback() -> None:
    """The rule leaves out the strongest cases below half, and warns once; `abandon` makes no model."""
    federation = half_and_half()
    last = federation.played[-1].report
    assert (last.configured, last.rule) == ("adaptive", "median")
    assert last.fallback_reason == "half of the clients or more look suspicious"
    assert len(dropped(federation.played[-1])) == 4
    assert federation.ever_dropped() <= federation.attackers
    told = [finding for finding in federation.found("defence_raised") if finding.client_id is None]
    assert len(told) == 1
    assert "the strongest cases below half are left out" in told[0].detail

    federation.attack = None
    federation.play(300)
    assert [finding.client_id for finding in federation.found("defence_lowered")].count(None) == 1
    assert federation.played[-1].report.rule == "mean"
    federation = half_and_half(read_rule("adaptive", fallback="abandon"))
    assert federation.refused
    assert "half of the clients or more look suspicious; no model is made" in federation.refused[0]


def test_rounds_that_say_nothing_suspect_nobody() -> None:
    """All alike, without clicks, too few to compare, of different diligence, or short where little is explored."""
    memory = None
    for _ in range(20):
        one = aggregate_round(ADAPTIVE, NAMES, np.ones((N, DIM), np.float32), np.ones(N), memory)
        memory = one.memory
        assert one.report.fates == ()
    assert one.vector.tolist() == [1.0] * DIM
    rng = np.random.default_rng(5)
    memory = None
    for _ in range(50):
        rows = rng.normal(size=(N, DIM))
        rows[:4] = 0.0
        one = aggregate_round(ADAPTIVE, NAMES, rows, np.ones(N), memory)
        memory = one.memory
        assert one.report.fates == ()
    for n in [1, 2, 3]:
        rows = np.random.default_rng(6).normal(size=(n, DIM))
        rows[0] *= 50.0
        one = aggregate_round(ADAPTIVE, NAMES[:n], rows, np.ones(n))
        assert np.allclose(one.vector, rows.mean(axis=0)), n
    rng = np.random.default_rng(2)
    weights = np.resize([1.0, 3.0, 5.0, 7.0, 9.0], N)
    memory = None
    for _ in range(100):
        rows = 0.2 * weights[:, None] / 5.0 + rng.normal(size=(N, DIM)) * np.sqrt(weights)[:, None]
        one = aggregate_round(ADAPTIVE, NAMES, rows, weights, memory)
        memory = one.memory
        assert one.report.fates == ()
    rng = np.random.default_rng(1)
    memory, often_short = None, np.where(np.arange(N) < N - 2, 0.4, 0.9)
    for _ in range(60):
        lengths = np.where(rng.random(N) < often_short, 0.15, 1.0)
        rows = (lengths[:, None] * rng.normal(size=(N, DIM))).astype(np.float32)
        result = aggregate_round(ADAPTIVE, NAMES, rows, np.full(N, 5.0), memory)
        memory = result.memory
        assert result.report.findings == ()


def test_what_cannot_be_read_is_forgotten_and_told() -> None:
    """A memory of another program or ranker stops no federation: clients are judged from scratch, and it says so."""
    federation = Federation(n_attackers=2, attack=ATTACKS["the opposite"]).play(30)
    federation.memory = b"something else"
    federation.play(1)
    assert dropped(federation.played[-1]) == set()
    (finding,) = federation.played[-1].report.findings
    assert (finding.kind, finding.client_id) == ("defence_lowered", None)
    assert "starts from scratch" in finding.detail


def test_a_large_round_needs_no_second_copy_of_its_updates() -> None:
    """A thousand clients of 4,000 weights are judged a block at a time."""
    rows = np.random.default_rng(8).normal(size=(1000, 4000)).astype(np.float32)
    names = [f"device-{i:04d}" for i in range(1000)]
    tracemalloc.start()
    aggregate_round(ADAPTIVE, names, rows, np.ones(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows.nbytes


def test_of_many_honest_clients_none_is_left_out() -> None:
    """Of a hundred the last is farther behind than of ten, and no more hostile for it."""
    for seed in range(3):
        federation = Federation(n=100, signal=0.8, seed=seed).play(120)
        assert federation.ever_dropped() == set(), seed
