"""The guard's judgement: what clicks say, what it takes to refuse a model, and what is never refused."""

import math

import numpy as np
import pytest
from drawn import even_reversals, reversals_of
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.guard.model_judgement import FEWEST_LISTS, MARGIN, Preferences, agreement, judge, preferences
from foltr.data.synthetic import synthetic_dataset
from foltr.errors import DataError
from foltr.evaluation.click_models import click_model, simulate_clicks
from foltr.learning.linear import sample_plackett_luce, score
from foltr.learning.pdgd import pdgd_step, score_gradient

K, D = 10, 12


def clicks_at(*positions, length=K):
    clicks = np.zeros(length, np.bool_)
    clicks[list(positions)] = True
    return clicks


# --- preferences ----------------------------------------------------------------------------------------------


def test_a_click_is_preferred_over_what_was_seen_and_not_clicked():
    """That is everything above the last click, and the first one after it."""
    said = preferences(even_reversals(K), clicks_at(1, 3))
    pairs = set(zip(said.preferred.tolist(), said.other.tolist(), strict=True))
    assert pairs == {(1, 0), (1, 2), (1, 4), (3, 0), (3, 2), (3, 4)}


def test_of_two_documents_the_weight_is_the_probability_of_the_other_order():
    """Shown [a, b] with scores 1 and 0: b first has e^0 / (e^1 + e^0), and that is rho whichever was clicked."""
    rho = 1 / (math.e + 1)
    for clicked in (0, 1):
        said = preferences(reversals_of([1.0, 0.0], [0, 1]), clicks_at(clicked, length=2))
        np.testing.assert_allclose(said.weight, [rho])


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 2**32 - 1))
def test_the_pairs_and_weights_are_those_pdgd_learns_from(seed):
    """Summed with the slope of the logistic function, they are its gradient."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=15)
    ranking, clicks = sample_plackett_luce(scores, K, rng), rng.random(K) < 0.3
    reversals, shown = reversals_of(scores, ranking), scores[ranking]
    said = preferences(reversals, clicks)
    gradient = np.zeros(K)
    for high, low, weight in zip(said.preferred, said.other, said.weight, strict=True):
        decay = math.exp(-abs(shown[high] - shown[low]))
        slope = decay / (1 + decay) ** 2
        gradient[high] += weight * slope
        gradient[low] -= weight * slope
    np.testing.assert_allclose(gradient, score_gradient(scores, ranking, clicks, reversals), atol=1e-12)


@pytest.mark.parametrize("clicks", [clicks_at(), np.ones(K, np.bool_)])
def test_no_click_and_nothing_but_clicks_say_nothing(clicks):
    """No pair, no weight, no agreement."""
    said = preferences(even_reversals(K), clicks)
    assert (len(said.weight), said.total, agreement(np.zeros(K), said)) == (0, 0.0, 0.0)


def test_what_is_no_list_is_an_error():
    """Each pair has a reversal, and nothing else has one."""
    for length in (2, 4):
        with pytest.raises(DataError, match="each pair has one"):
            preferences(even_reversals(3), clicks_at(0, length=length))


# --- agreement ------------------------------------------------------------------------------------------------


def test_agreement_is_the_share_of_the_weight_in_the_users_order():
    """Half of a tie, nothing of what is not a number, and the same for scores of any size."""
    said = Preferences(np.array([0, 1, 2]), np.array([3, 3, 3]), np.array([0.5, 0.25, 0.25]))
    assert agreement(np.array([1.0, 0.0, -1.0, 0.0]), said) == 0.5 + 0.25 / 2
    assert agreement(np.array([1e30, 0.0, -1e-30, 0.0]), said) == 0.5 + 0.25 / 2
    assert agreement(np.array([np.nan, 1.0, np.inf, 0.0]), said) == 0.5
    assert agreement(np.full(4, np.nan), said) == 0.0


def test_a_click_anywhere_favours_no_model():
    """Neither the one that showed the list nor its reverse, which most pairs, counted alike, would speak for."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=12)
    said = []
    for _ in range(4000):
        ranking = sample_plackett_luce(scores, K, rng)
        said.append((scores[ranking], preferences(reversals_of(scores, ranking), clicks_at(rng.integers(K)))))
    of_shown = np.average([agreement(shown, one) for shown, one in said], weights=[one.total for _, one in said])
    assert of_shown == pytest.approx(0.5, abs=0.01)
    alike = [agreement(shown, Preferences(one.preferred, one.other, np.ones(len(one.weight)))) for shown, one in said]
    assert np.average(alike, weights=[len(one.weight) for _, one in said]) < 0.45


