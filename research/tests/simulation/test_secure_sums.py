"""Secure sums in a simulation: the same arithmetic as with helpers, turns that keep to k, and what is refused of it."""

import math

import numpy as np
import pytest
from simulated import check_resumed, config, population, simulated

from foltr.core.aggregation.round_aggregation import TooFewUpdatesError
from foltr.core.data.sources import load_data
from foltr.core.errors import SettingsError
from foltr.core.methods.registry import make_aggregation
from foltr.core.secure.coins import seeded_entropy
from foltr.core.secure.norm_proof import proof_shape
from foltr_research.simulation import secure_sums
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import cohorts_of, resolve
from foltr_research.simulation.defence_record import NormProofs
from foltr_research.simulation.federated import run
from foltr_research.simulation.learner_factory import make_learner
from foltr_research.simulation.secure_sums import SecureAggregation, secure_sums_of

DIM = 400


def secure(**values):
    return config(**{"privacy": "secure", "clients": 30, **values})


def sums_of(of, dim=DIM):
    training, ranker = resolve(of, dim)
    return secure_sums_of(of, training, ranker)


def aggregated(of, rows, hostile=(), number=1, dim=DIM):
    """The next model from a model of zeros: what a round releases of updates that are given; and its aggregation."""
    training, ranker = resolve(of, dim)
    inner = make_aggregation(training, ranker)
    aggregation = SecureAggregation(inner, sums_of(of, dim), number, len(rows), hostile)
    aggregation.add_rows(rows, np.full(len(rows), 4), [f"device-{i}" for i in range(len(rows))])
    return aggregation.finish(np.zeros(dim, np.float32)).weights, aggregation


def released(of, rows, hostile=(), number=1, dim=DIM):
    return aggregated(of, rows, hostile, number, dim)[0]


@pytest.mark.parametrize("method", [{}, {"method": "fedper", "ranker": "neural", "hidden": 3}])
def test_without_noise_and_on_a_fine_grid_it_is_the_trusted_run(monkeypatch, method):
    """Clients, clicks and models are the same up to rounding, also where only a part of the model is shared.

    So fine a grid has no norm proofs, whose masks are for norms of a few hundred.
    """
    monkeypatch.setattr(secure_sums, "bound_for", lambda _: 2**40)
    fine = simulated(secure(mechanism="none", norm_proof="none", clip_norm=10.0, **method))
    trusted = simulated(config(clients=30, **method))
    assert np.abs(fine.weights - trusted.weights).max() < 1e-6
    assert fine.ndcg_at_10[-1][1] == pytest.approx(trusted.ndcg_at_10[-1][1], abs=1e-3)