# --- the judgement --------------------------------------------------------------------------------------------


def test_the_loss_and_its_standard_error_are_those_of_a_ratio_of_sums():
    """By hand, for weights 1 and 3 and losses 1 and 0: D = 1/4, and the residuals are 3/4 and -3/4."""
    judgement = judge(np.array([1.0, 3.0, 0.0]), np.array([1.0, 0.5, 9.0]), np.array([0.0, 0.5, 9.0]))
    assert (judgement.n_lists, judgement.loss, judgement.kept) == (2, 0.25, (1 + 1.5) / 4)
    assert judgement.standard_error == pytest.approx(math.sqrt(2 / 1 * (0.75**2 + 0.75**2)) / 4)


@pytest.mark.parametrize(
    ("n_lists", "loss", "noise", "refused"),
    [
        pytest.param(FEWEST_LISTS, 1.0, 0.0, True, id="worse in every list"),
        pytest.param(FEWEST_LISTS - 1, 1.0, 0.0, False, id="too few lists"),
        pytest.param(200, MARGIN / 2, 0.0, False, id="worse, but not far"),
        pytest.param(200, MARGIN * 2, 0.8, False, id="far worse, but perhaps by chance"),
        pytest.param(200, -1.0, 0.0, False, id="better"),
    ],
)
def test_what_it_takes_to_refuse(n_lists, loss, noise, refused):
    """Lists enough, a loss that is large, and that is not chance."""
    swing = noise * np.where(np.arange(n_lists) % 2, 1.0, -1.0)
    judgement = judge(np.ones(n_lists), np.full(n_lists, loss) + swing, np.zeros(n_lists))
    assert judgement.refused is refused


def test_without_a_list_nothing_is_refused():
    """Nor with lists that say nothing."""
    assert not judge(np.zeros(0), np.zeros(0), np.zeros(0)).refused
    assert not judge(np.zeros(99), np.ones(99), np.zeros(99)).refused


class Federation:
    """A federation of honest devices, and what one of them holds back; like ``foltr.methods``, in twenty lines."""

    def __init__(self, clicks, seed, n_rounds):
        rng = np.random.default_rng(seed)
        dataset = synthetic_dataset(np.random.default_rng(7), 150, (8, 30), n_features=D)
        model, self.held = click_model(clicks, 5), []
        self.models = [np.zeros(D)]
        for _ in range(n_rounds):
            learned = []
            for device in range(5):
                weights = self.models[-1].copy()
                for i in range(5):
                    features, relevance = (query := dataset.query(int(rng.integers(150)))).features, query.relevance
                    scores = score(weights, features)
                    ranking = sample_plackett_luce(scores, min(K, len(scores)), rng)
                    clicked = simulate_clicks(model, relevance[ranking], rng)
                    if device == 0 and i == 0:  # every fifth, so that few rounds are enough for a test
                        self.held.append((features[ranking], preferences(reversals_of(scores, ranking), clicked)))
                    else:
                        weights = pdgd_step(weights, features, ranking, clicked, 0.1)
                learned.append(weights - self.models[-1])
            self.models.append(self.models[-1] + np.mean(learned, axis=0))

    def judge(self, kept, new, n_held=None):
        held = self.held[:n_held][-200:]
        return judge(
            np.array([said.total for _, said in held]),
            *(np.array([agreement(score(model, features), said) for features, said in held]) for model in (kept, new)),
        )


@pytest.mark.parametrize("clicks", ["perfect", "navigational", "informational"])
def test_honest_models_are_not_refused_and_spoilt_ones_are(clicks):
    """Of 3 seeds no honest model is refused, also after ten rounds away; zeros and the reverse are, and no numbers."""
    for seed in range(3):
        federation = Federation(clicks, seed, n_rounds=210)
        models = federation.models
        for newest in range(31, len(models)):
            for kept in (newest - 1, newest - 10):
                judgement = federation.judge(models[kept], models[newest], newest)
                assert not judgement.refused, (seed, kept, newest, judgement)
        last = models[-1]
        spoilt = [-last, -0.1 * last, 0 * last, np.full(D, np.nan)]
        refused = [federation.judge(last, model).refused for model in spoilt]
        assert refused == [True] * 4, (seed, refused)