def test_an_update_is_shortened_and_its_error_on_the_grid_is_below_a_step():
    """Without noise the mean differs from that of the updates by less than a step; an honest client clips."""
    rows = np.random.default_rng(3).normal(size=(20, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    found = released(secure(mechanism="none", clip_norm=2.0), rows)
    assert 0.0 < np.abs(found - rows.mean(axis=0)).max() < 2.0 / 256
    rows = np.zeros((1, DIM), np.float32)
    rows[0, 0] = 100.0
    assert released(secure(mechanism="none", clip_norm=2.0), rows)[0] == pytest.approx(2.0)


@pytest.mark.parametrize("mechanism", ["gaussian", "gamma"])
def test_noise_in_the_mean_is_that_of_all_helpers(mechanism):
    """Of clients who learned nothing: its standard deviation, over so many coordinates."""
    of = secure(mechanism=mechanism, helpers=3, clip_norm=1.0)
    sums = sums_of(of)
    variance = sums.noise if mechanism == "gaussian" else 2 * sums.noise**2
    found = released(of, np.zeros((10, DIM), np.float32))
    assert found.std() == pytest.approx(math.sqrt(3 * variance) / 256 / 10, rel=0.25)


def test_the_result_is_a_function_of_the_configuration():
    """Twice the same, with blocks or one by one; another seed is another run."""
    of = secure()
    one = simulated(of)
    assert one.outcome() == simulated(of).outcome() == simulated(of, runner="reference").outcome()
    assert not np.array_equal(one.weights, simulated(secure(seed=2)).weights)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """Turns, rounding and noise follow from the seed and the round, so a checkpoint needs nothing of them."""
    check_resumed(secure(rounds=7, participations=4, aggregation="median", cohorts=3), tmp_path / "run.checkpoint")


@pytest.mark.parametrize(("rounds", "participations"), [(7, 3), (6, 3), (4, 20), (5, 1)])
def test_a_client_takes_part_as_often_as_it_may(rounds, participations):
    """At most k times in all rounds, and each as often as the period lets it."""
    of = secure(rounds=rounds, participations=participations)
    people = population(of)
    training, ranker = resolve(of, 8)
    crowd = Crowd(people, of.seed, training.serp_length)
    learner, _ = make_learner(of, people, crowd, training, ranker, np.zeros(8, np.float32), "auto")
    taken = np.concatenate([learner.round(number).clients for number in range(1, rounds + 1)])
    counts = np.bincount(taken, minlength=30)
    period = -(-rounds // participations)
    assert counts.max() <= participations
    assert counts.min() >= rounds // period


def test_what_is_promised_is_in_the_result():
    """With the defaults of policies; gamma has no delta without proofs, and without noise nothing is promised."""
    found = simulated(secure(rounds=40, eval_every=40)).privacy
    assert (found["mode"], found["mechanism"], found["epsilon"], found["delta"]) == ("secure", "gaussian", 8.0, 1e-6)
    assert (found["participations"], found["helpers"], found["period"], found["cohorts"]) == (20, 2, 2, 1)
    assert found["clip_norm"] == pytest.approx(0.15 * math.sqrt(4))
    assert "epsilon 8 with delta 1e-06 for 20 participations" in found["summary"]
    assert (found["norm_proof"], found["noise"]) == ("l2", 622_756)
    assert simulated(secure(mechanism="gamma", norm_proof="none")).privacy["delta"] == 0.0
    assert simulated(secure(mechanism="gamma")).privacy["delta"] == 1e-6
    assert simulated(secure(mechanism="none")).privacy["epsilon"] is None
    assert simulated(config()).privacy is None


def test_a_round_without_anybody_makes_no_model():
    """Three clients in a period of ten: most rounds have nobody, and say so."""
    found = simulated(secure(clients=3, rounds=10, participations=1))
    assert 7 <= found.robustness["abandoned_rounds"] < 10
    assert found.interactions == 3 * 4


def hostile_run(z, **values):
    attack = {"attack": "scaled", "attackers": 1, "attack_parameters": {"z": z}, "norm_proof": "none"}
    return simulated(secure(mechanism="none", rounds=6, eval_every=6, **{**attack, **values}))


def test_without_proofs_a_hostile_client_does_not_clip():
    """Below the plausible length it moves a mean as it likes; a median of cohorts, usually twenty, holds."""
    honest, attacked = simulated(secure(mechanism="none", rounds=6, eval_every=6)), hostile_run(25.0)
    assert attacked.robustness["abandoned_rounds"] == 0
    assert attacked.final_ndcg < honest.final_ndcg - 0.1
    held = hostile_run(10.0, aggregation="median", cohorts=6)
    assert held.final_ndcg > hostile_run(25.0).final_ndcg + 0.1
    assert cohorts_of(secure(aggregation="median")) == 20
    assert cohorts_of(secure()) == 1


def test_a_sum_that_is_too_long_is_discarded():
    """More than thirty clients can be: the round makes no model, nor does one with numbers beyond any range."""
    before = simulated(secure(mechanism="none")).ndcg_at_10[0]
    for attacked in (hostile_run(1e6), simulated(secure(attack="huge", attackers=1, norm_proof="none"))):
        assert attacked.robustness["abandoned_rounds"] == attacked.config.rounds
        assert attacked.final_ndcg == before[1]


def basis(n, *longer):
    """Vectors along one axis each, of length 2, the clip norm in these tests; some of them longer by a factor."""
    rows = 2.0 * np.eye(n, DIM, dtype=np.float32)
    for i, factor in longer:
        rows[i] *= factor
    return rows


@pytest.mark.parametrize("mechanism", ["none", "gamma"])
def test_who_has_no_proof_is_left_out(monkeypatch, mechanism):
    """A hundredth beyond the bound is too long; the mean is that of the others, and both are counted."""
    monkeypatch.setattr(secure_sums.SecureSums, "draw_noise", lambda _, size, __: np.zeros(size, np.int64))
    of = secure(mechanism=mechanism, clip_norm=2.0)
    found, aggregation = aggregated(of, basis(4, (1, 1.01), (2, 50.0)), {"device-1", "device-2"})
    assert found[:4] == pytest.approx([1.0, 0.0, 0.0, 1.0])
    assert aggregation.norm_proofs == NormProofs(4, 2)


def test_a_hostile_client_may_be_as_long_as_the_bound():
    """At the clip norm it passes, in L2, so under gamma up to sqrt(d) times as long; what is not finite is zeros."""
    row = np.random.default_rng(4).normal(size=DIM)
    row = (2.0 * row / np.linalg.norm(row)).astype(np.float32)
    found, aggregation = aggregated(secure(mechanism="none", clip_norm=2.0), np.stack([row, 3 * row]), {"device-0"})
    assert aggregation.norm_proofs == NormProofs(2, 0)
    assert np.linalg.norm(found) == pytest.approx(2.0, rel=0.01)
    row = np.full((2, DIM), 2.0 / math.sqrt(DIM), np.float32)
    sums = sums_of(secure(mechanism="gamma", clip_norm=2.0))
    hostile, honest = (encode(row[0], seeded_entropy(bytes(32))) for encode in (sums.encode_hostile, sums.encode))
    assert 0.99 * 256**2 < int(hostile @ hostile) <= 256**2
    assert np.abs(honest).sum() <= 256
    rows = np.zeros((2, DIM), np.float32)
    rows[0], rows[1, 0] = np.nan, 1.0
    found = released(secure(mechanism="none", clip_norm=2.0), rows, hostile={"device-0"})
    assert found[0] == pytest.approx(0.5)
    assert not found[1:].any()


def test_when_most_proofs_fail_nobody_is_blamed():
    """It is the verifiers then who may have lied: the round makes no model, and half of a cohort may still fail."""
    rows = basis(4, (0, 5.0), (1, 5.0), (2, 5.0))
    of = secure(mechanism="none", clip_norm=2.0)
    assert aggregated(of, rows, {"device-0", "device-1"})[1].norm_proofs == NormProofs(4, 2)
    with pytest.raises(TooFewUpdatesError, match="verifiers_disagree"):
        aggregated(of, rows, {"device-0", "device-1", "device-2"})


def test_with_proofs_what_is_too_long_changes_nothing(tmp_path):
    """The attack that ruins a sum without them; the count is of all rounds, also where the run was interrupted."""
    honest, attacked = simulated(secure(mechanism="none", rounds=6, eval_every=6)), hostile_run(25.0, norm_proof="l2")
    assert attacked.final_ndcg == pytest.approx(honest.final_ndcg, abs=0.02)
    assert attacked.robustness["norm_proofs"] == {"checked": 6 * 30, "failed": 6}
    assert attacked.rows()[-1]["norm_proofs_failed"] == 6
    assert hostile_run(25.0).robustness["norm_proofs"] is None
    assert check_resumed(attacked.config, tmp_path / "run.checkpoint").outcome() == attacked.outcome()


def test_proofs_are_charged_and_the_clip_norm_follows_from_training():
    """They take a part of what is promised and of an update; 0.15 sqrt(B) (learning rate / 0.1), unless it is said."""
    gaussian, gamma = sums_of(secure()), sums_of(secure(mechanism="gamma"))
    assert (gaussian.noise, gamma.noise) == (622_756, 641)
    assert (sums_of(secure(norm_proof="none")).noise, sums_of(secure(mechanism="gamma", norm_proof="none")).noise) == (
        622_754,
        640,
    )
    with pytest.raises(SettingsError, match="of which proofs may take a hundredth"):
        sums_of(secure(participations=10_000, rounds=10_000, epsilon=0.1))
    with_proof, without = (simulated(secure(rounds=1, norm_proof=proof)).bytes_up for proof in ("l2", "none"))
    assert with_proof - without == 8 * proof_shape(8, 256).n_proof
    assert sums_of(secure(parameters={"learning_rate": 0.2})).clip_norm == pytest.approx(0.6)
    assert sums_of(secure(clip_norm=7.0)).clip_norm == 7.0


def test_noise_costs_little_on_average():
    """What `foltr demo-secure` shows once, of six seeds: a hundred clients lose less than 0.02 in twenty rounds."""
    read = load_data("mslr-sample", 1)
    lost = []
    for seed in range(1, 7):
        ended = []
        for mechanism in ("gaussian", "none"):
            chosen = secure(
                data="mslr-sample", clients=100, interactions=5, rounds=20, clicks="navigational", cohorts=1, seed=seed
            ).changed(mechanism=mechanism, participations=20, eval_every=20)
            people = iid_population(read.train, read.test, 100, chosen.clicks, 5, read.n_grades)
            ended.append(run(chosen, people).final_ndcg)
        lost.append(ended[1] - ended[0])
    assert abs(float(np.mean(lost))) < 0.02
